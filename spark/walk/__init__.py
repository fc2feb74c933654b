"""What became of each pair: through which servers its message came, and where it was lost."""
