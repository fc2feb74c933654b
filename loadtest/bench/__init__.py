"""What `kcast bench` does: messages a second, latency, loss and cost, on this machine or on a cluster.

plan -> servers, unless a cluster is named -> workers: publishers and subscribers -> figures -> report
"""
