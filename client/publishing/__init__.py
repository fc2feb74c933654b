"""How a publish leaves: `publications` draws servers, and gives the line to their sessions. Sans-IO.

`batches` does so for many messages with one outcome, and `waiters` has the futures of outcomes.
"""
