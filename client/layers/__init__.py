"""Layers on the bus: members of a topic, requests and answers. Ordinary messages, of which servers know
nothing. PROTOCOL §9.10, §9.11.

Each is a state machine without IO, which runs in the turns of a client's engine (`kcast.client.layers.host`).
"""
