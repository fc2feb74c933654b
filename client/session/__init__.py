"""A client's dealings with one server: `session` is the whole of them, made of the others. Sans-IO.

The life of a lease is in `leases`. `lease_requests` asks for what is due, `stamps` pays for it within an
`allowance`, and `credit` asks for more copies. Lines to publish wait in `outbox`; what was asked and has no
answer yet is in `requests`. `control` says when something is asked, `liveness` whether the server is alive.
"""
