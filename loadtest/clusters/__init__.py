"""Servers to test on, behind one interface: processes, many in one process, containers."""
