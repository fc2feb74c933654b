"""See `kcast.pubsub.inlet`, which has what this does in Python."""

from kcast.pubsub.endpoint import Burst

def receive(
    descriptor: int, bursts_max: int, bytes_max: int, is_joining: bool, make_burst: type[Burst], /
) -> tuple[list[Burst], int, int]: ...
