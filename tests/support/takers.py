"""What remembers and takes copies: in Python, and in native code where it was built."""

from kcast.client.receiving.native import TAKE

TAKERS: dict[str, bool] = {"python": False} | ({} if TAKE is None else {"native": True})
"""Of each kind by name, whether it is native."""
