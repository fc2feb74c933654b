"""The format of tap files: the encoder and the decoder. Sans-IO. docs/tap.md describes it.

A tap file says what a server took in and who held leases, so that the leg on which a message was lost can be
found. Writing it must cost very little. It must be readable up to the point where it was cut, and readable
alone, since the files before it may be gone. So a record is a type, a length and fields at fixed places;
addresses and topics are written once per file, and are numbers from then on; and each file begins with the
leases that stand.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from struct import Struct
from typing import BinaryIO, NamedTuple

from xxhash import xxh3_64_digest

from kcast.pubsub.endpoint import Address, LeaseChange
from kcast.pubsub.errors import KcastError
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

MAGIC = b"\x89kcast\r\n"  # not text; whatever converts it as text destroys it
VERSION = 1
DIGEST_NAME = "xxh3-64"
DIGEST_BYTES = 8
BOOT_ID_BYTES = 8

NUMBERS_MAX = 65_536  # of addresses, and of topics, before numbering starts again: two bytes
NUMBERED_BYTES_MAX = 8 * 1024 * 1024  # total length of the topics that have numbers
LINES_PER_RECORD_MAX = 4096
SERVER_ADDRESSES_MAX = 64
RECORD_ROOM_BYTES = 40 * 1024  # enough for one call of `Encoder.burst` or `lease`, definitions included
CLOSING_ROOM_BYTES = 256  # enough for `lost`, `clock` and one of `end` and `continued` together

_HOST_BYTES_MAX = 255
_LEASES_PER_PIECE = 1000


class TapError(KcastError, ValueError):
    """A file is no tap file, is of an unknown version, or cannot be used as one."""


# --- Records -----------------------------------------------------------------------------------------


class Clock(NamedTuple):
    """One moment on two clocks, in ns: the monotonic clock, which all records use, and Unix time."""

    monotonic_ns: int
    wall_ns: int

    def to_wall_ns(self, time_ns: int) -> int:
        """Returns the Unix time in ns of a record's time; right unless the wall clock was set in between."""
        return time_ns - self.monotonic_ns + self.wall_ns


class FileHead(NamedTuple):
    """The first record of each file.

    `boot_id` identifies one life of a server, and `part` counts its files from 0. Files with the same
    `clock_id` come from one machine between two of its starts, so their monotonic times can be compared; ""
    is unknown.
    """

    boot_id: bytes
    part: int
    clock: Clock
    clock_id: str
    digest_name: str
    addresses: tuple[Address, ...]


class TapBurst(NamedTuple):
    """Publishes of one topic that arrived from one source: the digest of each line without LF."""

    time_ns: int
    source: Address
    topic: bytes
    digests: tuple[bytes, ...]


class TapLease(NamedTuple):
    """A lease was opened, or has ended."""

    time_ns: int
    change: LeaseChange
    topic: bytes
    address: Address


class Standing(NamedTuple):
    """All leases that stand, the longest-standing first, without the `omitted` last ones."""

    time_ns: int
    leases: tuple[tuple[bytes, Address], ...]
    omitted: int


class Lost(NamedTuple):
    """What the tap itself could not write in time: the times of the first and last record, and counts.

    `Standing` follows before any further lease change, unless the server was stopped there.
    """

    since_ns: int
    until_ns: int
    records: int
    lines: int


class Continued(NamedTuple):
    """The file was full; the server's next part continues it."""

    clock: Clock


class End(NamedTuple):
    """The server was stopped. Counts bursts and lease changes in all its files, and those lost."""

    clock: Clock
    records: int
    lost_records: int


class Cut(NamedTuple):
    """The place where a file is cut or damaged: it is whole up to byte `offset`. No record of it."""

    offset: int
    reason: str


Record = FileHead | Clock | TapBurst | TapLease | Standing | Lost | Continued | End | Cut

# Types. 0 is not used, so that a run of zeros, which a crash of the machine may leave, is no record.
_FILE_HEAD, _SOURCE, _TOPIC, _BURST, _LEASE, _STANDING = 1, 2, 3, 4, 5, 6
_LOST, _RENUMBERED, _CLOCK, _CONTINUED, _END = 7, 8, 9, 10, 11

_PREAMBLE = MAGIC + VERSION.to_bytes(4, "big")
_RECORD_HEAD = Struct(">I")  # type << 24 | length
_BURST_FIELDS = Struct(">qHH")
_BURST_OF_NONE = (_BURST << 24) + _BURST_FIELDS.size
_pack_burst = Struct(">IqHH").pack  # head and fields in one call
BURST_BYTES = Struct(">IqHH").size  # of a burst, besides its digests
_FILE_HEAD_FIELDS = Struct(f">{BOOT_ID_BYTES}sIqq")
_CLOCK_FIELDS = Struct(">qq")
_LEASE_FIELDS = Struct(">qB")
_STANDING_FIELDS = Struct(">qI")
_LOST_FIELDS = Struct(">qqQQ")
_END_FIELDS = Struct(">qqQQ")
_PORT = Struct(">H")
_HOST_HEAD = Struct(">HB")
_TOPIC_HEAD = Struct(">H")

_CHANGE_CODES = {LeaseChange.OPENED: 1, LeaseChange.EXPIRED: 2, LeaseChange.EVICTED: 3}
_CHANGES = {code: change for change, code in _CHANGE_CODES.items()}


# --- Encoder -----------------------------------------------------------------------------------------


class Encoder:
    """Turns what a server core reports into the bytes of one file after another. Remembers who has leases.

    The bytes gather in `buffer`, and `take` takes them; `file_bytes` is the file's length including them.
    `records` counts bursts and lease changes. The caller decides when a file is full: each begins with
    `begin_file` and ends with `continued` or `end`.

    A list of standing leases takes at most `standing_bytes_max`; with None no list is written. Raises
    ValueError for a boot id of a wrong length or too many addresses. For one thread at a time.
    """

    def __init__(
        self, *, boot_id: bytes, addresses: Sequence[Address], clock_id: str, standing_bytes_max: int | None
    ) -> None:
        if len(boot_id) != BOOT_ID_BYTES:
            raise ValueError(f"a boot id is {BOOT_ID_BYTES} random bytes, not {len(boot_id)}")
        if len(addresses) > SERVER_ADDRESSES_MAX:
            raise ValueError(f"{len(addresses)} addresses of one server: a tap takes {SERVER_ADDRESSES_MAX}")
        self.buffer = bytearray()
        self.records = 0
        self._boot_id = boot_id
        self._identity = _text(clock_id) + _text(DIGEST_NAME) + _addresses(addresses)
        self._standing_bytes_max = standing_bytes_max
        self._parts = 0
        self._taken_bytes = 0
        self._now = 0.0
        self._time_ns = 0
        self._sources: dict[Address, int] = {}
        self._topics: dict[bytes, int] = {}
        self._numbered_bytes = 0
        # Leases in the form of their records: 0.2 KB each, and quick to join.
        self._standing: dict[bytes, None] = {}
        self._standing_bytes = 0

    @property
    def file_bytes(self) -> int:
        """Length of the file that was begun last, in bytes."""
        return self._taken_bytes + len(self.buffer)

    @property
    def head_bytes(self) -> int:
        """An upper bound of what `begin_file` or `standing` would add now, in bytes."""
        return min(self._standing_bytes, self._standing_bytes_max or 0) + len(self._identity) + 128

    def take(self) -> bytearray:
        """Returns what has gathered, and forgets it."""
        taken, self.buffer = self.buffer, bytearray()
        self._taken_bytes += len(taken)
        return taken

    def burst(self, now: float, source: Address, topic: bytes, lines: Sequence[bytes]) -> int:
        """Records as `endpoint.Tap`, at most `LINES_PER_RECORD_MAX` lines. Returns the length of `buffer`."""
        # The hot path: every name looked up here costs.
        if now != self._now:
            self._now, self._time_ns = now, int(now * 1e9)
        try:
            source_number, topic_number = self._sources[source], self._topics[topic]
        except KeyError:
            source_number, topic_number = self._define(source, topic)
        digests = b"".join(map(xxh3_64_digest, lines))
        self.records += 1
        buffer = self.buffer
        buffer += _pack_burst(_BURST_OF_NONE + len(digests), self._time_ns, source_number, topic_number)
        buffer += digests
        return len(buffer)

    def lease(self, now: float, change: LeaseChange, topic: bytes, address: Address) -> None:
        """Records as `endpoint.Tap`."""
        lease = _lease(topic, address)
        self._follow(change, lease)
        self.records += 1
        self._put(_LEASE, _LEASE_FIELDS.pack(int(now * 1e9), _CHANGE_CODES[change]), lease)

    def follow(self, change: LeaseChange, topic: bytes, address: Address) -> None:
        """Remembers a lease change without recording it, so that the next list of leases is right."""
        self._follow(change, _lease(topic, address))

    def begin_file(self, clock: Clock) -> None:
        """Begins a file, with its head and the leases that stand. All before it must have been taken."""
        assert not self.buffer
        self._taken_bytes = 0
        self.buffer += _PREAMBLE
        fields = _FILE_HEAD_FIELDS.pack(self._boot_id, self._parts, *clock)
        self._put(_FILE_HEAD, fields, self._identity)
        self._parts += 1
        self._forget_numbers()
        self.standing(clock.monotonic_ns)

    def standing(self, time_ns: int) -> None:
        """Records the leases that stand."""
        if self._standing_bytes_max is None:
            return
        pieces, count = _fitting(self._standing, self._standing_bytes_max)
        self.buffer += _RECORD_HEAD.pack((_STANDING << 24) + _STANDING_FIELDS.size + sum(map(len, pieces)))
        self.buffer += _STANDING_FIELDS.pack(time_ns, len(self._standing) - count)
        for piece in pieces:
            self.buffer += piece

    def lost(self, what: Lost) -> None:
        """Records what was lost. Unless the file ends here, `standing` must follow."""
        self._put(_LOST, _LOST_FIELDS.pack(*what))

    def clock(self, clock: Clock) -> None:
        """Ties the records' clock to the wall clock once more."""
        self._put(_CLOCK, _CLOCK_FIELDS.pack(*clock))

    def continued(self, clock: Clock) -> None:
        """Ends a file that another file continues."""
        self._put(_CONTINUED, _CLOCK_FIELDS.pack(*clock))

    def end(self, clock: Clock, lost_records: int) -> None:
        """Ends the last file."""
        self._put(_END, _END_FIELDS.pack(*clock, self.records, lost_records))

    def _put(self, kind: int, *fields: bytes) -> None:
        payload = b"".join(fields)
        self.buffer += _RECORD_HEAD.pack((kind << 24) + len(payload)) + payload

    def _define(self, source: Address, topic: bytes) -> tuple[int, int]:
        if (
            max(len(self._sources), len(self._topics)) >= NUMBERS_MAX
            or self._numbered_bytes + len(topic) > NUMBERED_BYTES_MAX
        ):
            self._put(_RENUMBERED)
            self._forget_numbers()
        if source not in self._sources:
            self._sources[source] = len(self._sources)
            self._put(_SOURCE, _PORT.pack(source[1]), _host(source))
        if topic not in self._topics:
            self._topics[topic] = len(self._topics)
            self._numbered_bytes += len(topic)
            self._put(_TOPIC, topic[:DATAGRAM_BYTES_MAX])
        return self._sources[source], self._topics[topic]

    def _forget_numbers(self) -> None:
        self._sources.clear()
        self._topics.clear()
        self._numbered_bytes = 0

    def _follow(self, change: LeaseChange, lease: bytes) -> None:
        if change is not LeaseChange.OPENED:
            if lease in self._standing:
                del self._standing[lease]
                self._standing_bytes -= len(lease)
        elif lease not in self._standing:
            self._standing[lease] = None
            self._standing_bytes += len(lease)


def _fitting(leases: dict[bytes, None], size_bytes_max: int) -> tuple[list[bytes], int]:
    """Returns the first leases, at most that many bytes of them, in pieces, and their number."""
    pieces: list[bytes] = []
    count, left = 0, iter(leases)
    while some := list(islice(left, _LEASES_PER_PIECE)):
        piece = b"".join(some)
        if len(piece) > size_bytes_max:
            some = some[: bisect_right(list(accumulate(map(len, some))), size_bytes_max)]
            return [*pieces, b"".join(some)], count + len(some)
        pieces.append(piece)
        count += len(some)
        size_bytes_max -= len(piece)
    return pieces, count


def _host(address: Address) -> bytes:
    return address[0].encode("ascii", "backslashreplace")[:_HOST_BYTES_MAX]


def _text(text: str) -> bytes:
    encoded = text.encode("ascii", "backslashreplace")[:255]
    return bytes([len(encoded)]) + encoded


def _addresses(addresses: Sequence[Address]) -> bytes:
    packed = (_HOST_HEAD.pack(address[1], len(_host(address))) + _host(address) for address in addresses)
    return bytes([len(addresses)]) + b"".join(packed)


def _lease(topic: bytes, address: Address) -> bytes:
    host, topic = _host(address), topic[:DATAGRAM_BYTES_MAX]
    return b"%b%b%b%b" % (_HOST_HEAD.pack(address[1], len(host)), host, _TOPIC_HEAD.pack(len(topic)), topic)


# --- Decoder -----------------------------------------------------------------------------------------


class _DamageError(ValueError):
    """A record's payload does not fit its type."""


def decode(file: BinaryIO) -> Iterator[Record]:
    """Yields the records of one file: `FileHead` first, and last one of `Continued`, `End` and `Cut`.

    Takes any bytes: the file counts as cut at the first bytes that make no sense. Records of unknown types
    are skipped. Raises TapError if the file is no tap file, or of another version.
    """
    preamble = file.read(len(_PREAMBLE))
    if preamble != _PREAMBLE:
        if _PREAMBLE.startswith(preamble):
            yield Cut(0, "ends within its head")
            return
        if not preamble.startswith(MAGIC):
            raise TapError("not a tap file")
        raise TapError(
            f"a tap file of version {int.from_bytes(preamble[8:], 'big')}; only version {VERSION} is known"
        )
    offset = len(_PREAMBLE)
    numbers = _Numbers([], [])
    is_head_read = is_ended = False
    while head := file.read(_RECORD_HEAD.size):
        if is_ended:
            yield Cut(offset, "goes on after its end")
            return
        kind, length = head[0], int.from_bytes(head[1:], "big")
        payload = file.read(length) if len(head) == _RECORD_HEAD.size else b""
        if len(head) < _RECORD_HEAD.size or len(payload) < length:
            yield Cut(offset, "ends within a record")
            return
        try:
            if not kind or is_head_read == (kind == _FILE_HEAD):
                raise _DamageError
            record = _decode_record(kind, payload, numbers)
        except (_DamageError, struct.error, IndexError, UnicodeDecodeError):
            if not is_head_read:
                raise TapError("not a tap file: its head is damaged") from None
            yield Cut(offset, "damaged")
            return
        is_head_read = True
        is_ended = kind in (_CONTINUED, _END)
        offset += _RECORD_HEAD.size + length
        if record is not None:
            yield record
    if not is_ended:
        yield Cut(offset, "has no end" if is_head_read else "ends within its head")


class _Numbers(NamedTuple):
    """Addresses and topics by their numbers."""

    sources: list[Address]
    topics: list[bytes]


def _decode_record(kind: int, payload: bytes, numbers: _Numbers) -> Record | None:
    """Returns the record; None if it only defines numbers, or its type is unknown."""
    if kind == _BURST:
        time_ns, source_number, topic_number = _BURST_FIELDS.unpack_from(payload)
        if (len(payload) - _BURST_FIELDS.size) % DIGEST_BYTES:
            raise _DamageError
        digests = tuple(
            [
                payload[start : start + DIGEST_BYTES]
                for start in range(_BURST_FIELDS.size, len(payload), DIGEST_BYTES)
            ]
        )
        return TapBurst(time_ns, numbers.sources[source_number], numbers.topics[topic_number], digests)
    if kind in (_SOURCE, _TOPIC):
        _number(kind, payload, numbers)
    elif kind == _RENUMBERED:
        numbers.sources.clear()
        numbers.topics.clear()
    elif kind == _LEASE:
        time_ns, code = _LEASE_FIELDS.unpack_from(payload)
        topic, address, end = _unpack_lease(payload, _LEASE_FIELDS.size)
        if code not in _CHANGES or end != len(payload):
            raise _DamageError
        return TapLease(time_ns, _CHANGES[code], topic, address)
    elif kind == _STANDING:
        return _unpack_standing(payload)
    elif kind == _LOST:
        return Lost(*_LOST_FIELDS.unpack(payload))
    elif kind == _CLOCK:
        return Clock(*_CLOCK_FIELDS.unpack(payload))
    elif kind == _CONTINUED:
        return Continued(Clock(*_CLOCK_FIELDS.unpack(payload)))
    elif kind == _END:
        monotonic_ns, wall_ns, records, lost_records = _END_FIELDS.unpack(payload)
        return End(Clock(monotonic_ns, wall_ns), records, lost_records)
    elif kind == _FILE_HEAD:
        return _unpack_file_head(payload)
    return None


def _number(kind: int, payload: bytes, numbers: _Numbers) -> None:
    # The encoder keeps these bounds too, so no file can make a reader hold more.
    numbered_before = numbers.topics if kind == _TOPIC else numbers.sources
    if len(payload) > DATAGRAM_BYTES_MAX or len(numbered_before) >= NUMBERS_MAX:
        raise _DamageError
    if kind == _TOPIC:
        numbers.topics.append(payload)
    else:
        (port,) = _PORT.unpack_from(payload)
        numbers.sources.append((payload[_PORT.size :].decode("ascii"), port))


def _unpack_file_head(payload: bytes) -> FileHead:
    boot_id, part, monotonic_ns, wall_ns = _FILE_HEAD_FIELDS.unpack_from(payload)
    clock_id, start = _unpack_text(payload, _FILE_HEAD_FIELDS.size)
    digest_name, start = _unpack_text(payload, start)
    count, start = payload[start], start + 1
    addresses = []
    for _ in range(count):
        address, start = _unpack_address(payload, start)
        addresses.append(address)
    return FileHead(boot_id, part, Clock(monotonic_ns, wall_ns), clock_id, digest_name, tuple(addresses))


def _unpack_standing(payload: bytes) -> Standing:
    time_ns, omitted = _STANDING_FIELDS.unpack_from(payload)
    leases, start = [], _STANDING_FIELDS.size
    while start < len(payload):
        topic, address, start = _unpack_lease(payload, start)
        leases.append((topic, address))
    return Standing(time_ns, tuple(leases), omitted)


def _unpack_lease(payload: bytes, start: int) -> tuple[bytes, Address, int]:
    address, start = _unpack_address(payload, start)
    (length,) = _TOPIC_HEAD.unpack_from(payload, start)
    topic, start = _piece(payload, start + _TOPIC_HEAD.size, length)
    return topic, address, start


def _unpack_address(payload: bytes, start: int) -> tuple[Address, int]:
    port, length = _HOST_HEAD.unpack_from(payload, start)
    host, start = _piece(payload, start + _HOST_HEAD.size, length)
    return (host.decode("ascii"), port), start


def _unpack_text(payload: bytes, start: int) -> tuple[str, int]:
    text, start = _piece(payload, start + 1, payload[start])
    return text.decode("ascii"), start


def _piece(payload: bytes, start: int, length: int) -> tuple[bytes, int]:
    """Returns `length` bytes from `start` on, and where they end. Raises _DamageError if there are fewer."""
    if start + length > len(payload):
        raise _DamageError
    return payload[start : start + length], start + length
