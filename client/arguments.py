"""Options of a client's methods, as programs import them. They live in `client/driving/arguments.py`."""

from kcast.client.driving.arguments import CoverOptions, PublishOptions, ReadOptions, WriteOptions

__all__ = ["CoverOptions", "PublishOptions", "ReadOptions", "WriteOptions"]
