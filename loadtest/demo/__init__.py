"""The demo: a cluster, real text, servers killed, and what arrived held against the model."""
