"""Judging messages: Spark brings all rows of a message to one place, where numpy judges it."""
