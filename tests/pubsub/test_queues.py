"""pubsub/queues.py: what a queue gives in one go, and what waits with it."""

from kcast.pubsub.audience import LARGE
from kcast.pubsub.queues import (
    CHUNK_ADDRESSES,
    COPY_COST_BYTES,
    JOINED_BYTES_MAX,
    QUANTUM_BYTES,
    Parcel,
)

AUDIENCE = [("10.0.0.1", port) for port in range(1, 4 * LARGE)]


def chunks_of(parcel: Parcel) -> list[tuple[int, int]]:
    """How many subscribers each chunk has, and what waited for them."""
    parcel.audience = AUDIENCE
    found = []
    while not parcel.is_done:
        chunk, backlog_bytes = parcel.take_chunk()
        found.append((len(chunk), backlog_bytes))
    return found


def test_a_chunk_of_a_long_parcel_costs_no_more_than_a_quantum() -> None:
    for size_bytes, largest in ((100, CHUNK_ADDRESSES), (3000, 40), (JOINED_BYTES_MAX, 3), (200_000, 1)):
        found = chunks_of(Parcel(b"t", b"m" * size_bytes, 0, 1, 1_000_003))
        assert max(count for count, _ in found) == largest
        assert largest == 1 or largest * (size_bytes + COPY_COST_BYTES) <= QUANTUM_BYTES
        assert sum(count for count, _ in found) == len(AUDIENCE)
        assert sum(backlog_bytes for _, backlog_bytes in found) == 1_000_003


def test_what_has_begun_is_joined_with_nothing() -> None:
    parcel, other = (Parcel(b"t", b"t %d\n" % number, 0, 1, 10) for number in range(2))
    assert parcel.join(other)
    assert (parcel.data, parcel.line_count, parcel.backlog_bytes) == (b"t 0\nt 1\n", 2, 20)
    assert not parcel.join(Parcel(b"t", b"m" * JOINED_BYTES_MAX, 0, 1, 10))
    parcel.audience = AUDIENCE
    assert not parcel.join(other)
