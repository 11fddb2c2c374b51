"""What training learned about the given labels: the ledger, and the label issues read off it."""
