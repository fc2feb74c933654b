"""The captures of load tests: files checked, tables read with fixed schemas."""
