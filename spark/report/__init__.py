"""Findings as a self-contained HTML page, JSON, CSV and Parquet. No Spark."""
