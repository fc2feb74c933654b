"""client/history/ids.py: clocks and ids sort as the text of PROTOCOL §9.12 says."""

from random import Random

from kcast.client.history import ids
from kcast.client.history.ids import Stamp

NOW_S = 1_790_812_800.0


def test_varints_are_those_of_the_published_vectors_and_sort_as_numbers() -> None:
    told = {127: "7f", 128: "8080", 16384: "c04000", 1398101: "d55555", 0: "00", 2**56 - 1: "fe" + 7 * "ff"}
    assert {number: ids.varint(number).hex() for number in told} == told
    rng = Random(1)
    numbers = sorted(rng.getrandbits(rng.randrange(1, 57)) for _ in range(2000))
    assert [ids.varint(number) for number in numbers] == sorted(map(ids.varint, numbers))


def test_text_sorts_as_bytes_and_has_one_form() -> None:
    rng = Random(2)
    several = sorted(rng.randbytes(24) for _ in range(500))
    assert [ids.to_text(each) for each in several] == sorted(map(ids.to_text, several))
    for each in several:
        assert ids.from_text(ids.to_text(each)) == each
    clock = "zVOQzhc_s-"
    for wrong in ("", clock, f"{clock}1", f"{clock}=", "zVOQzhc+s--", "zVOQzhc s--", "-" * 11, "z" * 12):
        assert ids.parse_clock(wrong) is None, wrong
    assert ids.parse_clock(ids.clock_text(ids.CLOCK_MIN)) == ids.CLOCK_MIN
    assert ids.parse_clock(ids.clock_text(ids.CLOCK_MIN - 1)) is None
    assert ids.parse_id("z" * 31) is None and ids.parse_id("A" * 32) is None


def test_an_id_is_of_topic_and_message_and_begins_with_its_clock() -> None:
    one = ids.id_of(1_790_000_000_000_000, b"a", b"b")
    assert ids.clock_of(one) == 1_790_000_000_000_000
    assert ids.to_text(one).startswith(ids.clock_text(1_790_000_000_000_000)[:10])
    others = [ids.id_of(1_790_000_000_000_000, *each) for each in ((b"a", b"c"), (b"ab", b""), (b"c", b"b"))]
    assert len({one, *others}) == 4


def test_what_an_entry_says_of_its_place() -> None:
    clock = 1_790_000_000_000_000
    parents = [ids.id_of(clock - 1 - number, b"t", b"%d" % number) for number in range(5)]
    for count in range(5):
        stamp = Stamp(clock, parents[:count])
        assert ids.read_stamp(ids.attributes_of(stamp)) == stamp
    good = ids.attributes_of(Stamp(clock, parents[:2]))
    assert len(good["p"]) == 64 and ids.read_stamp({"c": good["c"]}) == Stamp(clock, [])
    for wrong in (
        good | {"p": ""},
        good | {"p": good["p"][:-1]},
        good | {"p": good["p"][:32] * 2},
        good | {"p": ids.to_text(b"".join(parents))},
        good | {"c": ids.clock_text(clock - 1)},  # no more than a parent's
        good | {"c": good["c"][:-1]},
        good | {"p": "A" * 32},
    ):
        assert ids.read_stamp(wrong) is None, wrong


def test_clocks_rise_also_where_the_time_of_day_goes_back() -> None:
    assert ids.next_clock(NOW_S, last := int(NOW_S * 1e6) + 7, []) == last + 1
    assert ids.next_clock(NOW_S, 0, [ids.id_of(last, b"t", b"")]) == last + 1
    last, made = 0, list[bytes]()
    for step_s in (0.0, 0.0, 1.0, -3600.0, 0.5, 7200.0):
        last = ids.next_clock(NOW_S + step_s, last, made[-2:])
        made.append(ids.id_of(last, b"t", b"%d" % len(made)))
    assert made == sorted(made) and len({ids.clock_of(each) for each in made}) == len(made)
    assert ids.clock_of(made[-1]) == int((NOW_S + 7200) * 1e6)


def test_parents_are_the_newest_heads_that_are_not_far_ahead() -> None:
    heads = [ids.id_of(int((NOW_S + ahead_s) * 1e6), b"t", b"") for ahead_s in (-50, -4, -3, -1, 0, 29, 31)]
    chosen = ids.choose_parents(heads, NOW_S)
    assert [round(ids.clock_of(each) / 1e6 - NOW_S) for each in chosen] == [29, 0, -1, -3]
    assert ids.choose_parents(heads, NOW_S, ahead_s=1.0)[0] == heads[4]
    assert ids.choose_parents(heads[6:], NOW_S) == []
