"""A client's dealings with one server: `session` is the whole of them, made of the others. Sans-IO.

A lease lives in `leases`; `lease_requests` asks for it, `stamps` and `allowance` pay for it. Lines to publish
wait in `outbox`. What was asked and has no answer yet is in `requests`.
"""
