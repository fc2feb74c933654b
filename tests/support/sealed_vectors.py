"""Golden vectors of signed and sealed messages: what `client/vectors/sealed.json` says, and why.

The messages are made by hand, from PROTOCOL §9 and the specifications that it names; nothing is imported of
the code that they judge. `python -m tests.support.sealed_vectors` writes the file.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.checkout import ROOT
from tests.support.sealed_by_hand import (
    AFTER,
    ALICE,
    ALPHABET,
    BEFORE,
    BOB,
    ENC,
    EPHEMERAL,
    OPS,
    ORDER,
    OTHER_GROUP,
    OTHER_OWNER,
    PUBLISHER,
    SENDERS,
    SENT_MS,
    SMALL_KEY,
    STRANGER,
    Epoch,
    Key,
    OtherNumber,
    Vector,
    Writer,
    base64url,
    body,
    padded,
    seal_of,
    signed,
    topic_start,
    unsigned,
    with_g,
)

FILE = ROOT / "client" / "vectors" / "sealed.json"

READ_AT_MS = SENT_MS + 250

ABOUT = [
    "Golden vectors of signed and sealed messages: PROTOCOL.md, section 9. All is ASCII.",
    "keys: Ed25519; 'key' is the public key in base64url, as in lists of senders and in ~ topics.",
    "epochs: of groups; all is in hex. 'enc' is of the X25519 private key 'ephemeral_hex', RFC 9180 4.1.",
    "topics: 'hidden' is the wire topic of 'name' where the topic secret is that of the first epoch. 'start'",
    "is how topics begin on which only 'keys' may publish.",
    "lines: each is taken by a subscriber to its topic, at 'read_at_ms', who takes messages that are 120 s",
    "old at most, or up to 30 s ahead. 'senders' are the keys that it takes messages of: the set for a ~",
    "topic comes from there, too. 'epochs' are those of the file, from 0, that it holds; where there are",
    "none, it takes signed lines, and else it takes sealed ones alone. It gets lines of other topics as if",
    "they were of its own.",
    "'message' is what is in the line. 'count' is null where it is absent. A dummy has the drop 'cover'.",
    "mutants: 'line' meets 'drop' instead. Checks are made in this order: malformed-message; in signed lines",
    "unsigned, unauthorised, too-old and from-future; in sealed ones not-sealed, unknown-key, not-opened,",
    "unsigned, too-old and from-future, unauthorised; then bad-signature, cover. Every vector is the first",
    "message that the subscriber gets.",
]

# --- mutants --------------------------------------------------------------------------------------------


def flipped(data: bytes, place: int) -> bytes:
    """With the lowest bit of a byte changed."""
    place %= len(data)
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def swapped(text: bytes, place: int) -> bytes:
    """With another letter of base64url in a place."""
    other = ALPHABET[(ALPHABET.index(text[place]) + 4) % 64]
    place %= len(text)
    return text[:place] + bytes([other]) + text[place + 1 :]


def unused_bits(text: bytes) -> bytes:
    """With a bit set, in the last letter, that says nothing."""
    return text[:-1] + bytes([ALPHABET[ALPHABET.index(text[-1]) + 1]])


def g_of(line: bytes) -> bytes:
    """The value of `g`."""
    return line.partition(b";g=")[2].partition(b" ")[0]


def replaced(line: bytes, old: bytes, new: bytes) -> bytes:
    """With the first of some bytes replaced, which are there."""
    assert old in line and old != new
    return line.replace(old, new, 1)


def plus_order(named: bytes) -> bytes:
    """Key and signature, with the group's order added to the scalar."""
    scalar = int.from_bytes(named[64:], "little") + ORDER
    return named[:64] + scalar.to_bytes(32, "little")


Mutant = tuple[str, bytes, str]


def in_the_clear(line: bytes, make: Callable[[bytes], bytes], plain: bytes) -> list[Mutant]:
    """What can be done to any signed line. `make` signs a line as this one is signed."""
    g = g_of(line)
    old, future = SENT_MS - 121_000, SENT_MS + 31_000
    return [
        ("another payload", replaced(line, b"rain", b"Rain"), "bad-signature"),
        ("moved to another topic", replaced(line, b"oslo", b"oslO"), "bad-signature"),
        ("moved to another process", replaced(line, b"%@AbC", b"%@AbD"), "bad-signature"),
        ("moved to another number", replaced(line, b".7", b".8"), "bad-signature"),
        ("another time", replaced(line, b"t=1790000000000", b"t=1790000000001"), "bad-signature"),
        ("one more attribute", replaced(line, b";t=", b";a=b;t="), "bad-signature"),
        ("no signature", plain, "unsigned"),
        ("121 s old", make(replaced(plain, b"%d" % SENT_MS, b"%d" % old)), "too-old"),
        ("31 s ahead", make(replaced(plain, b"%d" % SENT_MS, b"%d" % future)), "from-future"),
        ("two signatures", replaced(line, b";g=", b";g=" + g + b";g="), "malformed-message"),
        ("another attribute behind the signature", replaced(line, g, g + b";a=b"), "malformed-message"),
        ("padding in the signature", replaced(line, g, g[:128] + b"=" + g[128:]), "malformed-message"),
        ("a letter less in the signature", replaced(line, g, g[1:]), "malformed-message"),
        ("a number with a leading zero", replaced(line, b".7", b".07"), "malformed-message"),
        ("a letter escaped without need", replaced(line, b"rain", b"%72ain"), "malformed-message"),
        ("another letter in the signature", replaced(line, g, swapped(g, 60)), "bad-signature"),
    ]


def alone(plain: bytes, of_others: str = "bad-signature") -> list[Mutant]:
    """What can be done to a line that is signed alone; the drop `of_others` is met by keys but Alice's."""
    line = signed(plain)
    named = ALICE.public + ALICE.sign(b"kcast-sign 1\n" + plain)
    payload = plain.split(b" ", 2)[2].rstrip(b"\n")
    binary = replaced(plain, b";t=", b";B=1;t=").replace(payload, base64url(payload))
    return [
        *in_the_clear(line, signed, plain),
        ("by a key that is not allowed", signed(plain, STRANGER), "unauthorised"),
        ("as if another had signed it", with_g(plain, base64url(BOB.public + named[32:])), of_others),
        (
            "by a key of small order",
            with_g(plain, base64url(SMALL_KEY + SMALL_KEY + bytes(32))),
            of_others,
        ),
        ("the scalar plus the group's order", with_g(plain, base64url(plus_order(named))), "bad-signature"),
        ("signed for another use", signed(plain, word=b"kcast-seal-sign 1\n"), "bad-signature"),
        ("the payload in its other form", with_g(binary, base64url(named)), "bad-signature"),
        ("something behind the signature", with_g(plain, base64url(named) + b".2.0"), "malformed-message"),
    ]


def certified() -> Vector:
    """A line on a topic that names the key of its sender."""
    start = topic_start([ALICE])
    plain = unsigned(7, topic=f"{start}/oslo")
    mutants = alone(plain, "unauthorised")
    others = topic_start([ALICE, BOB])
    mutants += [
        ("by one who is not named", signed(plain, BOB), "unauthorised"),
        (
            "on a topic that names another",
            signed(replaced(plain, start.encode(), topic_start([BOB]).encode())),
            "unauthorised",
        ),
        (
            "on a topic that names others too, of whom the set is not known",
            signed(replaced(plain, start.encode(), others.encode())),
            "unauthorised",
        ),
    ]
    return line_vector(
        "certified topic", signed(plain), f"{start}/oslo", mutants, seq=7, senders=[ALICE.text]
    )


def line_vector(
    what: str,
    line: bytes,
    topic: str,
    mutants: list[Mutant],
    *,
    seq: int,
    senders: list[str],
    content: str = "rain, 4 degrees",
    attributes: dict[str, str] | None = None,
    count: int | None = None,
    is_cover: bool = False,
    epochs: Sequence[int] = (),
) -> Vector:
    """What the file says of a line."""
    assert len(mutants) >= 20 and len({mutant[1] for mutant in mutants} | {line}) == len(mutants) + 1, what
    return {
        "what": what,
        "line": line.decode(),
        "topic": topic,
        "senders": senders,
        "epochs": list(epochs),
        "message": {
            "publisher": PUBLISHER,
            "seq": seq,
            "sent_ms": SENT_MS,
            "sender": ALICE.text,
            "attributes": attributes or {},
            "content": content,
            "count": count,
        },
        "drop": "cover" if is_cover else None,
        "mutants": [
            {"description": description, "line": mutated.decode("ascii"), "drop": drop}
            for description, mutated, drop in mutants
        ],
    }


class Sealed:
    """A sealed line, and what can be done to it. `size` is that of its frame, with more zeros than needed."""

    def __init__(
        self,
        what: str,
        topic: str,
        *,
        content: str = "rain, 4 degrees",
        attributes: str = "",
        count: int | None = None,
        is_cover: bool = False,
        size: int = 0,
        told: str = "",
    ) -> None:
        self.what, self.topic, self.size, self.told = what, topic, size, told
        self.content, self.attributes, self.count, self.is_cover = content, attributes, count, is_cover
        self.flags = 1 | (2 if is_cover else 0) | (0 if count is None else 4)
        self.writer = Writer(OPS, topic, told=told)
        self.line = self.made()

    def made(
        self, *, writer: Writer | None = None, key: Key = ALICE, of: Epoch | None = None, **fields: Any
    ) -> bytes:
        """The line, with other things in it where `fields` names them."""
        writer = writer or self.writer
        given = {"content": self.content, "attributes": self.attributes, "count": self.count, **fields}
        data = body(given.pop("flags", self.flags), **given)
        return writer.seal(7, padded(data + writer.signing(7, data, key, of), self.size))

    def raw(self, change: Callable[[bytes], bytes], key: Key = ALICE) -> bytes:
        """The line, with the frame changed by a writer after it was signed."""
        data = body(self.flags, self.content, self.attributes, self.count)
        return self.writer.seal(7, change(padded(data + self.writer.signing(7, data, key), self.size)))

    def mutants(self) -> list[Mutant]:
        """What others can do, and what writers can."""
        line = self.line
        head, _, rest = line.rpartition(b" ")
        payload = rest.rstrip(b"\n")
        seal = base64url(OPS.tag(self.topic, ENC) + ENC)
        topic = self.topic.encode()
        small = Writer(OPS, self.topic, SMALL_KEY)
        strange = Writer(OPS, self.topic, flipped(ENC, 3))
        malformed, unopened = "malformed-message", "not-opened"
        found = [
            ("moved to another topic", replaced(line, topic, swapped(topic, len(topic) - 2)), "unknown-key"),
            ("moved to another process", replaced(line, b"%@AbC", b"%@AbD"), "unknown-key"),
            ("moved to another number", replaced(line, b".7;", b".8;"), unopened),
            ("another tag", replaced(line, seal, swapped(seal, 2)), "unknown-key"),
            ("another enc", replaced(line, seal, swapped(seal, 30)), "unknown-key"),
            ("another enc, with its tag", replaced(line, seal, seal_of(strange)), unopened),
            ("an enc of small order, with its tag", replaced(line, seal, seal_of(small)), unopened),
            ("another letter at the payload's start", replaced(line, payload, swapped(payload, 0)), unopened),
            ("another letter at its end", replaced(line, payload, swapped(payload, -1)), unopened),
            ("half of the payload", head + b" " + payload[: len(payload) // 8 * 4] + b"\n", unopened),
            ("no payload", head + b" \n", unopened),
            ("no seal", replaced(line, b";S=" + seal, b""), "not-sealed"),
            ("in clear text", unsigned(7, topic=self.topic), "not-sealed"),
            ("signed, in clear text", signed(unsigned(7, topic=self.topic)), "not-sealed"),
            ("two seals", replaced(line, b";S=", b";S=" + seal + b";S="), malformed),
            ("a letter less in the seal", replaced(line, seal, seal[:-1]), malformed),
            ("an unused bit set in the seal", replaced(line, seal, unused_bits(seal)), malformed),
            ("padding in the seal", replaced(line, seal, seal + b"="), malformed),
            ("B=1 beside the seal", replaced(line, b";S=", b";B=1;S="), malformed),
            ("what is no base64url in the payload", replaced(line, payload, b"!" + payload[1:]), malformed),
            ("padding in the payload", replaced(line, payload, payload + b"="), malformed),
            ("a flag that nobody knows", self.made(flags=self.flags | 8), unopened),
            ("lengths beyond the end", self.made(lengths=(0, 60_000)), unopened),
            ("an attribute without value", self.made(attributes="abc"), unopened),
            ("one attribute twice", self.made(attributes="a=b;a=c"), unopened),
            ("a block that is not whole", self.raw(lambda data: data[:-1]), unopened),
            ("one bit among the zeros", self.raw(lambda data: data[:-1] + b"\x01"), unopened),
            (
                "a number for which it was not sealed",
                self.made(writer=OtherNumber(OPS, self.topic)),
                unopened,
            ),
            ("121 s old", self.made(sent_ms=SENT_MS - 121_000), "too-old"),
            ("31 s ahead", self.made(sent_ms=SENT_MS + 31_000), "from-future"),
            ("of an epoch that is not held", self.made(writer=Writer(AFTER, self.topic)), "unknown-key"),
            (
                "of another group with this topic secret",
                self.made(writer=Writer(OTHER_GROUP, self.topic)),
                unopened,
            ),
        ]
        if len(payload) % 4:
            found.append(
                ("an unused bit set in the payload", replaced(line, payload, unused_bits(payload)), malformed)
            )
        if self.told:
            found += [
                ("another clock", replaced(line, b";c=zV", b";c=zU"), unopened),
                ("without its parent", line.replace(self.told.encode(), self.told[:14].encode()), unopened),
            ]
        if self.count is None:
            found += [
                ("32 zeros more", self.raw(lambda data: data + bytes(32)), unopened),
                ("a dummy without count", self.made(flags=self.flags | 2), unopened),
            ]
        else:
            found.append(("a count above the number", self.made(count=8), unopened))
        return found + self.signature_mutants()

    def signature_mutants(self) -> list[Mutant]:
        """What can be done to the signature inside."""
        plain = body(self.flags, self.content, self.attributes, self.count)
        at = len(plain)
        unsigned_body = body(self.flags & ~1, self.content, self.attributes, self.count)
        bad = "bad-signature"
        return [
            (
                "not signed, in the form of old",
                self.writer.seal(7, padded(unsigned_body, self.size)),
                "unsigned",
            ),
            ("signed by a key that is not allowed", self.made(key=STRANGER), "unauthorised"),
            (
                "as if another had signed it",
                self.raw(lambda data: data[:at] + BOB.public + data[at + 32 :]),
                bad,
            ),
            (
                "signed by a key of small order",
                self.raw(lambda data: data[:at] + SMALL_KEY + SMALL_KEY + bytes(32) + data[at + 96 :]),
                bad,
            ),
            (
                "the scalar plus the group's order",
                self.raw(lambda data: data[:at] + plus_order(data[at : at + 96]) + data[at + 96 :]),
                bad,
            ),
            ("a reader writes another time", self.raw(lambda data: flipped(data, 8)), bad),
            ("signed for another group with this topic secret", self.made(of=OTHER_GROUP), bad),
            ("signed for a group of this name and these secrets", self.made(of=OTHER_OWNER), bad),
            ("signed for the epoch before", self.made(of=BEFORE), bad),
        ]

    def vector(self) -> Vector:
        """What the file says of it."""
        return line_vector(
            self.what,
            self.line,
            self.topic,
            self.mutants(),
            seq=7,
            senders=SENDERS,
            content=self.content,
            attributes=dict(field.split("=") for field in self.attributes.split(";") if field),
            count=self.count,
            is_cover=self.is_cover,
            epochs=[0, 1],
        )


CLOCK = "zVOQzhc_s--"
NAMES = ("weather/oslo", "{oslo}weather", "{oslo}wind", "a/{oslo}", "{}", "{oslo")
SEALED = (
    Sealed("sealed", OPS.hidden("weather/oslo"), attributes="a=b;r=replies/oslo"),
    Sealed("sealed on a topic with a tag", OPS.hidden("{oslo}weather")),
    Sealed("sealed on a topic that is not hidden", "weather/oslo", content="rain " * 9),
    Sealed(
        *("cover traffic, a dummy", OPS.hidden("weather/oslo")), content="", count=3, is_cover=True, size=256
    ),
    Sealed(
        *("an entry of a log, with its parent", OPS.hidden("weather/oslo")),
        told=f";c={CLOCK};p=zVOQzhc_r--{'7' * 21}",
    ),
    Sealed("cover traffic, a message", OPS.hidden("weather/oslo"), count=4, size=256),
)


def document() -> Vector:
    """The file's contents."""
    plain = unsigned(7)
    lines = [
        line_vector("signed", signed(plain), "weather/oslo", alone(plain), seq=7, senders=SENDERS),
        certified(),
        *(each.vector() for each in SEALED),
    ]
    return {
        "about": ABOUT,
        "read_at_ms": READ_AT_MS,
        "keys": [{"seed_hex": key.seed.hex(), "key": key.text} for key in (ALICE, BOB, STRANGER)],
        "epochs": [epoch.vector() for epoch in (OPS, BEFORE, AFTER, OTHER_GROUP)],
        "ephemeral_hex": EPHEMERAL.hex(),
        "enc_hex": ENC.hex(),
        "topics": {
            "hidden": [{"name": name, "hidden": OPS.hidden(name)} for name in NAMES],
            "certified": [
                {"keys": [key.text for key in keys], "start": topic_start(keys)}
                for keys in ([ALICE], [BOB, ALICE], [STRANGER, BOB, ALICE])
            ],
        },
        "lines": lines,
    }


def text() -> str:
    """The file's text."""
    return json.dumps(document(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="ascii")
