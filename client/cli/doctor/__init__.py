"""`kcast doctor`: finds out why something does not arrive, from the machine where a client is.

`seen.py` is what was observed, `findings.py` what follows from it, and `kinds.py` what to do about each. They
touch no socket. `examine.py`, `idle.py` and `machine.py` observe, `command.py` prints.
"""
