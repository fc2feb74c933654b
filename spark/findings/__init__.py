"""What the sums mean: tables, theory, verdicts. Pure; no Spark."""
