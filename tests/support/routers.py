"""The routers there are: the native one only where it was built."""

from kcast.pubsub.native import NATIVE
from kcast.pubsub.router import PYTHON, Router

ROUTERS: dict[str, Router] = {"python": PYTHON} | ({} if NATIVE is None else {"native": NATIVE})
