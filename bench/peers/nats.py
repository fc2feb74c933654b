"""The client protocol of NATS, as much of it as the load takes."""

from collections.abc import Sequence

_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"tls_required":false,"lang":"bench","version":"1"}\r\n'


class Nats:
    """Publishes without an acknowledgement, as clients of NATS do unless told otherwise."""

    question, reply = b"PING\r\n", b"PONG\r\n"  # it wants to know the round-trip time

    def publish(self, topic: bytes, payload: bytes) -> bytes:
        return b"PUB %b %d\r\n%b\r\n" % (topic, len(payload), payload)

    def copy(self, topic: bytes, payload: bytes) -> bytes:
        return b"MSG %b %b %d\r\n%b\r\n" % (topic, _subscription(topic), len(payload), payload)

    def greetings(self, topics: Sequence[bytes]) -> list[bytes]:
        subscribes = (b"SUB %b %b\r\n" % (topic, _subscription(topic)) for topic in topics)
        return [_CONNECT + b"".join(subscribes) + b"PING\r\n"]

    def answer(self, topics: Sequence[bytes], step: int) -> bytes:
        return b"PONG\r\n"


def _subscription(topic: bytes) -> bytes:
    """A subscription's id; all are equally long, as copies must be."""
    return topic[1:]
