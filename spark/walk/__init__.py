"""What became of each pair: which servers a message came by, and where it was lost."""
