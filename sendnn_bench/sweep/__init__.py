"""`sendnn-bench sweep`: many loads against many server settings, one table, one page."""
