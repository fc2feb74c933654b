"""Java, and a Spark that keeps to itself."""
