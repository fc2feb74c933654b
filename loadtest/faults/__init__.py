"""Faults of a load test, by plan and seed: outages, clients that know few servers, impaired datagrams."""
