"""See `kcast.pubsub.outlet`, which has what this does in native code."""

from kcast.pubsub.endpoint import Transmit

Place = tuple[int, int, int]

def send_all(
    descriptor: int, is_ipv6: bool, transmits: list[Transmit], place: Place, /
) -> tuple[int, Place] | None: ...
