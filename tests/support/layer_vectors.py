"""Golden vectors of members and requests: what `client/vectors/layers.json` says, and why.

Written from PROTOCOL §9.10 and §9.11, by hand; imports nothing of the code that it judges. `python -m
tests.support.layer_vectors` writes the file.
"""

import json
from typing import Any

from tests.support.checkout import ROOT

FILE = ROOT / "client" / "vectors" / "layers.json"

ABOUT = [
    "Golden vectors of members and requests: PROTOCOL, 9.10 and 9.11. Payloads and topics are in hex,",
    "'text' repeats them for the eye if all are printable ASCII.",
    "presence: payloads on .../here. words: payloads in a mailbox. Each goes both ways: parsing the payload",
    "gives kind and fields, formatting these gives the payload, or 'formatted_hex' where that is given.",
    "The unnamed method is '' in 'fields'. What is not UTF-8 in the text of a refusal reads as U+FFFD.",
    "Each of the refused_... must be dropped; 'description' says why.",
    "topics: the layer's topic for a user's topic and a word; null where the user's topic cannot have one.",
]

HN, DY, Q = "Hn2sV0aLxqQ", "dYFjcEqsgdF", "5f0Kz81q"
LONG = "a" + "-" * 63

# kind, description, payload, fields, another form to format
PRESENCE: list[tuple[str, str, bytes, dict[str, Any]]] = [
    ("question", "who is here", b"?", {"method": None}),
    ("question", "who has this method", b"? add", {"method": "add"}),
    ("question", "who has the unnamed method", b"? .", {"method": ""}),
    ("question", "the longest method", b"? " + LONG.encode(), {"method": LONG}),
    ("leaving", "a member leaves", b"-dYFjcEqsgdF", {"member": DY}),
    ("leaving", "a name may begin with a hyphen", b"--YFjcEqsgd_", {"member": "-YFjcEqsgd_"}),
    (
        "present", "two methods", b"+dYFjcEqsgdF 6 add,mul",
        {"member": DY, "seconds": 6, "methods": ["add", "mul"], "info": ""},
    ),
    (
        "present", "no methods, and an info with a space", b"+dYFjcEqsgdF 300 - ada l",
        {"member": DY, "seconds": 300, "methods": [], "info": "ada l"},
    ),
    (
        "present", "the unnamed method beside others, in UTF-8", "+dYFjcEqsgdF 1 .,x.y ø".encode(),
        {"member": DY, "seconds": 1, "methods": ["", "x.y"], "info": "ø"},
    ),
    (
        "present", "an info that is a space", b"+dYFjcEqsgdF 1 -  ",
        {"member": DY, "seconds": 1, "methods": [], "info": " "},
    ),
    (
        "present", "an info with a line feed, of 200 bytes", b"+dYFjcEqsgdF 6 - " + b"a\n" * 100,
        {"member": DY, "seconds": 6, "methods": [], "info": "a\n" * 100},
    ),
    (
        "present", "500 bytes of methods", b"+dYFjcEqsgdF 6 " + b",".join([b"m" * 61] * 8) + b",mmmm",
        {"member": DY, "seconds": 6, "methods": ["m" * 61] * 8 + ["mmmm"], "info": ""},
    ),
]  # fmt: skip

REFUSED_PRESENCE = [
    ("nothing", b""),
    ("another word", b"!dYFjcEqsgdF"),
    ("a question for no method", b"? "),
    ("a question for two methods", b"? add,mul"),
    ("a method of 65 characters", b"? " + b"a" * 65),
    ("a method that begins with a dot", b"? .a"),
    ("a line feed at the end", b"?\n"),
    ("a name of 10 characters", b"-dYFjcEqsgd"),
    ("a name of 12 characters", b"-dYFjcEqsgdFF"),
    ("a name in another alphabet", b"-dYFjcEqsgd+"),
    ("no methods where they must stand", b"+dYFjcEqsgdF 6"),
    ("0 seconds", b"+dYFjcEqsgdF 0 -"),
    ("301 seconds", b"+dYFjcEqsgdF 301 -"),
    ("a leading zero", b"+dYFjcEqsgdF 06 -"),
    ("a sign", b"+dYFjcEqsgdF +6 -"),
    ("an empty method", b"+dYFjcEqsgdF 6 add,,mul"),
    ("none beside a method", b"+dYFjcEqsgdF 6 -,add"),
    ("an empty info", b"+dYFjcEqsgdF 6 add "),
    ("an info of 201 bytes", b"+dYFjcEqsgdF 6 add " + b"i" * 201),
    ("an info that is not UTF-8", b"+dYFjcEqsgdF 6 add \xff"),
    ("501 bytes of methods", b"+dYFjcEqsgdF 6 " + b",".join([b"m" * 61] * 8) + b",mmmmm"),
    (
        "501 bytes of methods and info",
        b"+dYFjcEqsgdF 6 " + b",".join([b"m" * 61] * 5) + b" " + b"i" * 192,
    ),
]

# kind, description, payload, fields, how it is formatted where that is otherwise
WORDS: list[tuple[str, str, bytes, dict[str, Any], bytes | None]] = [
    (
        "asked", "a request", b"?5f0Kz81q Hn2sV0aLxqQ 2000 add [1,2]",
        {"q": Q, "member": HN, "ms": 2000, "method": "add", "payload_hex": b"[1,2]".hex()}, None,
    ),
    (
        "asked", "an empty one, for the unnamed method", b"?5f0Kz81q Hn2sV0aLxqQ 1 . ",
        {"q": Q, "member": HN, "ms": 1, "method": "", "payload_hex": ""}, None,
    ),
    (
        "asked", "any bytes, and the longest time", b"?5f0Kz81q Hn2sV0aLxqQ 3600000 a  \n\0\xff",
        {"q": Q, "member": HN, "ms": 3_600_000, "method": "a", "payload_hex": b" \n\0\xff".hex()}, None,
    ),
    ("more", "the parts from 32 on", b">5f0Kz81q Hn2sV0aLxqQ 32", {"q": Q, "member": HN, "part": 32}, None),
    ("more", "the last part", b">5f0Kz81q Hn2sV0aLxqQ 511", {"q": Q, "member": HN, "part": 511}, None),
    (
        "answer", "the only part", b"=5f0Kz81q dYFjcEqsgdF 0/1 3",
        {"q": Q, "member": DY, "part": 0, "parts": 1, "payload_hex": b"3".hex()}, None,
    ),
    (
        "answer", "the last of the most parts", b"=5f0Kz81q dYFjcEqsgdF 511/512 \n",
        {"q": Q, "member": DY, "part": 511, "parts": 512, "payload_hex": b"\n".hex()}, None,
    ),
    ("working", "a worker works", b"~5f0Kz81q dYFjcEqsgdF", {"q": Q, "member": DY}, None),
    (
        "declined", "busy", b"!5f0Kz81q dYFjcEqsgdF busy",
        {"q": Q, "member": DY, "code": "busy", "text": ""}, None,
    ),
    (
        "declined", "with a text", b"!5f0Kz81q dYFjcEqsgdF limited 3",
        {"q": Q, "member": DY, "code": "limited", "text": "3"}, None,
    ),
    (
        "declined", "with an empty text", b"!5f0Kz81q dYFjcEqsgdF abcdefghijklmnop ",
        {"q": Q, "member": DY, "code": "abcdefghijklmnop", "text": ""},
        b"!5f0Kz81q dYFjcEqsgdF abcdefghijklmnop",
    ),
    (
        "declined", "with a text that is not UTF-8", b"!5f0Kz81q dYFjcEqsgdF failed \xff",
        {"q": Q, "member": DY, "code": "failed", "text": "\N{REPLACEMENT CHARACTER}"},
        "!5f0Kz81q dYFjcEqsgdF failed \N{REPLACEMENT CHARACTER}".encode(),
    ),
]  # fmt: skip

REFUSED_WORDS = [
    ("nothing", b""),
    ("another word", b"+5f0Kz81q dYFjcEqsgdF"),
    ("a q of 7 characters", b"~5f0Kz81 dYFjcEqsgdF"),
    ("a q of 9 characters", b"~5f0Kz81qq dYFjcEqsgdF"),
    ("a name of 10 characters", b"~5f0Kz81q dYFjcEqsgd"),
    ("a name of 12 characters", b"~5f0Kz81q dYFjcEqsgdFF"),
    ("a line feed at the end", b"~5f0Kz81q dYFjcEqsgdF\n"),
    ("no time left", b"?5f0Kz81q Hn2sV0aLxqQ 0 add x"),
    ("more than an hour", b"?5f0Kz81q Hn2sV0aLxqQ 3600001 add x"),
    ("a time of 8 digits", b"?5f0Kz81q Hn2sV0aLxqQ 10000000 add x"),
    ("a leading zero in the time", b"?5f0Kz81q Hn2sV0aLxqQ 02 add x"),
    ("no method", b"?5f0Kz81q Hn2sV0aLxqQ 2  x"),
    ("no space after the method", b"?5f0Kz81q Hn2sV0aLxqQ 2 add"),
    ("two methods", b"?5f0Kz81q Hn2sV0aLxqQ 2 add,mul x"),
    ("part 3 of 3", b"=5f0Kz81q dYFjcEqsgdF 3/3 x"),
    ("part 0 of 0", b"=5f0Kz81q dYFjcEqsgdF 0/0 x"),
    ("513 parts", b"=5f0Kz81q dYFjcEqsgdF 0/513 x"),
    ("a leading zero in the part", b"=5f0Kz81q dYFjcEqsgdF 00/1 x"),
    ("a leading zero in the number of parts", b"=5f0Kz81q dYFjcEqsgdF 0/01 x"),
    ("an answer without a space", b"=5f0Kz81q dYFjcEqsgdF 0/1"),
    ("the parts from 512 on", b">5f0Kz81q Hn2sV0aLxqQ 512"),
    ("a leading zero in what is asked for", b">5f0Kz81q Hn2sV0aLxqQ 01"),
    ("no part", b">5f0Kz81q Hn2sV0aLxqQ"),
    ("a code in upper case", b"!5f0Kz81q dYFjcEqsgdF Busy"),
    ("a code of 17 letters", b"!5f0Kz81q dYFjcEqsgdF abcdefghijklmnopq"),
    ("no code", b"!5f0Kz81q dYFjcEqsgdF"),
]

TOPICS: list[tuple[str, bytes, bytes, bytes | None]] = [
    ("a topic without a tag", b"sum", b"here", b"{sum}/here"),
    ("its mailbox", b"sum", HN.encode(), b"{sum}/Hn2sV0aLxqQ"),
    ("a topic with a tag", b"{game7}/chat", b"here", b"{game7}/chat//here"),
    ("a tag alone", b"{a}", b"here", b"{a}//here"),
    ("a { that nothing closes is no tag", b"a{b", b"here", b"{a{b}/here"),
    ("a tag behind an empty pair", b"{}{a}", b"here", b"{}{a}//here"),
    ("120 bytes", b"t" * 120, b"here", b"{" + b"t" * 120 + b"}/here"),
    ("121 bytes", b"t" * 121, b"here", None),
    ("121 bytes with their escapes", b"t" * 118 + b" ", b"here", None),
    ("a } without a tag", b"a}b", b"here", None),
    ("an empty pair", b"{}", b"here", None),
    ("a topic that names its senders", b"~" + b"A" * 22 + b"/x", b"here", None),
    ("one of kcast's own", b"\0health", b"here", None),
    ("no topic", b"", b"here", None),
]


def _show(field: str, data: bytes) -> dict[str, str]:
    printable = all(0x20 <= byte <= 0x7E for byte in data) and len(data) <= 80
    return {f"{field}_hex": data.hex(), **({"text": data.decode("ascii")} if printable else {})}


def document() -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {
        "about": ABOUT,
        "presence": [
            {"description": d, "kind": kind, "fields": fields, **_show("payload", payload)}
            for kind, d, payload, fields in PRESENCE
        ],
        "refused_presence": [
            {"description": d, **_show("payload", payload)} for d, payload in REFUSED_PRESENCE
        ],
        "words": [
            {
                "description": d,
                "kind": kind,
                "fields": fields,
                **_show("payload", payload),
                **({} if again is None else {"formatted_hex": again.hex()}),
            }
            for kind, d, payload, fields, again in WORDS
        ],
        "refused_words": [{"description": d, **_show("payload", payload)} for d, payload in REFUSED_WORDS],
        "topics": [
            {
                "description": d,
                "topic_hex": topic.hex(),
                "word": word.decode(),
                "name_hex": None if name is None else name.hex(),
            }
            for d, topic, word, name in TOPICS
        ],
    }


def text() -> str:
    """The file's text."""
    return json.dumps(document(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="ascii")
