"""Counting: each job counts a part of the messages, and adds the merged counts up to small sums."""
