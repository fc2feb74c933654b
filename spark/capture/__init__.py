"""Captures as Spark reads them: checked files, and tables with fixed schemas."""
