"""Options of publishes, as programs import them. They live in `client/driving/arguments.py`."""

from kcast.client.driving.arguments import CoverOptions, PublishOptions, WriteOptions

__all__ = ["CoverOptions", "PublishOptions", "WriteOptions"]
