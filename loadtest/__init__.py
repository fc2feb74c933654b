"""Clusters to test on, faults, and the demo that holds measurement against prediction."""
