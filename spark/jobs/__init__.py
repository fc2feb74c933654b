"""DataFrame -> DataFrame, with explicit schemas and without row-by-row Python."""
