"""A filter that lets the kernel drop a part of what strangers send, before it costs the server anything.

In a flood the receive buffer is full, and the kernel drops what comes next, whoever sent it. Looking at junk
takes a server some microseconds for each datagram, and forged datagrams come faster. So under pressure a
classic BPF program on the socket (bpf(2), no privileges needed) decides first. Datagrams from known sources
all pass. Of strangers' each of three classes has a share that passes by chance, so that a flood of one class
leaves newcomers the others.

The program has no maps. Known sources are in a Bloom filter (Bloom, 1970) with one hash function, written out
as instructions: a binary tree finds the word of a source, and the word has its bit. With n sources the share
of strangers that pass as known is 1 - exp(-n / 16384): 6 % for 1000. Where the kernel has no room for so long
a program, a shorter one has fewer words. The hash is keyed anew each time, so nobody can find sources that
always pass.

`kcast.pubsub.flood` decides when it is needed.
"""

import struct
from collections.abc import Iterable, Mapping
from enum import StrEnum
from ipaddress import ip_address
from random import Random

from kcast.pubsub.endpoint import Address

WORDS = 512  # of 32 bits: about 2,100 instructions, of 4,096 at most
WORDS_MIN = 32
SOURCES_PER_WORD = 16  # with so many, more than a third of the strangers pass
SOURCES_MAX = WORDS * SOURCES_PER_WORD
FILTER_BYTES = 18_000  # what the kernel takes of net.core.optmem_max for the program, at most
SHARE_MIN = 1 / 1024
RELAX_FACTOR = 1.25

_MASK = 0xFFFFFFFF
_INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter, <linux/filter.h>

# Operations, <linux/bpf_common.h>.
_LD_HALF, _LD_BYTE, _LD_WORD = 0x28, 0x30, 0x20  # absolute
_LD_CONST, _LD_LENGTH, _LD_MEMORY, _LDX_MEMORY = 0x00, 0x80, 0x60, 0x61
_STORE, _STORE_X, _TO_X = 0x02, 0x03, 0x07
_MUL, _XOR_X, _SHIFT_RIGHT, _SHIFT_RIGHT_X, _AND = 0x24, 0xAC, 0x74, 0x7C, 0x54
_JUMP, _IF_EQUAL, _IF_AT_LEAST, _IF_AT_LEAST_X = 0x05, 0x15, 0x35, 0x3D
_RETURN = 0x06

_NETWORK = 0xFFF00000  # SKF_NET_OFF: offsets from here on are into the IP header
_RANDOM = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM
_HASH, _BIT, _SHARE = 0, 1, 2  # memory of the program
_UDP_HEADER_BYTES = 8


class Kind(StrEnum):
    """What a stranger's datagram begins with."""

    VOUCH = "vouch"
    REQUEST = "request"
    LINES = "lines"


def kind_of(datagram: bytes) -> Kind:
    """Returns the kind of a datagram, as the program tells it."""
    if datagram.startswith(b"%!"):
        return Kind.VOUCH
    return Kind.REQUEST if datagram.startswith((b"%?", b"%~")) else Kind.LINES


class KernelFilter:
    """Which share of strangers' datagrams of each kind passes, and the program that lets them.

    `random` keys the hash. With `passes_loopback` loopback sources always pass.
    """

    def __init__(self, random: Random, *, passes_loopback: bool) -> None:
        self.shares = dict.fromkeys(Kind, 1.0)
        self.is_open = True
        """Whether everything passes."""
        self._random = random
        self._passes_loopback = passes_loopback
        self._words_wanted = WORDS
        self._words = WORDS  # in the tree
        self._key = (1, 1, 1)
        self._tree = _tree([0] * WORDS)
        self._coming_key, self._coming = self._key, [0] * WORDS  # of the next program

    def press(self, arrived: Mapping[Kind, int]) -> None:
        """Halves the share of the kind of which most has arrived lately."""
        kind = max(Kind, key=lambda kind: arrived.get(kind, 0))
        self.shares[kind] = max(SHARE_MIN, self.shares[kind] / 2)
        self.is_open = False

    def relax(self) -> None:
        """Lets a little more pass."""
        for kind, share in self.shares.items():
            self.shares[kind] = min(1.0, share * RELAX_FACTOR)
        self.is_open = all(share == 1.0 for share in self.shares.values())

    @property
    def sources_max(self) -> int:
        """How many sources `know` can tell from others."""
        return self._words_wanted * SOURCES_PER_WORD

    def shrink(self) -> bool:
        """Halves the program from the next `know` on. Returns False if it cannot get shorter."""
        if self._words_wanted == WORDS_MIN:
            return False
        self._words_wanted //= 2
        return True

    def open(self) -> None:
        """Lets everything pass. The next `know` makes a program of the full length again."""
        self.shares = dict.fromkeys(Kind, 1.0)
        self.is_open = True
        self._words_wanted = WORDS

    def know(self, sources: Iterable[Address]) -> None:
        """Lets all pass from these sources, and no longer all from others."""
        self.begin()
        self.add(sources)
        self.complete()

    def begin(self) -> None:
        """Begins to take the known sources anew, by `add`. Until `complete` the program stays as it is."""
        first, second, third = (self._random.getrandbits(32) | 1 for _ in range(3))
        self._coming_key = first, second, third
        self._coming = [0] * self._words_wanted

    def add(self, sources: Iterable[Address]) -> None:
        """Takes some of the known sources."""
        words, key = self._coming, self._coming_key
        for source in sources:
            value = hash_of(source, key)
            words[value * len(words) >> 32] |= 1 << (value & 31)

    def complete(self) -> None:
        """Lets all pass from the sources that were added, and no longer all from others."""
        self._key, self._words = self._coming_key, len(self._coming)
        self._tree = _tree(self._coming)

    def program(self) -> bytes:
        """Returns the instructions of the filter, for SO_ATTACH_FILTER."""
        first, second, third = self._key
        code = _Code()
        # The class of the datagram, by its first two bytes; those of less have none.
        code.add(_LD_LENGTH)
        code.branch(_IF_AT_LEAST, _UDP_HEADER_BYTES + 2, "long", "lines")
        code.mark("long")
        code.add(_LD_HALF, _UDP_HEADER_BYTES)
        code.branch(_IF_EQUAL, int.from_bytes(b"%!", "big"), "vouch", "no vouch")
        code.mark("no vouch")
        code.branch(_IF_EQUAL, int.from_bytes(b"%?", "big"), "request", "no ask")
        code.mark("no ask")
        code.branch(_IF_EQUAL, int.from_bytes(b"%~", "big"), "request", "lines")
        for kind in Kind:
            code.mark(kind.value)
            code.add(_LD_CONST, min(_MASK, int(self.shares[kind] * (_MASK + 1))))
            code.jump("share")
        code.mark("share")
        code.add(_STORE, _SHARE)
        code.branch(_IF_EQUAL, _MASK, "pass early", "hash")
        code.mark("pass early")
        code.add(_RETURN, _MASK)
        # The hash of the source.
        code.mark("hash")
        code.add(_LD_HALF, 0)
        code.add(_MUL, second)
        code.add(_STORE, _HASH)
        code.add(_LD_BYTE, _NETWORK)
        code.add(_SHIFT_RIGHT, 4)
        code.branch(_IF_EQUAL, 4, "IPv4", "IPv6")
        code.mark("IPv4")
        if self._passes_loopback:
            code.add(_LD_BYTE, _NETWORK + 12)
            code.branch(_IF_EQUAL, 127, "pass loopback", "IPv4 address")
            code.mark("pass loopback")
            code.add(_RETURN, _MASK)
            code.mark("IPv4 address")
        code.add(_LD_WORD, _NETWORK + 12)
        code.jump("mix")
        code.mark("IPv6")
        if self._passes_loopback:
            for offset, value in ((8, 0), (12, 0), (16, 0), (20, 1)):
                code.add(_LD_WORD, _NETWORK + offset)
                code.branch(_IF_EQUAL, value, f"as ::1 to {offset}", "IPv6 address")
                code.mark(f"as ::1 to {offset}")
            code.add(_RETURN, _MASK)
            code.mark("IPv6 address")
        code.add(_LD_WORD, _NETWORK + 8)
        for offset in (12, 16, 20):
            code.add(_MUL, third)
            code.add(_TO_X)
            code.add(_LD_WORD, _NETWORK + offset)
            code.add(_XOR_X)
        code.mark("mix")
        code.add(_MUL, first)
        code.add(_LDX_MEMORY, _HASH)
        code.add(_XOR_X)
        code.add(_STORE, _HASH)
        code.add(_SHIFT_RIGHT, 15)
        code.add(_LDX_MEMORY, _HASH)
        code.add(_XOR_X)
        code.add(_MUL, third)
        code.add(_STORE, _HASH)
        code.add(_AND, 31)
        code.add(_TO_X)
        code.add(_STORE_X, _BIT)
        code.add(_LD_MEMORY, _HASH)
        code.add(_SHIFT_RIGHT, 33 - self._words.bit_length())  # the number of words is a power of two
        return code.data() + self._tree


def hash_of(source: Address, key: tuple[int, int, int]) -> int:
    """Returns the hash that the program computes of a source: 32 bits."""
    first, second, third = key
    host = source[0]
    if ":" not in host:
        value = int.from_bytes(bytes(map(int, host.split("."))), "big")
    else:
        packed = ip_address(host).packed
        value = int.from_bytes(packed[:4], "big")
        for start in (4, 8, 12):
            value = value * third & _MASK ^ int.from_bytes(packed[start : start + 4], "big")
    value = value * first & _MASK ^ source[1] * second & _MASK
    value ^= value >> 15
    return value * third & _MASK


def _tree(words: list[int]) -> bytes:
    """Returns instructions that find a source's word by its number, and end the program."""
    code = _Code()
    _find(code, words, 0, len(words))
    code.mark("word")
    code.add(_LDX_MEMORY, _BIT)
    code.add(_SHIFT_RIGHT_X)
    code.add(_AND, 1)
    code.branch(_IF_EQUAL, 1, "pass", "chance")
    code.mark("chance")
    code.add(_LD_WORD, _RANDOM)
    code.add(_LDX_MEMORY, _SHARE)
    code.branch(_IF_AT_LEAST_X, 0, "drop", "pass")
    code.mark("pass")
    code.add(_RETURN, _MASK)
    code.mark("drop")
    code.add(_RETURN, 0)
    return code.data()


def _find(code: "_Code", words: list[int], low: int, high: int) -> None:
    if high - low == 1:
        code.add(_LD_CONST, words[low])
        code.jump("word")
        return
    middle = (low + high) // 2
    # A conditional jump reaches 255 instructions, which is too little for half a tree.
    code.branch(_IF_AT_LEAST, middle, f"far {middle}", f"left {low} {middle}")
    code.mark(f"far {middle}")
    code.jump(f"right {middle}")
    code.mark(f"left {low} {middle}")
    _find(code, words, low, middle)
    code.mark(f"right {middle}")
    _find(code, words, middle, high)


class _Code:
    """Instructions with jumps to names."""

    def __init__(self) -> None:
        self._instructions: list[tuple[int, int, tuple[str, ...]]] = []
        self._places: dict[str, int] = {}

    def add(self, operation: int, value: int = 0) -> None:
        self._instructions.append((operation, value, ()))

    def branch(self, operation: int, value: int, if_true: str, if_false: str) -> None:
        self._instructions.append((operation, value, (if_true, if_false)))

    def jump(self, to: str) -> None:
        self._instructions.append((_JUMP, 0, (to,)))

    def mark(self, name: str) -> None:
        self._places[name] = len(self._instructions)

    def data(self) -> bytes:
        parts = []
        for index, (operation, value, names) in enumerate(self._instructions):
            jumps = [self._places[name] - index - 1 for name in names]
            if operation == _JUMP:
                parts.append(_INSTRUCTION.pack(operation, 0, 0, jumps[0]))
            else:
                if_true, if_false = jumps or (0, 0)
                parts.append(_INSTRUCTION.pack(operation, if_true, if_false, value))
        return b"".join(parts)
