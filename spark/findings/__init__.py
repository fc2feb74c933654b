"""From the sums of the jobs to tables with theory and verdicts. Pure, and without Spark."""
