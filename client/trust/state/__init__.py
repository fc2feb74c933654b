"""What lies on this machine: lists that are held, and secret keys. PROTOCOL §10.8."""
