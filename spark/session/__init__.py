"""Spark itself: its Java, a quiet session, the files that it reaches, its progress and its errors."""
