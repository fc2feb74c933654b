"""Placement, policies and the probability model. Pure functions of keys and topics."""
