"""A folder of runs as a store: each scenario's results over time, and where they changed."""
