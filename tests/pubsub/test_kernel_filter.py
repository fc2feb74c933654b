"""pubsub/kernel_filter.py: the filter's program, run by an interpreter of its own and by the kernel."""

import socket
import sys
from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv4Address
from random import Random

import pytest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.kernel_filter import (
    FILTER_BYTES,
    SHARE_MIN,
    SOURCES_MAX,
    KernelFilter,
    Kind,
    hash_of,
    kind_of,
)
from kcast.pubsub.sockets import set_filter
from tests.support.forms import Seeds
from tests.support.namespaces import Namespace, need_namespaces
from tests.support.packet_filter import MASK, run

KNOWN: list[Address] = [("192.0.2.7", 7400), ("198.51.100.9", 1), ("2001:db8::7", 65535), ("::1", 1000)]
STARTS = {b"%! N": Kind.VOUCH, b"%? N": Kind.REQUEST, b"%~ N": Kind.REQUEST}
STARTS |= dict.fromkeys((b"t m\n", b"\n%? N", b"%=", b"%", b"", b"\xff" * 100), Kind.LINES)


def filter_of(known: Iterable[Address] = (), seed: int = 1, **shares: float) -> KernelFilter:
    made = KernelFilter(Random(seed), passes_loopback=False)
    made.know(known)
    made.shares.update({Kind(name): share for name, share in shares.items()})
    return made


def random_sources(rng: Random, count: int) -> list[Address]:
    return [(str(IPv4Address(rng.getrandbits(32))), rng.randrange(65536)) for _ in range(count)]


def test_an_open_filter_passes_all() -> None:
    program = filter_of().program()
    assert all(run(program, source, data, MASK) for source in KNOWN for data in STARTS)


def test_servers_count_by_the_same_kinds() -> None:
    assert {data: kind_of(data) for data in STARTS} == STARTS


@pytest.mark.parametrize("data", STARTS)
def test_each_kind_has_its_share(data: bytes) -> None:
    """By chance, and for each alone."""
    stranger = "203.0.113.9", 4000
    for kind in Kind:
        made = filter_of()
        made.shares[kind] = 0.25
        program = made.program()
        for chance in (0, 2**30 - 1, 2**30, MASK):
            assert run(program, stranger, data, chance) is (kind is not STARTS[data] or chance < 2**30)


def test_known_sources_pass_always(seeds: Seeds) -> None:
    for seed in seeds(4, 20):
        rng = Random(seed)
        known = [
            *KNOWN,
            *[(f"10.{rng.randrange(256)}.{rng.randrange(256)}.1", rng.randrange(65536)) for _ in range(300)],
        ]
        program = filter_of(known, seed, vouch=SHARE_MIN, request=SHARE_MIN, lines=SHARE_MIN).program()
        assert all(run(program, source, data, MASK) for source in known for data in STARTS)


@pytest.mark.parametrize(("count", "most"), [(0, 0.0), (100, 0.02), (1000, 0.08), (SOURCES_MAX, 0.45)])
def test_few_strangers_pass_as_known(count: int, most: float) -> None:
    rng = Random(count)

    def some(number: int) -> list[Address]:
        return [
            (f"{rng.randrange(1, 224)}.{rng.randrange(256)}.7.{rng.randrange(256)}", rng.randrange(65536))
            for _ in range(number)
        ]

    program = filter_of(some(count), lines=SHARE_MIN).program()
    passed = sum(run(program, source, b"t m\n", MASK) for source in some(2000))
    assert passed <= most * 2000


def test_port_and_every_byte_of_an_address_count() -> None:
    rng = Random(3)
    for source in (("192.0.2.7", 7400), ("2001:db8:1:2:3:4:5:6", 7400)):
        family = socket.AF_INET6 if ":" in source[0] else socket.AF_INET
        packed = socket.inet_pton(family, source[0])
        others = [(source[0], source[1] ^ 1 << bit) for bit in range(16)]
        for byte in range(len(packed)):
            changed = bytearray(packed)
            changed[byte] ^= 1 << rng.randrange(8)
            others.append((socket.inet_ntop(family, changed), source[1]))
        key = rng.getrandbits(32) | 1, rng.getrandbits(32) | 1, rng.getrandbits(32) | 1
        assert hash_of(source, key) not in [hash_of(other, key) for other in others]


def test_loopback_may_pass_always() -> None:
    made = KernelFilter(Random(1), passes_loopback=True)
    made.shares[Kind.LINES] = SHARE_MIN
    assert run(made.program(), ("127.0.0.9", 1), b"t m\n", MASK)
    assert not run(made.program(), ("128.0.0.9", 1), b"t m\n", MASK)
    assert run(made.program(), ("::1", 1), b"t m\n", MASK)
    for host in ("::2", "::1:1", "0:0:1::1", "0:1::1", "1::1", "2001:db8::1"):
        assert not run(made.program(), (host, 1), b"t m\n", MASK)


def test_closing_and_opening() -> None:
    made = filter_of()
    assert made.is_open
    made.press({Kind.VOUCH: 5, Kind.LINES: 9})
    assert made.shares == {Kind.VOUCH: 1.0, Kind.REQUEST: 1.0, Kind.LINES: 0.5}
    for _ in range(20):
        made.press({Kind.LINES: 9})
    assert made.shares[Kind.LINES] == SHARE_MIN
    for _ in range(36):
        assert not made.is_open or _ > 20
        made.relax()
    assert made.is_open


def test_the_program_is_within_the_kernels_bounds() -> None:
    """BPF_MAXINSNS, and the memory for options of older kernels (20 kB)."""
    program = filter_of(KNOWN, vouch=0.5).program()
    assert len(program) // 8 <= 4096
    assert len(program) + 1024 <= FILTER_BYTES <= 20_480


def test_a_shorter_program_knows_the_same() -> None:
    rng = Random(4)
    made = filter_of(lines=SHARE_MIN)
    lengths = [len(made.program())]
    while made.shrink():
        known = [*KNOWN, *random_sources(rng, made.sources_max // 16)]
        made.know(known)
        program = made.program()
        assert all(run(program, source, b"t m\n", MASK) for source in known)
        passed = sum(run(program, source, b"t m\n", MASK) for source in random_sources(rng, 500))
        assert passed <= 0.1 * 500
        lengths.append(len(program))
    assert lengths == sorted(lengths, reverse=True) and lengths[-1] < 2048
    made.open()
    made.know(KNOWN)
    assert made.is_open and len(made.program()) == lengths[0]


@pytest.mark.parametrize(
    ("room_bytes", "takes"), [(FILTER_BYTES, True), (20_480, True), (131_072, True), (4096, False)]
)
def test_a_filter_is_replaced_where_two_do_not_fit(room_bytes: int, takes: bool) -> None:
    """Older kernels have a net.core.optmem_max of 20,480: one filter fits, two do not."""
    need_namespaces()
    with Namespace() as namespace:
        namespace.set("net/core/optmem_max", room_bytes)
        with namespace.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
            namespace.call(lambda: sock.bind(("127.0.0.1", 0)))
            sock.setblocking(False)

            def arrives() -> bool:
                sock.sendto(b"t m\n", sock.getsockname())
                try:
                    return sock.recv(10) == b"t m\n"
                except BlockingIOError:
                    return False

            strict, mild = filter_of(lines=SHARE_MIN), filter_of([sock.getsockname()], lines=SHARE_MIN)
            for _ in range(5):
                assert set_filter(sock, strict.program()) is takes
                assert sum(arrives() for _ in range(20)) < 5 if takes else arrives()
                assert set_filter(sock, mild.program()) is takes
                assert all(arrives() for _ in range(20))
            # Another one that the kernel refuses leaves none behind.
            namespace.set("net/core/optmem_max", 4096)
            assert not set_filter(sock, strict.program())
            assert all(arrives() for _ in range(20))


@pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_runs_it(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def bound() -> socket.socket:
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.bind((host, 0))
        return sock

    known, strangers = [bound() for _ in range(5)], [bound() for _ in range(5)]
    server = bound()
    server.setblocking(False)
    try:
        # Another hash where one of the strangers passes as known.
        for seed in range(100):
            made = filter_of(
                [each.getsockname()[:2] for each in known], seed, lines=SHARE_MIN, vouch=SHARE_MIN
            )
            program = made.program()
            if not any(run(program, each.getsockname()[:2], b"t m\n", MASK) for each in strangers):
                break
        assert set_filter(server, program)
        got: Counter[tuple[bool, bytes]] = Counter()
        for _ in range(40):
            for sock in (*known, *strangers):
                for data in STARTS:
                    sock.sendto(data, server.getsockname()[:2])
            while True:
                try:
                    data, source = server.recvfrom(200)
                except BlockingIOError:
                    break
                got[source[:2] in [each.getsockname()[:2] for each in known], data] += 1
        for data, kind in STARTS.items():
            assert got[True, data] == 200
            assert got[False, data] == 200 if kind is Kind.REQUEST else got[False, data] < 20
        assert set_filter(server, None)
        strangers[0].sendto(b"t m\n", server.getsockname()[:2])
        assert server.recv(10) == b"t m\n"
    finally:
        for sock in (server, *known, *strangers):
            sock.close()
