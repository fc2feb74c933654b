"""Golden vectors of history: what `client/vectors/history.json` says, and why.

Written from PROTOCOL §9.12, by hand; imports nothing of the code that it judges. `python -m
tests.support.history_vectors` writes the file.
"""

import json
from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Any

from tests.support.checkout import ROOT

FILE = ROOT / "client" / "vectors" / "history.json"

ABOUT = [
    "Golden vectors of history: PROTOCOL, 9.12. Topics, messages and payloads are in hex, 'text' repeats",
    "them for the eye if all are printable ASCII. varints: a number and its bytes.",
    "ids: an entry's clock, the topic on the wire and the message; its 'c', and its id.",
    "stamps: the attributes 'c' and 'p' of an entry, and what they say; refused_stamps must be dropped.",
    "fingerprints: ids, and the fingerprint of a range that has these. shorts: an id's short form in a",
    "question. said: payloads on .../sync. words: payloads in a mailbox. Each goes both ways: parsing the",
    "payload gives kind and fields, formatting these gives the payload, or 'formatted_hex' where that is",
    "given. In 'fields' bounds and ids are texts of 32 characters, and '~'; runs are [publisher, [[first,",
    "last], ...]]. Each of the refused_... must be dropped; 'description' says why.",
]

ORDERED = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
ADA, BOB, Q, WORD = "dYFjcEqsgdF", "Hn2sV0aLxqQ", "5f0Kz81q", "w0RDw0RD"
CLOCK = 1_790_812_800_000_000
FP, FP2 = "AAAAAAAAAAAAAAAA", "0123456789abcdef"


def ordered(data: bytes) -> str:
    """Ordered base64, from the bits."""
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 6)
    return "".join(ORDERED[int(bits[at : at + 6], 2)] for at in range(0, len(bits), 6))


def url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def eight(clock: int) -> bytes:
    """A clock of 8 bytes: seven 1 bits, a 0, and 56 bits of clock."""
    return bytes([0b11111110]) + clock.to_bytes(7, "big")


def an_id(clock: int, topic: bytes, message: bytes) -> bytes:
    return eight(clock) + blake2b(topic + b"\n" + message, digest_size=16, person=b"kcastid1").digest()


def fingerprint(ids: list[bytes]) -> bytes:
    total = sum(int.from_bytes(blake2b(each, digest_size=32).digest(), "big") for each in ids)
    data = len(ids).to_bytes(8, "big") + (total % 2**256).to_bytes(32, "big")
    return blake2b(data, digest_size=12, person=b"kcastfp1").digest()


def short(entry_id: bytes, q: str) -> bytes:
    return blake2b(entry_id, digest_size=6, key=q.encode()).digest()


TOPIC = b"weather/oslo"
FIRST_MESSAGE = b"%@dYFjcEqsgdF.1;c=" + ordered(eight(CLOCK)).encode() + b" sun"
ONE = an_id(CLOCK, TOPIC, FIRST_MESSAGE)
SECOND_MESSAGE = (
    b"%@Hn2sV0aLxqQ.17;c=" + f"{ordered(eight(CLOCK + 1))};p={ordered(ONE)} rain, 7 degrees".encode()
)
TWO = an_id(CLOCK + 1, TOPIC, SECOND_MESSAGE)
PARENTS = [an_id(CLOCK - back, TOPIC, b"") for back in (1, 2, 3, 4, 5)]
BOUND = ordered(ONE)[:9]


def bound(text: str) -> str:
    return text if text == "~" else text.ljust(32, "-")


VARINTS = {
    127: "7f",
    128: "8080",
    16383: "bfff",
    16384: "c04000",
    1398101: "d55555",
    2**49 - 1: "fdffffffffffff",
    2**49: "fe02000000000000",
    CLOCK: eight(CLOCK).hex(),
    2**56 - 1: "fe" + 7 * "ff",
}

IDS = [
    ("an entry without parents", CLOCK, TOPIC, FIRST_MESSAGE),
    ("an entry with a parent", CLOCK + 1, TOPIC, SECOND_MESSAGE),
    ("the same message on another topic", CLOCK, b"weather/bergen", FIRST_MESSAGE),
    ("a topic as it stands on the wire", CLOCK, b"a%20b", b"%@A.1;c=x "),
]

C = ordered(eight(CLOCK))
STAMPS = [
    ("no parents", {"c": C}, CLOCK, []),
    ("one parent", {"c": C, "p": ordered(PARENTS[0])}, CLOCK, PARENTS[:1]),
    ("four parents", {"c": C, "p": ordered(b"".join(PARENTS[:4]))}, CLOCK, PARENTS[:4]),
    ("the smallest clock", {"c": ordered(eight(2**49))}, 2**49, []),
    ("the largest clock", {"c": ordered(eight(2**56 - 1))}, 2**56 - 1, []),
]
REFUSED_STAMPS = [
    ("a clock of 7 bytes", {"c": ordered(bytes.fromhex("fdffffffffffff"))}),
    ("a clock of 8 bytes that 7 could hold", {"c": ordered(eight(2**49 - 1))}),
    ("a clock that is cut", {"c": C[:-1]}),
    ("a clock with bits left over", {"c": C[:-1] + "0"}),
    ("a clock in base64url", {"c": C[:-1] + "+"}),
    ("five parents", {"c": C, "p": ordered(b"".join(PARENTS))}),
    ("a parent twice", {"c": C, "p": ordered(PARENTS[0]) * 2}),
    ("a parent that is cut", {"c": C, "p": ordered(PARENTS[0])[:-1]}),
    ("a p without parents", {"c": C, "p": ""}),
    ("a parent with the same clock", {"c": C, "p": ordered(ONE)}),
    ("a parent with a later clock", {"c": C, "p": ordered(TWO)}),
    ("a parent that is no id", {"c": C, "p": "A" * 32}),
]

# kind, description, payload, fields, another form to format
SAID: list[tuple[str, str, str, dict[str, Any], str | None]] = [
    (
        "have", "two blocks of a log without a floor", f"have {ADA} {C} - 17 {FP} 4711 {FP2}",
        {"mine": ADA, "hi": CLOCK, "floor": bound("-"), "blocks": [[17, FP], [4711, FP2]], "pinned": None},
        None,
    ),
    (
        "have", "seven blocks, a floor, and pinned entries",
        f"have {ADA} {C} {BOUND}{f' 0 {FP}' * 7} + 999999999 {FP2}",
        {
            "mine": ADA, "hi": CLOCK, "floor": bound(BOUND),
            "blocks": [[0, FP]] * 7, "pinned": [999_999_999, FP2],
        },
        None,
    ),
    ("keep", "one id", f"keep {Q} {ADA} {ordered(ONE)}", {"q": Q, "mine": ADA, "ids": [ordered(ONE)]}, None),
    (
        "keep", "ids end to end", f"keep {Q} {ADA} {ordered(TWO)}{ordered(ONE)}",
        {"q": Q, "mine": ADA, "ids": [ordered(TWO), ordered(ONE)]}, None,
    ),
]  # fmt: skip

REFUSED_SAID = [
    ("nothing", ""),
    ("another word", f"has {ADA} {C} - 17 {FP}"),
    ("no block", f"have {ADA} {C} -"),
    ("eight blocks", f"have {ADA} {C} -{f' 0 {FP}' * 8}"),
    ("a count of 10^18", f"have {ADA} {C} - 1000000000000000000 {FP}"),
    ("a leading zero", f"have {ADA} {C} - 017 {FP}"),
    ("a fingerprint of 15 characters", f"have {ADA} {C} - 17 {FP[1:]}"),
    ("a clock of 7 bytes (beside)", f"have {ADA} {ordered(eight(2**49 - 1))} - 17 {FP}"),
    ("a floor of 33 characters", f"have {ADA} {C} {'z' * 33} 17 {FP}"),
    ("two blocks of pinned entries", f"have {ADA} {C} - 17 {FP} + 1 {FP} + 1 {FP}"),
    ("a mailbox of 10 characters", f"have {ADA[1:]} {C} - 17 {FP}"),
    ("a space behind", f"have {ADA} {C} - 17 {FP} "),
    ("no id", f"keep {Q} {ADA} "),
    ("an id twice (beside)", f"keep {Q} {ADA} {ordered(ONE) * 2}"),
    ("17 ids", f"keep {Q} {ADA} " + "".join(ordered(an_id(CLOCK + at, TOPIC, b"")) for at in range(17))),
    ("an id that is none (beside)", f"keep {Q} {ADA} {'A' * 32}"),
]

BY_RUNS: dict[str, Any] = {
    "q": Q, "mine": ADA, "word": WORD, "lo": bound("-"), "hi": "~", "lines_max": 64,
    "start": ["", 0], "stop": ["~", 0], "runs": [], "shorts": None,
}  # fmt: skip
ASK = f"ask {Q} {ADA} {WORD} - ~"
SHORTS = sorted((short(ONE, Q), short(TWO, Q)))

WORDS: list[tuple[str, str, str, dict[str, Any], str | None]] = [
    ("ask", "who has nothing asks for all", f"ask {Q} {ADA} - - ~ 64 - -", {**BY_RUNS, "word": "-"}, None),
    (
        "ask", "with runs", f"ask {Q} {ADA} {WORD} {BOUND} ~ 512 - - {ADA}:1-17,19 {BOB}:4711",
        {
            **BY_RUNS, "lo": bound(BOUND), "lines_max": 512,
            "runs": [[ADA, [[1, 17], [19, 19]]], [BOB, [[4711, 4711]]]],
        },
        None,
    ),
    (
        "ask", "a part of the runs", f"{ASK} 1 {BOB}.17 {ADA}.1 {BOB}:17-999999999999999999",
        {
            **BY_RUNS, "lines_max": 1, "start": [BOB, 17], "stop": [ADA, 1],
            "runs": [[BOB, [[17, 999_999_999_999_999_999]]]],
        },
        None,
    ),
    (
        "ask", "a bound that is longer than it must be", f"ask {Q} {ADA} {WORD} {BOUND}-- ~ 64 - -",
        {**BY_RUNS, "lo": bound(BOUND)}, f"ask {Q} {ADA} {WORD} {BOUND} ~ 64 - -",
    ),
    (
        "ask", "who has nothing there asks for all", f"ask {Q} {ADA} {WORD} - {BOUND} 2 #",
        {**BY_RUNS, "hi": bound(BOUND), "lines_max": 2, "runs": "", "shorts": []}, None,
    ),
    (
        "ask", "with short ids", f"ask {Q} {ADA} {WORD} - ~ 64 # {url(b''.join(SHORTS))}",
        {**BY_RUNS, "runs": "", "shorts": [url(each) for each in SHORTS]}, None,
    ),
    (
        "what", "a range", f"what {Q} {ADA} {WORD} - {BOUND}",
        {"q": Q, "mine": ADA, "word": WORD, "lo": bound("-"), "hi": bound(BOUND)}, None,
    ),
    (
        "what", "of all, without a word", f"what {Q} {ADA} - - ~",
        {"q": Q, "mine": ADA, "word": "-", "lo": bound("-"), "hi": "~"}, None,
    ),
    ("parts", "one part", f"parts {Q} ~ 0 {FP}", {"q": Q, "parts": [["~", 0, FP]]}, None),
    (
        "parts", "24 parts", f"parts {Q}" + "".join(f" {letter} 7 {FP}" for letter in ORDERED[1:25]),
        {"q": Q, "parts": [[bound(letter), 7, FP] for letter in ORDERED[1:25]]}, None,
    ),
    ("sent", "all", f"sent {Q} ~ 3 {WORD}", {"q": Q, "next": "~", "lines": 3, "word": WORD}, None),
    (
        "sent", "up to a bound", f"sent {Q} {ordered(ONE)} 512 {WORD}",
        {"q": Q, "next": ordered(ONE), "lines": 512, "word": WORD}, None,
    ),
    ("kept", "one id", f"kept {Q} {url(SHORTS[0])}", {"q": Q, "shorts": [url(SHORTS[0])]}, None),
]  # fmt: skip

REFUSED_WORDS = [
    ("nothing", ""),
    ("another word", f"more {Q} {ADA} {WORD} - ~ 64 - -"),
    ("no lines", f"{ASK} 0 - -"),
    ("513 lines (beside)", f"{ASK} 513 - -"),
    ("a range that ends where it begins (beside)", f"ask {Q} {ADA} {WORD} {BOUND} {BOUND} 64 - -"),
    ("bounds out of order (beside)", f"ask {Q} {ADA} {WORD} ~ - 64 - -"),
    ("places out of order (beside)", f"{ASK} 64 {ADA}.2 {BOB}.1"),
    ("a place without a number", f"{ASK} 64 {BOB} -"),
    ("one place", f"{ASK} 64 -"),
    ("a publisher twice (beside)", f"{ASK} 64 - - {ADA}:1 {ADA}:2"),
    ("runs that overlap (beside)", f"{ASK} 64 - - {ADA}:1-3,3"),
    ("a run that goes down (beside)", f"{ASK} 64 - - {ADA}:3-1"),
    ("a number of 19 digits", f"{ASK} 64 - - {ADA}:1000000000000000000"),
    ("the number 0", f"{ASK} 64 - - {ADA}:0"),
    ("a publisher without runs", f"{ASK} 64 - - {ADA}"),
    ("a space behind", f"{ASK} 64 - - "),
    ("a space behind short ids", f"{ASK} 64 # "),
    ("short ids without a space", f"{ASK} 64 #{url(SHORTS[0])}"),
    ("a short id that is cut", f"{ASK} 64 # {url(SHORTS[0])[:-1]}"),
    ("a short id twice (beside)", f"{ASK} 64 # {url(SHORTS[0]) * 2}"),
    ("a word of 7 characters", f"ask {Q} {ADA} {WORD[1:]} - ~ 64 - -"),
    ("bounds out of order (beside)", f"what {Q} {ADA} {WORD} {BOUND} -"),
    ("no word", f"what {Q} {ADA} - ~"),
    ("no part", f"parts {Q}"),
    ("25 parts", f"parts {Q}" + "".join(f" {letter} 7 {FP}" for letter in ORDERED[1:26])),
    ("parts out of order (beside)", f"parts {Q} B 7 {FP} A 7 {FP}"),
    ("a part twice (beside)", f"parts {Q} A 7 {FP} A 7 {FP}"),
    ("a part that ends where all begins (beside)", f"parts {Q} - 7 {FP}"),
    ("a count of 10^18", f"parts {Q} ~ 1000000000000000000 {FP}"),
    ("a count of 513 lines (beside)", f"sent {Q} ~ 513 {WORD}"),
    ("a bound of 33 characters", f"sent {Q} {'z' * 33} 3 {WORD}"),
    ("no word", f"sent {Q} ~ 3"),
    ("no short id", f"kept {Q} "),
    ("a short id twice (beside)", f"kept {Q} {url(SHORTS[0]) * 2}"),
    ("17 short ids", f"kept {Q} " + "".join(url(bytes([at]) * 6) for at in range(17))),
]


def _show(field: str, data: bytes) -> dict[str, str]:
    printable = all(0x20 <= byte <= 0x7E for byte in data) and len(data) <= 120
    return {f"{field}_hex": data.hex(), **({"text": data.decode("ascii")} if printable else {})}


def _both_ways(vectors: list[tuple[str, str, str, dict[str, Any], str | None]]) -> list[dict[str, Any]]:
    return [
        {
            "description": d,
            "kind": kind,
            "fields": fields,
            **_show("payload", payload.encode()),
            **({} if again is None else {"formatted_hex": again.encode().hex()}),
        }
        for kind, d, payload, fields, again in vectors
    ]


def document() -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {
        "about": ABOUT,
        "varints": [{"number": number, "hex": data} for number, data in VARINTS.items()],
        "ids": [
            {
                "description": d,
                "clock": clock,
                "topic_hex": topic.hex(),
                **_show("message", message),
                "c": ordered(eight(clock)),
                "id": ordered(an_id(clock, topic, message)),
            }
            for d, clock, topic, message in IDS
        ],
        "stamps": [
            {"description": d, "attributes": given, "clock": clock, "parents": [ordered(p) for p in parents]}
            for d, given, clock, parents in STAMPS
        ],
        "refused_stamps": [{"description": d, "attributes": given} for d, given in REFUSED_STAMPS],
        "fingerprints": [
            {"ids": [ordered(each) for each in ids], "fingerprint": url(fingerprint(ids))}
            for ids in ([], [ONE], [ONE, TWO], PARENTS)
        ],
        "shorts": [
            {"id": ordered(each), "q": q, "short": url(short(each, q))}
            for each, q in ((ONE, Q), (TWO, Q), (ONE, "00000000"))
        ],
        "said": _both_ways(SAID),
        "refused_said": [{"description": d, **_show("payload", each.encode())} for d, each in REFUSED_SAID],
        "words": _both_ways(WORDS),
        "refused_words": [{"description": d, **_show("payload", each.encode())} for d, each in REFUSED_WORDS],
    }


def text() -> str:
    """The file's text."""
    return json.dumps(document(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="ascii")
