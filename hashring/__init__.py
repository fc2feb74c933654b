"""Placement of topics on hosts, policies, and the probability model. Pure functions, without I/O."""
