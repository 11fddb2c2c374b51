"""Named datasets, one file a family; each loader takes a `Request` and returns a `Dataset`."""
