"""Captures in, reliability versus K out. Arrives with the load test's captures; only a name so far."""
