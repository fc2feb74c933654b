"""Counting: each job counts a slice of the captures, and adds merged counts up to small sums."""
