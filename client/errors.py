"""The errors that clients raise, besides `TopicError` and `ClusterError`."""

from kcast.pubsub.errors import KcastError


class MessageTooLarge(KcastError, ValueError):
    """A message that does not fit in a datagram; the text tells its size, and how much fits."""


class Backlog(KcastError, RuntimeError):
    """Too many publishes still await their outcome: wait for some, or publish with `confirm=False`."""


class ClientClosed(KcastError, RuntimeError):
    """The client is not open: not yet, no longer, or not in this process. The text says which."""
