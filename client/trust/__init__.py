"""A list of servers worth trusting: signed, logged, witnessed. PROTOCOL §10."""
