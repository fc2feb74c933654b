"""Findings as one HTML page that stands alone, JSON, CSV and Parquet. No Spark."""
