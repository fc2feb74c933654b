"""Redis' protocol (RESP), as much of it as the load takes."""

from collections.abc import Sequence


class Redis:
    """Publishes after CLIENT REPLY OFF, so that Redis need not answer each, which none of the others does."""

    question = reply = b""

    def publish(self, topic: bytes, payload: bytes) -> bytes:
        return _array(b"PUBLISH", topic, payload)

    def copy(self, topic: bytes, payload: bytes) -> bytes:
        return _array(b"message", topic, payload)

    def greetings(self, topics: Sequence[bytes]) -> list[bytes]:
        if topics:
            return [_array(b"SUBSCRIBE", *topics)]
        return [_array(b"PING"), _array(b"CLIENT", b"REPLY", b"OFF")]

    def answer(self, topics: Sequence[bytes], step: int) -> bytes:
        if topics:
            # One for each, with the number of subscriptions so far.
            return _array(b"subscribe", topics[-1]).replace(b"*2", b"*3") + b":%d\r\n" % len(topics)
        return (b"+PONG\r\n", b"")[step]


def _array(*strings: bytes) -> bytes:
    return b"*%d\r\n" % len(strings) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in strings)
