"""`kcast load`: runs one load test or a grid of them, and prints their results."""
