"""Captures in, reliability versus K out: what arrived, beside theory, and why the rest did not.

captures.py   load tests' captures, checked, as DataFrames
jobs/         DataFrame -> DataFrame: pairs and their causes, then counts that can be merged, then sums
findings/     small sums -> tables, theory, verdicts. No Spark
simulation/   the 2004 note at its own scale
report/       findings -> one HTML page, JSON, CSV, Parquet. No Spark
session/      Java and a quiet Spark
analysis.py, follow.py   the way through all of it, at once or while a capture grows
command.py, submit.py    `kcast analyse`, and the same for spark-submit
"""
