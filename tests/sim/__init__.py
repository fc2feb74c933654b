"""A simulated network with virtual time, the project's cores on it, and checkers of what must always hold.

options.py    what one seed stands for
network.py    virtual time, and datagrams that are lost, doubled, delayed, joined, forged
hosts.py      a core and the turn its driver makes, on a machine that may be stopped or crash
ledger.py     what an outside observer of the wire knows: cookies, leases, messages
checkers.py   the invariants, each a small class that raises InvariantViolation
attacker.py   forged and replayed traffic
world.py      all of these together, stepped
scenario.py   a whole run: load, faults, healing, liveness
"""
