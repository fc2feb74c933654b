"""What a load test records: the schema, and the writing and reading of it."""
