"""Clocks and ids of entries, and the attributes that carry them. Sans-IO. PROTOCOL §9.12.

An entry's clock `c` is more than those of its parents, and near the time of day. Its id begins with its
clock, so ids sort by time, and ancestors before their descendants; as bytes and as text alike.
"""

from binascii import Error, a2b_base64, b2a_base64
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

CLOCK_BYTES = 8
ID_BYTES = 24
CLOCK_CHARS = 11
ID_CHARS = 32
PARENTS_MAX = 4
CLOCK_MIN, CLOCK_MAX = 1 << 49, (1 << 56) - 1  # what takes 8 bytes: from 1987 to 4253, in us since 1970
AHEAD_S = 60.0  # how far ahead of this clock an entry's may be
BACK_S = 86_400.0  # how long ago the clock of one may be that comes live

BEGIN = "-"  # a bound that is before all ids
END = "~"  # and one that is after them

_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_ORDERED = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_TO_ORDERED = bytes.maketrans(_STANDARD, _ORDERED)
_FROM_ORDERED = bytes.maketrans(_ORDERED + b"+/=", _STANDARD + b"!!!")


class Stamp(NamedTuple):
    """What an entry says of its place: its clock in us since 1970, and the ids of its parents, as bytes."""

    clock: int
    parents: Sequence[bytes]


def varint(number: int) -> bytes:
    """Returns a number of at most 56 bits so that bytes sort as numbers do: in front as many 1 bits as
    bytes follow the first, then a 0."""
    size = max(1, -(-number.bit_length() // 7))
    return (number | (0xFF00 >> size - 1 & 0xFF) << 8 * (size - 1)).to_bytes(size, "big")


def to_text(data: bytes) -> str:
    """Returns ordered base64: text sorts as the bytes do. Bits that are left over are 0."""
    return b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_ORDERED).decode("ascii")


def from_text(text: str) -> bytes | None:
    """Reads a clock or ids in ordered base64; None where they are not what `to_text` writes."""
    padding = b"=" if len(text) % 4 == 3 else b""
    try:
        data = a2b_base64(text.encode().translate(_FROM_ORDERED) + padding, strict_mode=True)
    except Error:
        return None
    return data if to_text(data) == text else None


def id_of(clock: int, wire_topic: bytes, message: bytes) -> bytes:
    """Returns the id of a message with this clock on a topic, as 24 bytes."""
    digest = blake2b(b"%b\n%b" % (wire_topic, message), digest_size=16, person=b"kcastid1")
    return varint(clock) + digest.digest()


def clock_of(entry_id: bytes) -> int:
    """Returns the clock in an id, in us since 1970."""
    return int.from_bytes(entry_id[1:CLOCK_BYTES], "big")


def clock_text(clock: int) -> str:
    """Returns a clock as text, which is also a bound: the ids from this clock on."""
    return to_text(varint(clock))


def parse_clock(text: str) -> int | None:
    """Reads a clock; None where it is none of 8 bytes."""
    data = from_text(text) if len(text) == CLOCK_CHARS else None
    return None if data is None or data[0] != 0xFE or (clock := clock_of(data)) < CLOCK_MIN else clock


def parse_id(text: str) -> bytes | None:
    """Reads an id; None where it is none."""
    data = from_text(text) if len(text) == ID_CHARS else None
    return None if data is None or data[0] != 0xFE or clock_of(data) < CLOCK_MIN else data


def attributes_of(stamp: Stamp) -> dict[str, str]:
    """Returns the attributes `c` and `p` of an entry."""
    found = {"c": clock_text(stamp.clock)}
    if stamp.parents:
        found["p"] = to_text(b"".join(stamp.parents))
    return found


def read_stamp(attributes: Mapping[str, str]) -> Stamp | None:
    """Returns what a message says of its place, or None where that cannot be: a form that is none, parents
    that are not before it, five of them, or one twice. It is for messages that have `c`."""
    clock, text = parse_clock(attributes["c"]), attributes.get("p", "")
    data = from_text(text)
    if clock is None or data is None or len(data) % ID_BYTES or len(data) > PARENTS_MAX * ID_BYTES:
        return None
    parents = [data[at : at + ID_BYTES] for at in range(0, len(data), ID_BYTES)]
    are_before = all(each[0] == 0xFE and CLOCK_MIN <= clock_of(each) < clock for each in parents)
    is_named = text or "p" not in attributes
    return Stamp(clock, parents) if are_before and is_named and len(set(parents)) == len(parents) else None


def next_clock(unix_s: float, last: int, parents: Sequence[bytes]) -> int:
    """Returns the clock of an entry that is made now: the time of day, but more than `last`, its author's
    last, and than those of its parents."""
    return max(int(unix_s * 1e6), last + 1, *(clock_of(each) + 1 for each in parents), CLOCK_MIN)


def choose_parents(heads: Sequence[bytes], unix_s: float, ahead_s: float = AHEAD_S) -> list[bytes]:
    """Returns the newest of some heads in order, 4 at most, newest first. Those are left out that are further
    ahead than half of what is accepted: else one wrong clock would draw all others after it."""
    until = bisect_right(heads, int((unix_s + ahead_s / 2) * 1e6), key=clock_of)
    return [*reversed(heads[max(0, until - PARENTS_MAX) : until])]
