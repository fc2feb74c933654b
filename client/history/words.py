"""What the holders of a log say to each other, as payloads. Sans-IO. PROTOCOL §9.12.

A payload is parsed once, to one of these values; None where it is malformed. `bytes` of a value is its
payload. Ids and bounds are 24 bytes here (`kcast.client.history.index`).
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

from kcast.client.history import runs as runs_of
from kcast.client.history.ids import clock_text, parse_clock, parse_id, to_text
from kcast.client.history.index import LOWEST, Block, bound_text, parse_bound
from kcast.client.history.runs import FIRST, LAST, Place, Run
from kcast.client.messages import base64url

SYNC = b"sync"
BLOCKS_MAX = 7
PARTS_MAX = 24
LINES_MAX = 512  # that a question asks for
KEEP_IDS_MAX = 16
SHORT_BYTES = 6
COUNT_MAX = 10**9 - 1

_NAME = "[0-9A-Za-z_-]{11}"
_TOKEN = "[0-9A-Za-z_-]{8}"
_COUNT = "0|[1-9][0-9]{0,8}"
_FP = "[0-9A-Za-z_-]{16}"
_BOUND = "[0-9A-Za-z_-]{1,32}|~"
_BLOCKS = re.compile(rf"({_COUNT}) ({_FP})")
_PARTS = re.compile(rf"({_BOUND}) ({_COUNT}) ({_FP})")
_HAVE = re.compile(
    rf"have ({_NAME}) ([0-9A-Za-z_-]{{11}}) ({_BOUND})((?: (?:{_COUNT}) {_FP}){{1,{BLOCKS_MAX}}})"
    rf"(?: \+ ({_COUNT}) ({_FP}))?"
)
_KEEP = re.compile(rf"keep ({_TOKEN}) ({_NAME}) ((?:[0-9A-Za-z_-]{{32}}){{1,{KEEP_IDS_MAX}}})")
_ASK = re.compile(
    rf"ask ({_TOKEN}) ({_NAME}) ({_TOKEN}|-) ({_BOUND}) ({_BOUND}) ([1-9][0-9]{{0,2}})"
    r" (?:(#)(?: ((?:[0-9A-Za-z_-]{8})+))?|([^ ]+) ([^ ]+)(?: (.+))?)"
)
_WHAT = re.compile(rf"what ({_TOKEN}) ({_NAME}) ({_TOKEN}|-) ({_BOUND}) ({_BOUND})")
_SAID_PARTS = re.compile(rf"parts ({_TOKEN})((?: (?:{_BOUND}) (?:{_COUNT}) {_FP}){{1,{PARTS_MAX}}})")
_SENT = re.compile(rf"sent ({_TOKEN}) ({_BOUND}) ({_COUNT}) ({_TOKEN})")
_KEPT = re.compile(rf"kept ({_TOKEN}) ((?:[0-9A-Za-z_-]{{8}}){{1,{KEEP_IDS_MAX}}})")


class Have(NamedTuple):
    """A holder has this: in blocks back from `hi`, a clock; `floor` is a bound, and `pinned` are the entries
    below it that it keeps. `mine` is its mailbox."""

    mine: str
    hi: int
    floor: bytes
    blocks: Sequence[Block]
    pinned: Block | None = None

    def __bytes__(self) -> bytes:
        pinned = "" if self.pinned is None else f" + {_block_text(self.pinned)}"
        blocks = " ".join(map(_block_text, self.blocks))
        floor = bound_text(self.floor)
        return f"have {self.mine} {clock_text(self.hi)} {floor} {blocks}{pinned}".encode()


class Keep(NamedTuple):
    """Who has these ids on disk?"""

    q: str
    mine: str
    ids: Sequence[bytes]

    def __bytes__(self) -> bytes:
        return f"keep {self.q} {self.mine} {to_text(b''.join(self.ids))}".encode()


class Ask(NamedTuple):
    """A question for entries from `lo` on and before `hi`, `lines_max` of them, that the asker lacks: it has
    `runs` of those from place `start` on and before `stop`; or, where `shorts` is not None, those with these
    short ids. `word` is what the holder has said to this mailbox last (`Sent`)."""

    q: str
    mine: str
    word: str
    lo: bytes
    hi: bytes
    lines_max: int
    start: Place = FIRST
    stop: Place = LAST
    runs: Mapping[str, Sequence[Run]] | str = ""  # read, and to be written
    shorts: frozenset[bytes] | None = None

    def __bytes__(self) -> bytes:
        range_ = f"{bound_text(self.lo)} {bound_text(self.hi)}"
        head = f"ask {self.q} {self.mine} {self.word} {range_} {self.lines_max}"
        if self.shorts is not None:
            return f"{head} # {base64url.encode(b''.join(sorted(self.shorts)))}".rstrip().encode()
        places = f"{runs_of.place_text(self.start)} {runs_of.place_text(self.stop)}"
        return f"{head} {places} {self.runs}".rstrip().encode()


class What(NamedTuple):
    """A question for counts and fingerprints of the parts of a range."""

    q: str
    mine: str
    word: str
    lo: bytes
    hi: bytes

    def __bytes__(self) -> bytes:
        return f"what {self.q} {self.mine} {self.word} {bound_text(self.lo)} {bound_text(self.hi)}".encode()


class Parts(NamedTuple):
    """The parts of a range in order: the upper bound of each, and what it has."""

    q: str
    parts: Sequence[tuple[bytes, Block]]

    def __bytes__(self) -> bytes:
        parts = " ".join(f"{bound_text(bound)} {_block_text(block)}" for bound, block in self.parts)
        return f"parts {self.q} {parts}".encode()


class Sent(NamedTuple):
    """That many lines were sent; all that there is before `next`."""

    q: str
    next: bytes
    lines: int
    word: str

    def __bytes__(self) -> bytes:
        return f"sent {self.q} {bound_text(self.next)} {self.lines} {self.word}".encode()


class Kept(NamedTuple):
    """Those with these short ids are on disk."""

    q: str
    shorts: frozenset[bytes]

    def __bytes__(self) -> bytes:
        return f"kept {self.q} {base64url.encode(b''.join(sorted(self.shorts)))}".encode()


Said = Have | Keep
Word = Ask | What | Parts | Sent | Kept


def short_of(entry_id: bytes, q: str) -> bytes:
    """Returns the short form of an id in a question: 6 bytes, other ones in each, so that nobody can make two
    entries that look alike."""
    return blake2b(entry_id, digest_size=SHORT_BYTES, key=q.encode()).digest()


def parse_said(payload: bytes) -> Said | None:
    """Returns what a payload on the topic `sync` says."""
    text = payload.decode("latin-1")
    if found := _HAVE.fullmatch(text):
        mine, clock, bound, blocks, count, fingerprint = found.groups()
        hi, floor = parse_clock(clock), parse_bound(bound)
        pinned = None if count is None else _block(count, fingerprint)
        if hi is None or floor is None:
            return None
        return Have(mine, hi, floor, [_block(*each) for each in _BLOCKS.findall(blocks)], pinned)
    if found := _KEEP.fullmatch(text):
        ids = [parse_id(found[3][at : at + 32]) for at in range(0, len(found[3]), 32)]
        sound = [each for each in ids if each is not None]
        return Keep(found[1], found[2], sound) if len(set(sound)) == len(ids) else None
    return None


def parse_word(payload: bytes) -> Word | None:
    """Returns what a payload in a mailbox says."""
    text = payload.decode("latin-1")
    match text[:5]:
        case "sent ":
            if (found := _SENT.fullmatch(text)) and (bound := parse_bound(found[2])) is not None:
                lines = int(found[3])
                return Sent(found[1], bound, lines, found[4]) if lines <= LINES_MAX else None
        case "kept ":
            if (found := _KEPT.fullmatch(text)) and (shorts := _shorts(found[2])) is not None:
                return Kept(found[1], shorts)
        case "what ":
            if (found := _WHAT.fullmatch(text)) and (range_ := _range(found[4], found[5])) is not None:
                return What(found[1], found[2], found[3], *range_)
        case "parts":
            return _parse_parts(text)
        case _:
            if text.startswith("ask "):
                return _parse_ask(text)
    return None


def _parse_parts(text: str) -> Parts | None:
    found = _SAID_PARTS.fullmatch(text)
    if found is None:
        return None
    parts = [(parse_bound(bound), _block(*block)) for bound, *block in _PARTS.findall(found[2])]
    sound = [(bound, block) for bound, block in parts if bound is not None]
    is_ordered = all(low < high for low, high in pairwise([LOWEST, *(bound for bound, _ in sound)]))
    return Parts(found[1], sound) if is_ordered and len(sound) == len(parts) else None


def _parse_ask(text: str) -> Ask | None:
    found = _ASK.fullmatch(text)
    if found is None:
        return None
    q, mine, word, lo, hi, most, by_shorts, short, start, stop, held = found.groups()
    range_, lines_max = _range(lo, hi), int(most)
    if range_ is None or lines_max > LINES_MAX:
        return None
    if by_shorts:
        shorts = _shorts(short or "")
        return None if shorts is None else Ask(q, mine, word, *range_, lines_max, shorts=shorts)
    first, last = runs_of.parse_place(start, FIRST), runs_of.parse_place(stop, LAST)
    runs = runs_of.parse_runs(held or "")
    if first is None or last is None or first >= last or runs is None:
        return None
    return Ask(q, mine, word, *range_, lines_max, first, last, runs)


def _range(lo: str, hi: str) -> tuple[bytes, bytes] | None:
    low, high = parse_bound(lo), parse_bound(hi)
    return (low, high) if low is not None and high is not None and low < high else None


def _shorts(text: str) -> frozenset[bytes] | None:
    data = base64url.decode(text) or b""
    shorts = frozenset(data[at : at + SHORT_BYTES] for at in range(0, len(data), SHORT_BYTES))
    return shorts if len(shorts) * SHORT_BYTES == len(data) else None


def _block_text(block: Block) -> str:
    return f"{block.entries} {base64url.encode(block.fingerprint)}"


def _block(count: str, fingerprint: str) -> Block:
    return Block(int(count), base64url.decode(fingerprint) or b"")
