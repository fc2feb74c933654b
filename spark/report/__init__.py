"""Findings as one HTML page, JSON, CSV and Parquet. No Spark."""
