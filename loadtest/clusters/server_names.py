"""The names of a cluster's servers and of their tap files.

Hosts need these too, and must import little: what they import costs time and memory, and numpy would start
threads beside which they would fork.
"""

from pathlib import Path


def server_key(index: int) -> str:
    """Returns the key on the ring of the server with this number."""
    return f"server-{index + 1}"


def tap_path(folder: Path, index: int, life: int) -> Path:
    """Returns the tap file of a server's life, counted from 1."""
    return folder / f"{server_key(index)}-{life}.tap"
