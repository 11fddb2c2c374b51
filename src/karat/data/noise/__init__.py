"""Label noise for experiments: one kind, one file."""
