"""History: what one missed of a topic, from any holder. PROTOCOL §9.12.

What programs need is here; it is imported once it is used.
"""
