"""How lists reach a client: folders, web servers, bundles, other clients; at the start and while it runs.

PROTOCOL §10.8.
"""
