"""`karat bench`: a recipe's grid of runs, its table with the paper's results beside ours, and its figures."""
