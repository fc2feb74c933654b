"""A simulated network with virtual time, the project's cores on it, and checkers of what must always hold.

options.py    what one seed stands for
network.py    virtual time, and datagrams that are lost, doubled, delayed, joined, forged
hosts.py      a core and the turn its driver makes, on a machine that may be stopped or crash
ledger.py     what an outside observer of the wire knows: cookies, leases, messages
checker.py    what an invariant is: a small class that raises InvariantViolation
checkers.py   the invariants of datagrams, tables and delivery, and the list of all
forwarding.py those of copies: to whom, what, and that none is missing
credits.py    a naive account of what each address was sent without a sign of life
admission.py  those of what a server lets in: limits, rates, work, leases, draining
restarts.py   that of rolling restarts
restraint.py  those of what clients never do, whatever servers say
taps.py       that of what a server reports
saboteurs.py  cores that do wrong, so that each checker has something to find
attacker.py   forged and replayed traffic
hostile.py    servers that lie
rogues.py     clients that want what is not theirs
crowd.py      many clients that come and go, and some that want too much
world.py      all of these together, stepped
scenario.py   a whole run: load, faults, healing, liveness
"""
