"""`kcast load`: load tests, one or a grid of them, from a scenario to a table."""
