"""How a list is made, signed, logged, shown to witnesses and published; and how a log is audited.

PROTOCOL §10.4, §10.6.
"""
