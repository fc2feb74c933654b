"""The arithmetic of placement: which bytes are hashed, and where they fall (PROTOCOL §8).

Positions on the ring are integers below 2**64. The ring is cut into 1024 equal arcs, and a host has exactly
one point in each. The 2004 note by K. J. Sitaker asks that consistent hashing (Karger et al., STOC 1997) hash
each server into "a thousand bit strings"; with one point in each arc, the points near a topic can be computed
without computing any others. All points of a host follow from its *base* of 64 bits:

    base       = XXH3_64(salt || key)
    point(i)   = (i << 54) | (mix64(base + (i + 1) * G) >> 10)      i = 0 .. 1023
    topic      = XXH3_64(hashed bytes, seed = 1)

`mix64` is the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), so the points are 1024 outputs of
that generator. Neither hash is cryptographic: keys must be something that an attacker cannot choose freely,
such as IP addresses, and the salt must be chosen after the keys are known.
"""

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

ARC_BITS = 10
ARCS = 1 << ARC_BITS
OFFSET_BITS = 64 - ARC_BITS
OFFSET_MAX = (1 << OFFSET_BITS) - 1
U64_MAX = (1 << 64) - 1

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIER_A = 0xBF58476D1CE4E5B9
MULTIPLIER_B = 0x94D049BB133111EB

TOPIC_SEED = 1
RENDEZVOUS_SEED = 2
PORT_MAX = 65535


def hashed_bytes(topic: bytes | str) -> bytes:
    """Returns the part of a decoded topic that decides its hosts (PROTOCOL §8.2).

    It is the content of the first `{...}` that is not empty, else the whole topic: so topics can be made to
    share their servers. A `{` pairs with the first `}` after it, as in the hash tags of Redis Cluster; after
    an empty pair the search goes on. A `str` stands for its UTF-8.

    >>> hashed_bytes("{game7}score") == hashed_bytes("{game7}chat") == b"game7"
    True
    >>> hashed_bytes("{}{a}"), hashed_bytes("{{a}}")
    (b'a', b'{a')
    """
    data = topic.encode() if isinstance(topic, str) else topic
    opened = data.find(b"{")
    while opened >= 0:
        closed = data.find(b"}", opened + 1)
        if closed < 0:
            break
        if closed > opened + 1:
            return data[opened + 1 : closed]
        opened = data.find(b"{", closed + 1)
    return data


def topic_hash(topic: bytes | str) -> int:
    """Returns the position of a decoded topic on the ring, 0 .. 2**64 - 1."""
    return xxh3_64_intdigest(hashed_bytes(topic), seed=TOPIC_SEED)


def host_base(key: bytes, salt: bytes = b"") -> int:
    """Returns the 64 bits from which all points of a host follow."""
    return xxh3_64_intdigest(salt + key)


def point(base: int, arc: int) -> int:
    """Returns the position of the one point that the host with this `base` has in `arc` (0 .. 1023)."""
    return arc << OFFSET_BITS | mix64(base + (arc + 1) * GOLDEN) >> ARC_BITS


def point_before(base: int, position: int) -> int:
    """Returns the nearest point at or before `position`, walking down, of the host with this `base`."""
    arc = position >> OFFSET_BITS
    here = point(base, arc)
    return here if here <= position else point(base, (arc - 1) % ARCS)


def rendezvous(topic: bytes | str, ports: Sequence[int]) -> int:
    """Returns the port of the server that serves `topic`, among those of one host (PROTOCOL §8.4).

    This is rendezvous hashing (Thaler and Ravishankar, 1998): the port with the highest
    XXH3_64(hashed bytes || 0x00 || port in ASCII, seed = 2) wins, and of equals the smaller port. So a server
    that leaves moves only its own topics. Raises ValueError if there is no port, or one outside 1 .. 65535.

    >>> rendezvous("weather", [7400, 7401, 7402])
    7401
    """
    if not ports:
        raise ValueError("no ports: name at least one server of the host")
    for port in ports:
        if not 1 <= port <= PORT_MAX:
            raise ValueError(f"port {port} is not in 1..{PORT_MAX}")
    prefix = hashed_bytes(topic) + b"\0"
    return max(ports, key=lambda port: (xxh3_64_intdigest(b"%s%d" % (prefix, port), RENDEZVOUS_SEED), -port))


def mix64(word: int) -> int:
    """Returns the SplitMix64 finaliser of `word` modulo 2**64."""
    word &= U64_MAX
    word = (word ^ word >> 30) * MULTIPLIER_A & U64_MAX
    word = (word ^ word >> 27) * MULTIPLIER_B & U64_MAX
    return word ^ word >> 31
