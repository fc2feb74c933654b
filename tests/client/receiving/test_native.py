"""client/receiving/native.py and _copies.c: what they refuse, and keep; and Python takes their place."""

import gc
import subprocess
import sys
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest

from kcast.client.events import Delivery, Drop
from kcast.client.messages import envelope as enveloping
from kcast.client.messages.guard_and_writer import Told
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.receiving.native import TAKE, Numbers, Take
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from tests.fuzz import copies
from tests.support.forms import Seeds
from tests.support.takers import TAKERS
from tests.support.vector_lines import message_lines, sealed_lines

MAKE = partial(tuple.__new__, Delivery)
DATA = b"t %@p.1 m\nt %@p.1 m\nu %@q.2 n\nt %@p.3;B=1 bQ\n"


def native() -> Take:
    if TAKE is None:
        pytest.skip("native code is not built")
    return TAKE


def taken(data: bytes = DATA, at: int = 0, **other: Any) -> tuple[tuple[int, ...], list[Told], Numbers]:
    told: list[Told] = []
    given: dict[str, Any] = {
        "name_of": lambda topic: topic,
        "seen": OrderedDict(),
        "count_max": 9,
        "size_bytes_max": 10_000,
        "size_bytes": 0,
        "now": 5.0,
        "received_at_s": 6.0,
        "server": "s",
        "make": MAKE,
        "told": told,
        "numbers": {},
    } | other
    return native()(data, at, *given.values()), told, given["numbers"]


def test_it_stops_at_the_first_line_that_is_not_a_usual_one() -> None:
    found, told, numbers = taken()
    assert found == (DATA.index(b"t %@p.3"), 2 * (len(b"t %@p.1 m") + 250), 3, 1, 2)
    assert [each.payload for each in told if isinstance(each, Delivery)] == [b"m", b"n"]
    assert numbers == {(b"t", "p"): [1], (b"u", "q"): [2]}


def test_it_takes_what_python_reads_as_plain_and_leaves_what_is_signed_or_sealed() -> None:
    """PROTOCOL §9.2: of all vectors, with the same payload."""
    lines = message_lines() + sealed_lines()
    assert sum(b";g=" in line or b";S=" in line for line in lines) > 250
    plain = 0
    for line in lines:
        (stopped_at, _, taken_count, *_), told, _ = taken(line + b"\n")
        read = enveloping.read(line.partition(b" ")[2])
        if taken_count:
            (delivery,) = told
            assert isinstance(delivery, Delivery) and isinstance(read, tuple)
            assert (delivery.publisher, delivery.seq, delivery.payload, delivery.attributes) == read
            plain += 1
        else:
            assert (stopped_at, told) == (0, [])
        assert not taken_count or not (b";g=" in line or b";S=" in line)
    assert plain > 5


def test_signed_and_sealed_lines_among_others_are_taken_alike(seeds: Seeds) -> None:
    """PROTOCOL §9.6, §9.7: all that is told, counted and remembered of some datagrams."""
    for seed in seeds(6, 30):
        rng, lines = Random(seed), message_lines() + message_lines(b"u")
        proofs = [b"t " + line.partition(b" ")[2] for line in sealed_lines()]
        plain = [b"t %%@p.%d m" % number for number in range(1, 9)]
        datagrams = []
        for _ in range(copies.BURSTS_MAX):
            chosen = [rng.choice(rng.choice((lines, proofs, plain))) for _ in range(8)]
            while sum(map(len, chosen)) + len(chosen) > DATAGRAM_BYTES_MAX:
                chosen.pop()
            datagrams.append(
                b"\0" + b"".join(line + b"\n" for line in (*chosen, *chosen[:2], b"t on"))[:1200]
            )
        text = copies.BURST_END.join(each.replace(copies.BURST_END, b"") for each in datagrams)
        found = [copies.run(text, CopyFilter(is_native=each)) for each in TAKERS.values()]
        assert all(each == found[0] for each in found)
        told, _, _, drops, *_ = found[0]
        assert (
            told and isinstance(drops, dict) and drops[Drop.MALFORMED_MESSAGE] and drops[Drop.NOT_UNDERSTOOD]
        )


@pytest.mark.parametrize(
    ("data", "stops_at"),
    [
        (b"", 0),
        (b"\n\n", 2),
        (b"t %@p.1 m", 0),
        (b"\nt %@p.1 m\n\n", 12),
        (b"%20 %@p.1 m\n", 0),
        (b" %@p.1 m\n", 0),
    ],
)
def test_no_line_goes_beyond_the_text(data: bytes, stops_at: int) -> None:
    assert taken(data)[0][0] == stops_at
    assert taken(data + b"t %@p.2 n\n", len(data) + 5)[0][0] == len(data) + 5, "in the middle of a line"


def test_it_may_begin_behind_the_end() -> None:
    assert taken(at=1000)[0] == (1000, 0, 0, 0, 0)


def test_an_own_topic_is_no_users_delivery() -> None:
    found, told, _ = taken(b"t %@p.1 m\n", name_of=lambda _: b"\0own")
    assert found[2:] == (1, 0, 0) and len(told) == 1


class Broken(Exception):
    pass


def broken(*_: object) -> Any:
    raise Broken


WRONG: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"data": "text"}, TypeError),
    ({"at": -1}, ValueError),
    ({"seen": {}}, AttributeError),
    ({"seen": []}, ValueError),
    ({"told": ()}, TypeError),
    ({"numbers": []}, TypeError),
    ({"name_of": broken}, Broken),
    ({"make": broken}, Broken),
    ({"name_of": 5}, TypeError),
    ({"numbers": {(b"t", "p"): ()}}, TypeError),
    ({"count_max": 2**70}, OverflowError),
    ({"seen": OrderedDict({5: 1.0}), "count_max": 1}, TypeError),
    ({"seen": OrderedDict({b"x": 5}), "count_max": 1}, AttributeError),
]


def test_nothing_is_kept_of_what_was_taken() -> None:
    native()

    def take() -> None:
        seen: Any = OrderedDict()
        for _ in range(2):
            taken(DATA * 9, seen=seen, count_max=2)
        for given, error in WRONG:
            with suppress(error):
                taken(**given)

    take()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(5000):
        take()
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000, "Python keeps some hundred for itself"


WITHOUT = """
import sys
sys.modules["kcast.client.receiving._copies"] = None
from kcast.client.receiving import dedup, native
assert native.TAKE is None and "C compiler" in native.MISSING and dedup.CopyFilter().native is None
"""


def test_without_native_code_it_is_python_that_takes() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)


def test_the_environment_may_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    from kcast.client.receiving.native import is_allowed

    assert is_allowed()
    monkeypatch.setenv("KCAST_NATIVE", "no")
    assert not is_allowed()
