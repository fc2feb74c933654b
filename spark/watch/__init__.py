"""The analysis of a capture while it grows, by watching its folder."""
