"""Tables with theory and verdicts, from the sums of the jobs. Pure, and without Spark."""
