"""The results of a load test: deliveries, causes of misses, latencies, and whether they can be trusted."""
