"""Clusters to test on, behind one interface: servers in processes, in one process, or in containers."""
