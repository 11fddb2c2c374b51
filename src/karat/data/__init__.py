"""Data: noise generators, label files, the trusted split, datasets, augmentation and samplers."""
