"""The report of a run: one offline page with charts, the most suspicious examples, and a review of the labels."""

REVIEW_ROWS = 5_000  # at most so many examples to review
