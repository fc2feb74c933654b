"""The analysis of a capture while it grows."""
