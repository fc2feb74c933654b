"""The verbs of `kcast group`."""
