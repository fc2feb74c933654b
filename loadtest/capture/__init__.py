"""The capture of a load test: its schema, and how it is written and read."""
