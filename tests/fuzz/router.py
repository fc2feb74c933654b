"""A router: what it says of bursts, and how it packs them, is what PROTOCOL §4.3 says line by line."""

from kcast.pubsub.router import PYTHON, Many
from tests.support.naive_router import RouteTable, check_packer, check_survey

HEAD_BYTES = 2
ADDRESSES = [("192.0.2.1", port) for port in range(1, 5)]
ROUTES = RouteTable({
    b"t": (ADDRESSES[0], ADDRESSES[1]), b"u": (ADDRESSES[1],), b"v": tuple(ADDRESSES),
    b"w": (ADDRESSES[0], ADDRESSES[1]), b"many": Many(3), b"%20": (ADDRESSES[2],),
})  # fmt: skip


def check(data: bytes) -> None:
    """Takes a byte for the datagrams' length, one for the most lines of each, and what arrives."""
    if len(data) <= HEAD_BYTES:
        return
    segment_bytes, lines_max, burst = 1 + data[0], 2 + data[1] % 63, data[HEAD_BYTES:]
    if not check_survey(PYTHON, burst, segment_bytes, lines_max, ROUTES):
        return
    texts = [burst[start : start + segment_bytes] for start in range(0, len(burst), segment_bytes)]
    # Repeated, so that it fills some datagrams.
    texts = [text * (1 + data[1] // 63 * 10) for text in texts]
    check_packer(PYTHON.make_packer(), texts, ROUTES, b"\n" if data[1] & 1 else b"")
