"""Load tests: clusters to test on, faults, captures, results, and the demo."""
