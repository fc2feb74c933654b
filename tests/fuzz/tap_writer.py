"""Taps as they are written: what was told is read back, and so are the leases that stand. docs/tap.md."""

import io
from unittest.mock import patch

from xxhash import xxh3_64_digest

from kcast.pubsub import tap_format
from kcast.pubsub.endpoint import Address, LeaseChange
from kcast.pubsub.tap_format import (
    RECORD_ROOM_BYTES,
    Clock,
    Continued,
    Encoder,
    End,
    FileHead,
    Lost,
    Record,
    Standing,
    TapBurst,
    TapLease,
    decode,
)
from tests.fuzz.script import Script

SOURCES: tuple[Address, ...] = (("192.0.2.1", 1), ("192.0.2.1", 65535), ("2001:db8::1", 1000), ("::1", 0))
CHANGES = tuple(LeaseChange)
STANDING_BYTES_MAX = (0, 60, 1_000)
NUMBERS_MAX = 3  # so that numbering often begins again


def check(data: bytes) -> None:
    """Takes bytes as a script of what a server tells its tap."""
    with patch.object(tap_format, "NUMBERS_MAX", NUMBERS_MAX):
        _Writer(Script(data)).run()


class _Writer:
    """An encoder, and what is to be read in the file that it writes."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.standing_bytes_max = script.choice(STANDING_BYTES_MAX)
        self.encoder = Encoder(
            boot_id=b"boot-id.",
            addresses=SOURCES[:2],
            clock_id="c",
            standing_bytes_max=self.standing_bytes_max,
        )
        self.time = 1
        self.parts = self.told = 0
        self.standing: dict[tuple[bytes, Address], None] = {}
        self.expected: list[Record] = []
        self.begin()

    def run(self) -> None:
        while self.script.has_more:
            self.time += self.script.byte()
            before = len(self.encoder.buffer)
            self.step()
            assert len(self.encoder.buffer) - before <= RECORD_ROOM_BYTES
        self.encoder.end(self.clock, 7)
        self.finish(End(self.clock, self.told, 7))

    @property
    def clock(self) -> Clock:
        return Clock(self.time, self.time + 1_000)

    def step(self) -> None:
        script, encoder = self.script, self.encoder
        match script.byte() % 6:
            case 0 | 1:
                source, topic = script.choice(SOURCES), script.text()
                lines = [script.text() for _ in range(script.byte() % 4)]
                encoder.burst(float(self.time), source, topic, lines)
                digests = tuple(map(xxh3_64_digest, lines))
                self.expected.append(TapBurst(self.time * 10**9, source, topic, digests))
                self.told += 1
            case 2:
                lease = change, topic, address = script.choice(CHANGES), script.text(), script.choice(SOURCES)
                encoder.lease(float(self.time), *lease)
                self.expected.append(TapLease(self.time * 10**9, *lease))
                self.told += 1
                self.follow(change, topic, address)
            case 3:
                lost = Lost(self.time, self.time + 1, script.byte(), script.byte())
                change, topic, address = script.choice(CHANGES), script.text(), script.choice(SOURCES)
                encoder.follow(change, topic, address)
                self.follow(change, topic, address)
                encoder.lost(lost)
                self.expected.append(lost)
                encoder.standing(self.time)
                self.expected.append(self.standing_now())
            case 4:
                encoder.clock(self.clock)
                self.expected.append(self.clock)
            case _:
                encoder.continued(self.clock)
                self.finish(Continued(self.clock))
                self.begin()

    def begin(self) -> None:
        self.encoder.begin_file(self.clock)
        assert len(self.encoder.buffer) <= self.encoder.head_bytes + 12
        head = FileHead(b"boot-id.", self.parts, self.clock, "c", "xxh3-64", SOURCES[:2])
        self.parts += 1
        self.expected = [head, self.standing_now()]

    def finish(self, last: Record) -> None:
        assert self.encoder.file_bytes == len(self.encoder.buffer)
        assert list(decode(io.BytesIO(self.encoder.take()))) == [*self.expected, last]

    def follow(self, change: LeaseChange, topic: bytes, address: Address) -> None:
        if change is LeaseChange.OPENED:
            self.standing.setdefault((topic, address))
        else:
            self.standing.pop((topic, address), None)

    def standing_now(self) -> Standing:
        """The leases that stand, as far as there is room for them: a lease takes its texts and 5 bytes."""
        listed: list[tuple[bytes, Address]] = []
        room = self.standing_bytes_max
        for topic, address in self.standing:
            room -= len(topic) + len(address[0]) + 5
            if room < 0:
                break
            listed.append((topic, address))
        return Standing(self.time, tuple(listed), len(self.standing) - len(listed))
