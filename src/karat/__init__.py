"""Karat: accurate classifiers from badly labelled data and a few trusted labels."""

__version__ = "0.1.0"
