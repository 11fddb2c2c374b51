"""`karat bench`: a recipe's grid of runs, its table with the paper's figures beside ours, and its plots."""
