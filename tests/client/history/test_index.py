"""client/history/index.py beside plain sorted lists."""

from hashlib import blake2b
from random import Random

from kcast.client.history.ids import clock_text, from_text, id_of, to_text
from kcast.client.history.index import (
    HIGHEST,
    LOWEST,
    Block,
    Heads,
    Index,
    bound_between,
    bound_text,
    parse_bound,
)

BASE = 1_790_000_000_000_000


def some_id(rng: Random) -> bytes:
    return id_of(BASE + rng.randrange(100_000), b"t", rng.randbytes(4))


def block_of(ids: list[bytes]) -> Block:
    """PROTOCOL's words, word for word."""
    total = sum(int.from_bytes(blake2b(each, digest_size=32).digest(), "big") for each in ids) % 2**256
    data = len(ids).to_bytes(8, "big") + total.to_bytes(32, "big")
    return Block(len(ids), blake2b(data, digest_size=12, person=b"kcastfp1").digest())


def test_it_is_a_sorted_list() -> None:
    rng = Random(1)
    start = [some_id(rng) for _ in range(700)]
    index, plain = Index(start), set(start)
    for step in range(6000):
        each = rng.choice(sorted(plain)) if plain and rng.random() < 0.3 else some_id(rng)
        if rng.random() < (0.4 if step < 3000 else 0.75):
            assert index.remove(each) == (each in plain)
            plain.discard(each)
        else:
            assert index.add(each) == (each not in plain)
            plain.add(each)
        assert len(index) == len(plain) and index.first == min(plain, default=None)
        if step % 100 == 0:
            lo, hi = sorted(rng.choice([some_id(rng), LOWEST, HIGHEST, *plain]) for _ in range(2))
            inside = sorted(each for each in plain if lo <= each < hi)
            assert list(index.ids(lo, hi)) == inside
            assert index.last_before(hi) == max((each for each in plain if each < hi), default=None)
            assert index.count(lo, hi) == len(inside) and index.block(lo, hi) == block_of(inside)
            assert (each in index) == (each in plain)
            parts = rng.choice((1, 2, 7, 24))
            bounds = index.bounds(lo, hi, parts)
            counts = [index.count(low, high) for low, high in zip([lo, *bounds], bounds, strict=False)]
            assert bounds == sorted(set(bounds)) and bounds[-1] == hi and sum(counts) == len(inside)
            assert len(inside) < parts or (len(bounds) == parts and max(counts) - min(counts) <= 1)


def test_bounds_are_prefixes_of_text() -> None:
    rng = Random(2)
    for bound, text in ((LOWEST, "-"), (HIGHEST, "~")):
        assert bound_text(bound) == text and parse_bound(text) == bound
    for _ in range(300):
        one, other = sorted((some_id(rng), some_id(rng)))
        bound = bound_between(one, other)
        text = bound_text(bound)
        assert one < bound <= other and parse_bound(text) == bound and to_text(other).startswith(text)
        assert to_text(one)[: len(text) - 1] == text[:-1], "a shorter one does not part them"
    hour = parse_bound(clock_text(BASE))
    assert hour is not None and hour <= id_of(BASE, b"", b"") and hour > id_of(BASE - 1, b"", b"")
    assert [parse_bound(each) for each in ("", "-" * 33, "a~", "+", "é")] == [None] * 5
    assert from_text(bound_text(LOWEST).ljust(32, "-")) == LOWEST


def test_heads_are_nobodys_parents_in_whatever_order_they_come() -> None:
    rng = Random(3)
    made: list[tuple[bytes, list[bytes]]] = []
    for number in range(40):
        known = [each for each, _ in made]
        made.append((id_of(BASE + number, b"t", b""), rng.sample(known, min(len(known), rng.randrange(4)))))
    wanted = {each for each, _ in made} - {parent for _, parents in made for parent in parents}
    for _ in range(20):
        heads, come = Heads(), set[bytes]()
        for each, parents in rng.sample(made, len(made)):
            heads.add(each, parents, [parent for parent in parents if parent not in come])
            come.add(each)
        assert heads.ids == sorted(wanted)
    heads.rise(made[-1][0])
    assert heads.ids == [made[-1][0]]
    later = id_of(BASE + 50, b"t", b"")
    heads.add(later, [made[0][0], made[1][0]], [made[0][0], made[1][0]])
    heads.add(made[0][0], [], [])
    assert heads.ids == [made[-1][0], later], "a parent that comes late"
    heads.rise(later)
    heads.add(made[1][0], [], [])
    assert heads.ids == [made[1][0], later], "what is below a floor is not remembered"
