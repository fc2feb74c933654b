"""History: what one missed of a topic, from any holder. PROTOCOL §9.12.

`log` is what a client runs of it, `guard` gives it messages, `sync` is what it says to other holders,
`store` what it has on disk, `entries` what programs see, `epochs` the logs of a sealed topic as one.
"""
