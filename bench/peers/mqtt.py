"""MQTT 3.1.1 with QoS 0, as much of it as the load takes."""

import struct
from collections.abc import Sequence

_CONNECT, _PUBLISH, _SUBSCRIBE = 0x10, 0x30, 0x82
_CONNACK, _SUBACK = b"\x20\x02\x00\x00", 0x90
_CLEAN_SESSION = 2
_PACKET_ID = struct.pack("!H", 1)


class Mqtt:
    """Publishes with QoS 0, which has no acknowledgement."""

    question = reply = b""

    def publish(self, topic: bytes, payload: bytes) -> bytes:
        return _packet(_PUBLISH, _string(topic) + payload)

    def copy(self, topic: bytes, payload: bytes) -> bytes:
        return self.publish(topic, payload)

    def greetings(self, topics: Sequence[bytes]) -> list[bytes]:
        # Level 4 is 3.1.1; no keep-alive; an empty name, for which the broker chooses one.
        connect = _packet(_CONNECT, _string(b"MQTT") + bytes((4, _CLEAN_SESSION, 0, 0)) + _string(b""))
        if not topics:
            return [connect]
        asked = b"".join(_string(topic) + b"\0" for topic in topics)
        return [connect, _packet(_SUBSCRIBE, _PACKET_ID + asked)]

    def answer(self, topics: Sequence[bytes], step: int) -> bytes:
        return (_CONNACK, _packet(_SUBACK, _PACKET_ID + bytes(len(topics))))[step]


def _string(text: bytes) -> bytes:
    return struct.pack("!H", len(text)) + text


def _packet(kind: int, rest: bytes) -> bytes:
    length, digits = len(rest), b""
    while length >= 128:
        digits += bytes((length % 128 | 128,))
        length //= 128
    return bytes((kind,)) + digits + bytes((length,)) + rest
