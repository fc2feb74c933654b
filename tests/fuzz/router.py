"""The routers: what they say of bursts, and how they pack them, is what PROTOCOL §4.3 says line by line."""

from kcast.pubsub.router import Many
from tests.support.naive_router import RouteTable, check_packer, check_survey
from tests.support.routers import ROUTERS

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
    routers = ROUTERS.values()
    if not all(check_survey(each, burst, segment_bytes, lines_max, ROUTES) for each in routers):
        return
    texts = [burst[start : start + segment_bytes] for start in range(0, len(burst), segment_bytes)]
    # Repeated, so that it fills some datagrams.
    texts = [text * (1 + data[1] // 63 * 10) for text in texts]
    mark = b"\n" if data[1] & 1 else b""
    packed = [check_packer(router.make_packer(), texts, ROUTES, mark) for router in routers]
    assert packed[0] == packed[-1], "the two routers differ"
