"""The report of a run: one offline page with charts, the most suspicious examples, and a review of the labels."""

from karat.report.page import REVIEW_ROWS, write_report
from karat.report.pictures import FeatureRows

__all__ = ["REVIEW_ROWS", "FeatureRows", "write_report"]
