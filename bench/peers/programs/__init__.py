"""Programs that the benchmark starts: they import nothing of it."""
