"""A list of servers worth trusting: signed, logged, witnessed. PROTOCOL §10.

    publisher -> reach, witness -> state -> checks -> forms

Each folder imports from those to its right. Whoever reads lists needs `reach` and what it imports; what is
signed has its forms in `forms`, and all rules of what is believed are in `checks`.
"""
