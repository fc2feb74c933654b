"""How a copy becomes a delivery: `deliveries` takes bursts, `dedup` knows first copies, `gaps` what lacks.

`subscriptions` says at which servers leases are wanted; `order` puts deliveries in order. Sans-IO.
"""
