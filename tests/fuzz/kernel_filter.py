"""The filter for strangers: its program passes those whom the filter means, and others by chance alone."""

import socket
from functools import cache
from random import Random
from typing import NamedTuple

from kcast.pubsub.endpoint import Address
from kcast.pubsub.kernel_filter import WORDS, KernelFilter, Kind, hash_of, kind_of
from tests.fuzz.script import Script
from tests.support.packet_filter import MASK, run

FILTERS = 16  # that are made: each takes some milliseconds
KNOWN: list[Address] = [("192.0.2.7", 7400), ("198.51.100.9", 1), ("2001:db8::7", 65535), ("::1", 1000)]
SHARES = (1.0, 0.5, 1 / 256)


class _Made(NamedTuple):
    """A filter that knows `KNOWN`, its program, the key of its hash, and the bits that it has set."""

    shares: dict[Kind, float]
    program: bytes
    passes_loopback: bool
    key: tuple[int, int, int]
    bits: set[tuple[int, int]]


@cache
def _made(number: int) -> _Made:
    passes_loopback = bool(number % 2)
    filtering = KernelFilter(Random(number), passes_loopback=passes_loopback)
    filtering.know(KNOWN)
    for index, kind in enumerate(Kind):
        filtering.shares[kind] = SHARES[(number + index) % len(SHARES)]
    same = Random(number)
    key = (same.getrandbits(32) | 1, same.getrandbits(32) | 1, same.getrandbits(32) | 1)
    bits = {_bit_of(source, key) for source in KNOWN}
    return _Made(filtering.shares, filtering.program(), passes_loopback, key, bits)


def check(data: bytes) -> None:
    """Takes bytes as the choice of a filter, a source, what chance brings, and a datagram."""
    script = Script(data)
    made = _made(script.byte() % FILTERS)
    source = _source(script)
    chance = int.from_bytes(bytes(script.byte() for _ in range(4)), "big")
    datagram = script.text()
    share = made.shares[kind_of(datagram)]
    is_meant = _bit_of(source, made.key) in made.bits or (
        made.passes_loopback and source[0].startswith("127.")
    )
    is_lucky = share == 1.0 or chance < int(share * (MASK + 1))
    assert run(made.program, source, datagram, chance) == (is_meant or is_lucky)


def _source(script: Script) -> Address:
    match script.byte() % 3:
        case 0:
            return script.choice(KNOWN)
        case 1:
            host = socket.inet_ntop(socket.AF_INET, bytes(script.byte() for _ in range(4)))
        case _:
            host = socket.inet_ntop(socket.AF_INET6, bytes(script.byte() for _ in range(16)))
    return host, script.byte() << 8 | script.byte()


def _bit_of(source: Address, key: tuple[int, int, int]) -> tuple[int, int]:
    value = hash_of(source, key)
    return value * WORDS >> 32, value % 32
