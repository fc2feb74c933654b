"""kcast beside brokers: the same load for each server, and the same task for each client, in one run."""
