"""Trained models in use: built again from their run folder, measured, asked about new data."""
