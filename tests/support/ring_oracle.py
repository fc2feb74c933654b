"""The ring of PROTOCOL §8, built literally: every point of every host, sorted, and walked down.

It shares no code with `hashring`. Run as a script it writes the golden vectors:

    python -m tests.support.ring_oracle > hashring/vectors/placement.json
"""

import bisect
import json
from typing import Any

import numpy as np
import xxhash

M = (1 << 64) - 1

Word = Any  # an integer of 64 bits, or an array of them: then the same is computed for each


def splitmix64(z: Word) -> Word:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
    return z ^ (z >> 31)


def base(key: bytes, salt: bytes = b"") -> int:
    return xxhash.xxh3_64_intdigest(salt + key)


def point(base: int, i: Word) -> Word:
    return (i << 54) | (splitmix64((base + (i + 1) * 0x9E3779B97F4A7C15) & M) >> 10)


def tag(topic: bytes) -> bytes:
    """Cut at each `{` in turn: the text up to the next `}` is the tag unless it is empty."""
    parts = topic.split(b"{")
    for i in range(1, len(parts)):
        inside, brace, _ = b"{".join(parts[i:]).partition(b"}")
        if brace and inside:
            return inside
    return topic


def topic_hash(topic: bytes) -> int:
    return xxhash.xxh3_64_intdigest(tag(topic), seed=1)


class BuiltRing:
    def __init__(self, keys: list[bytes], salt: bytes = b"") -> None:
        self.count = len(keys)
        hosts = sorted((base(key, salt), key) for key in keys)
        positions = np.concatenate([point(b, np.arange(1024, dtype=np.uint64)) for b, _ in hosts])
        order = positions.argsort(kind="stable")  # of equal points the larger base, then key, stays behind
        self.positions: list[int] = positions[order].tolist()
        self.owners = [hosts[j][1] for j in (order // 1024).tolist()]

    def nodes_at(self, position: int, k: int) -> list[bytes]:
        found: dict[bytes, None] = {}
        j = bisect.bisect_right(self.positions, position)
        while len(found) < min(k, self.count):
            j -= 1  # below 0 Python counts from the end, which is the wrap
            found.setdefault(self.owners[j])
        return list(found)

    def nodes(self, topic: bytes, k: int) -> list[bytes]:
        return self.nodes_at(topic_hash(topic), k)


def rendezvous(topic: bytes, ports: list[int]) -> int:
    scored = [(-xxhash.xxh3_64_intdigest(tag(topic) + b"\0" + str(p).encode(), seed=2), p) for p in ports]
    return min(scored)[1]


def modulo(topic: bytes, keys: list[bytes]) -> bytes:
    return sorted(keys)[topic_hash(topic) % len(keys)]


# Ties and edges are found backwards: on 8 bytes XXH3_64 is a bijection, and here is its inverse.


def unshift(z: int, bits: int) -> int:
    x = z
    for _ in range(64 // bits):
        x = z ^ (x >> bits)
    return x


def unsplitmix64(z: int) -> int:
    z = unshift(z, 31) * pow(0x94D049BB133111EB, -1, 1 << 64) & M
    z = unshift(z, 27) * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & M
    return unshift(z, 30)


def unxxh3_keyed(digest: int) -> int:
    """What XXH3_64 of 8 bytes, XORed with its secret, was before `rrmxmx`."""
    inverse = pow(0x9FB21C651E98DF25, -1, 1 << 64)
    z = unshift(digest, 28) * inverse & M
    z = (z ^ ((z >> 35) + 8)) * inverse & M
    for _ in range(63):  # 1 + x^49 + x^24 to the 64th power is 1 modulo x^64 - 1 over GF(2)
        z = z ^ rotated(z, 49) ^ rotated(z, 24)
    return z


def rotated(z: int, bits: int) -> int:
    return (z << bits | z >> (64 - bits)) & M


def bytes_with_hash(digest: int, seed: int = 0) -> bytes:
    """The 8 bytes whose XXH3_64 is `digest`."""
    secret = unxxh3_keyed(xxhash.xxh3_64_intdigest(bytes(8), seed=seed))
    word = unxxh3_keyed(digest) ^ secret
    return (word >> 32).to_bytes(4, "little") + (word & 0xFFFFFFFF).to_bytes(4, "little")


def topic_at(position: int) -> bytes:
    return bytes_with_hash(position, seed=1)


def key_with_point(wanted: int, low_bits: int = 0) -> bytes:
    """A key whose point in the arc of `wanted` is `wanted`: one for each value of `low_bits`, 0 .. 1023."""
    arc = wanted >> 54
    mixed = (wanted << 10 | low_bits) & M
    return bytes_with_hash((unsplitmix64(mixed) - (arc + 1) * 0x9E3779B97F4A7C15) & M)


def vectors() -> dict[str, Any]:
    def text(data: bytes) -> dict[str, str]:
        shown = {"text": data.decode()} if data.isascii() and data.decode().isprintable() else {}
        return {"hex": data.hex(), **shown}

    named = [b"10.0.0.1:4000", b"192.0.2.7:7777", b"[2001:db8::1]:4000"]
    named += [b"10.0.0.1", b"2001:db8::/64", b"london"]
    topics = [b"hello", b"", b"a", b"{}", b"{}{a}", b"{a}", b"x{a}y{b}", b"{{a}}", b"{a", b"a}b{", b"{}}"]
    topics += [b"{{}", b"}{a}", b"{a}{", b"{ }", b"{\0}\n", b"sensor/\x00\xff", b"t" * 255]
    topics += ["Größe/温度".encode(), "{é}x".encode(), b"{game7}score", b"{game7}chat"]

    five = [b"192.0.2.%d" % i for i in range(1, 6)]
    forty = [b"10.%d.0.%d" % (i % 7, i) for i in range(40)]
    on_point = point(base(five[2]), 17)
    tied = [*five, key_with_point(on_point, 1), key_with_point(on_point, 1023)]
    same_base = [*five, bytes_with_hash(base(five[0] + b":4000")), five[0] + b":4000"]
    edges = [topic_at(p) for p in (0, 1, M, 1 << 54, (1 << 54) - 1, on_point, on_point - 1, on_point + 1)]
    plain = [b"hello", b"{game7}score", "Größe/温度".encode()]
    rings = []
    for title, keys, salt, used, ks in (
        ("one host", five[:1], b"", [*plain, *edges[:3]], (1, 2)),
        ("five hosts; the edges of arcs, wrap at 0, a topic on, below and above a point", five, b"",
         [*plain, *edges], (1, 3, 5, 9)),
        ("five hosts with a salt", five, b"kcast", [*plain, *edges[:3]], (1, 3, 5)),
        ("equal points: larger base first", tied, b"", edges[5:], (1, 2, 3, 7)),
        ("equal bases: larger key first", same_base, b"", [*plain, *edges], (1, 2, 7)),
        ("keys of text", ["köln".encode(), b"london", "東京".encode(), b"oslo"], b"\x00\xff", plain, (1, 4)),
        ("forty hosts", forty, b"kcast", [*plain, *edges], (1, 5, 40)),
    ):  # fmt: skip
        built = BuiltRing(keys, salt)
        cases = [
            {"topic": text(t), "k": k, "nodes": [keys.index(key) for key in built.nodes(t, k)]}
            for t in used
            for k in ks
        ]
        modulos = [{"topic": text(t), "node": keys.index(modulo(t, keys))} for t in plain]
        rings.append({
            "title": title, "salt": salt.hex(), "keys": [text(key) for key in keys],
            "nodes": cases, "modulo": modulos,
        })  # fmt: skip
    ports = ([7400], [7401, 7402], [7400, 7401, 7402, 7403], [1, 65535, 7400])
    return {
        "about": [
            "Golden vectors of placement, PROTOCOL section 8. Bytes are in hex, `text` is for the eye.",
            "mix64 is the finaliser of SplitMix64; `state` is before the addition of 9e3779b97f4a7c15.",
            "base = XXH3_64(salt || key), "
            "point(i) = (i << 54) | (mix64(base + (i + 1) * 9e3779b97f4a7c15) >> 10).",
            "A topic is hashed by XXH3_64 with seed 1 over `hashed`, its first non-empty {...} or all of it.",
            "nodes: indices into keys, nearest first; of equal points the larger base, then the larger key.",
            "modulo: the key number (hash mod C) of the sorted keys.",
            "rendezvous: the port with the highest XXH3_64(hashed || 00 || port in ASCII, seed 2).",
        ],
        "mix64": [
            {"state": f"{state:016x}", "output": f"{splitmix64((state + 0x9E3779B97F4A7C15) & M):016x}"}
            for state in (0, 1234567, (1234567 + 0x9E3779B97F4A7C15) & M, M)
        ],
        "hosts": [
            {
                "key": text(key),
                "salt": salt.hex(),
                "base": f"{base(key, salt):016x}",
                "points": {str(i): f"{point(base(key, salt), i):016x}" for i in (0, 1, 512, 1023)},
            }
            for key in named
            for salt in (b"", b"kcast")
        ],
        "topics": [
            {"topic": text(t), "hashed": text(tag(t)), "hash": f"{topic_hash(t):016x}"} for t in topics
        ],
        "rings": rings,
        "rendezvous": [
            {"topic": text(t), "ports": p, "port": rendezvous(t, p)}
            for t in (*plain, b"{}{a}")
            for p in ports
        ],
    }


def main() -> None:
    sections = [
        f" {json.dumps(name)}: [\n"
        + ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in items)
        + "\n ]"
        for name, items in vectors().items()
    ]
    print("{\n" + ",\n".join(sections) + "\n}")


if __name__ == "__main__":
    main()
