"""Golden vectors of the wire: what `pubsub/vectors/wire.json` says, and why.

Written from PROTOCOL.md, by hand; imports nothing of the code that it judges. `python -m
tests.support.wire_vectors` writes the file. `tests.support.grammar` reads the ABNF out of PROTOCOL.md itself,
so that code, text and vectors can be held against each other.
"""

import json
from base64 import urlsafe_b64encode
from hashlib import blake2b, blake2s
from ipaddress import ip_address
from typing import Any

from tests.support.checkout import ROOT

FILE = ROOT / "pubsub" / "vectors" / "wire.json"

ABOUT = [
    "Golden vectors of the kcast wire, version 1. 'section' is that of PROTOCOL.md.",
    "Fields that end in _hex are bytes in hex. 'text' repeats them for the eye if all are printable ASCII.",
    "Lines stand without the LF that ends them; datagrams are whole.",
    "Each of topics, messages, control_lines and envelopes goes both ways: parsing the wire form gives the",
    "fields, formatting the fields gives the wire form, or 'formatted_hex' where that is given.",
    "envelopes: 'attributes' are without B=1, which says how the payload stands in the line. What signatures",
    "prove is not asked: client/vectors/sealed.json has signed and sealed messages.",
    "sealed_envelopes: what is read of them, up to the seal; 'payload_hex' is what it holds, still sealed.",
    "Each of the refused_... must be refused; 'reason' says why.",
    "datagrams: 'lines_hex' are the non-blank lines, 'unterminated' tells of bytes after the last LF, and",
    "'verdict' is what a server does first: taken, or dropped whole as oversize, empty or too-many-lines.",
    "cookies: the reference construction of section 6.1; 'keeping' tells whether keeping many leases has a",
    "price. A server may make its cookies otherwise.",
    "stamps: 'topics_hex' are all subscribe lines of the datagram in order, 'worth_bits' the zero bits that",
    "'work_hex' begins with, and 'valid' tells whether the stamp pays 'bits'.",
    "prices: what a datagram costs that opens 'new_leases' where one costs 'bits', and renews 'kept_leases'",
    "beyond the first 8 of its address, where keeping them has a price.",
]

Vector = dict[str, Any]


def _show(field: str, data: bytes) -> Vector:
    printable = all(0x20 <= byte <= 0x7E for byte in data) and len(data) <= 80
    return {f"{field}_hex": data.hex(), **({"text": data.decode("ascii")} if printable else {})}


# --- Topics and messages (§3) ------------------------------------------------------------------------

TOPICS = [
    ("the shortest topic", b"a", b"a"),
    ("a path is one topic like others", b"weather/oslo", b"weather/oslo"),
    ("space cannot stand in a topic as it is", b"living room", b"living%20room"),
    ("the percent sign itself", b"100%", b"100%25"),
    ("what looks like an escape is a name like others", b"%41", b"%2541"),
    ("what looks like a control line is a name like others", b"%? N", b"%25?%20N"),
    ("NUL begins the names that are kcast's own (§3.4)", b"\0kcast/head", b"%00kcast/head"),
    ("line feed", b"a\nb", b"a%0Ab"),
    ("carriage return", b"a\r", b"a%0D"),
    ("tab", b"\t", b"%09"),
    ("the last control byte", b"\x1f", b"%1F"),
    ("0x21 and 0x7E are the first and last byte that stand for themselves", b"!~", b"!~"),
    ("all neighbours of the percent sign stand for themselves", b"$&", b"$&"),
    ("DEL", b"\x7f", b"%7F"),
    ("the first and the last byte above ASCII", b"\x80\xff", b"%80%FF"),
    ("UTF-8 is escaped in topics", "Tromsø".encode(), b"Troms%C3%B8"),
    ("bytes need not be UTF-8", b"\xc3", b"%C3"),
    ("braces are bytes like others on the wire", b"{user7}/inbox", b"{user7}/inbox"),
    ("255 bytes are the most", b"t" * 255, b"t" * 255),
    ("the limit is on the wire form: 85 escapes", b"\0" * 85, b"%00" * 85),
]

REFUSED_TOPICS = [
    ("empty", b"", "1 to 255 bytes"),
    ("256 bytes", b"t" * 256, "1 to 255 bytes"),
    ("86 escapes", b"%00" * 86, "1 to 255 bytes"),
    ("a space", b"a b", "outside 0x21..0x7E"),
    ("a tab", b"a\tb", "outside 0x21..0x7E"),
    ("a line feed", b"a\n", "outside 0x21..0x7E"),
    ("a carriage return at the end, as some tools add", b"a\r", "outside 0x21..0x7E"),
    ("a raw NUL", b"\0", "outside 0x21..0x7E"),
    ("a raw DEL", b"\x7f", "outside 0x21..0x7E"),
    ("raw UTF-8", "ø".encode(), "outside 0x21..0x7E"),
    ("lower-case hex", b"Troms%c3%b8", "upper case"),
    ("mixed-case hex, the second lower", b"%Ab", "upper case"),
    ("mixed-case hex, the first lower", b"%aB", "upper case"),
    ("lower-case DEL", b"%7f", "upper case"),
    ("lower-case line feed", b"%0a", "upper case"),
    ("a letter escaped", b"%41", "no other byte is escaped"),
    ("0x21 escaped", b"%21", "no other byte is escaped"),
    ("0x24 escaped", b"%24", "no other byte is escaped"),
    ("0x26 escaped", b"%26", "no other byte is escaped"),
    ("the slash escaped", b"a%2Fb", "no other byte is escaped"),
    ("0x7E escaped", b"%7E", "no other byte is escaped"),
    ("a percent sign alone", b"%", "an escape is % and two hex digits"),
    ("an escape cut short", b"a%2", "an escape is % and two hex digits"),
    ("a percent sign at the end", b"100%", "an escape is % and two hex digits"),
    ("no hex digit", b"%2G", "an escape is % and two hex digits"),
    ("a control verb", b"%?", "an escape is % and two hex digits"),
]

MESSAGES = [
    ("empty", b"", b""),
    ("text", b"hello", b"hello"),
    ("spaces stand as they are, first and last too", b"  a b  ", b"  a b  "),
    ("JSON stays readable", b'{"t":-3.5,"u":"C"}', b'{"t":-3.5,"u":"C"}'),
    ("UTF-8 stays as it is", "Tromsø".encode(), "Tromsø".encode()),
    ("bytes above ASCII need not be UTF-8", b"\x80\x9f\xff", b"\x80\x9f\xff"),
    ("the percent sign itself", b"50%", b"50%25"),
    ("what looks like an escape", b"%41", b"%2541"),
    ("what looks like an envelope", b"%@a.1 x", b"%25@a.1 x"),
    ("line feed", b"two\nlines", b"two%0Alines"),
    ("carriage return", b"\r", b"%0D"),
    ("tab", b"\t", b"%09"),
    ("NUL", b"\0", b"%00"),
    ("the last control byte", b"\x1f", b"%1F"),
    ("DEL", b"\x7f", b"%7F"),
    ("0x20 to 0x24 stand for themselves", b' !"#$', b' !"#$'),
    ("0x26 and 0x7E stand for themselves", b"&~", b"&~"),
]

REFUSED_MESSAGES = [
    ("a percent sign alone", b"%", "an escape is % and two hex digits"),
    ("a percent sign in text", b"100% sure", "an escape is % and two hex digits"),
    ("an escape cut short", b"a%0", "an escape is % and two hex digits"),
    ("a letter escaped", b"%41", "no other byte is escaped"),
    ("a space escaped, as topics have it", b"%20", "no other byte is escaped"),
    ("a high byte escaped, as topics have it", b"%C3", "no other byte is escaped"),
    ("lower-case hex", b"%0a", "upper case"),
    ("lower-case DEL", b"%7f", "upper case"),
    ("a raw tab", b"a\tb", "control bytes are escaped"),
    ("a raw carriage return", b"a\r", "control bytes are escaped"),
    ("a raw NUL", b"\0", "control bytes are escaped"),
    ("a raw line feed", b"\n", "control bytes are escaped"),
    ("a raw DEL", b"\x7f", "control bytes are escaped"),
    ("a control verb", b"%? N", "an escape is % and two hex digits"),
]

# --- Control lines (§5) ------------------------------------------------------------------------------

COOKIE = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
NONCE_MAX = "0123456789-_abcdefXYZ0"
VERSION_MAX = "1!0.5.0rc1.post2.dev3+g0_a-Z9AAA"
HEAD = "sha256:0a-Z_/+~!"

# kind, section, description, fields, line, and the line as formatted again where it differs
CONTROL_LINES: list[tuple[str, str, str, Vector, str, str | None]] = [
    ("ask", "5.3", "the shortest", {"nonce": "N"}, "%? N", None),
    ("ask", "5.3", "the longest nonce", {"nonce": NONCE_MAX}, f"%? {NONCE_MAX}", None),
    ("ask", "5", "a nonce may be a hyphen", {"nonce": "-"}, "%? -", None),
    ("ask", "5.1", "an unknown attribute is ignored", {"nonce": "N"}, "%? N x=1", "%? N"),
    ("ask", "5.1", "attributes may be empty", {"nonce": "N"}, "%? N x= y-2==", "%? N"),
    *(
        ("vouch", "5.4", description, {"nonce": "N", "cookie": COOKIE, "stamp": stamp}, line, again)
        for description, stamp, line, again in (
            ("without proof of work", None, f"%! N {COOKIE} -", None),
            ("with a stamp", "Zm9v", f"%! N {COOKIE} Zm9v", None),
            ("a stamp may begin with a hyphen", "--", f"%! N {COOKIE} --", None),
            ("the longest stamp", NONCE_MAX, f"%! N {COOKIE} {NONCE_MAX}", None),
            ("unknown attribute", None, f"%! N {COOKIE} - v=2", f"%! N {COOKIE} -"),
        )
    ),
    ("vouch", "5.4", "the longest", {"nonce": NONCE_MAX, "cookie": "_" * 32, "stamp": NONCE_MAX},
     f"%! {NONCE_MAX} {'_' * 32} {NONCE_MAX}", None),
    ("vouch", "5.1", "asks for the version",
     {"nonce": "N", "cookie": COOKIE, "stamp": None, "asks_version": True},
     f"%! N {COOKIE} - version=?", None),
    ("vouch", "5.1", "the last one counts", {"nonce": "N", "cookie": COOKIE, "stamp": None},
     f"%! N {COOKIE} - version=? version=1 xversion=?", f"%! N {COOKIE} -"),
    ("ping", "5.5", "plain", {"nonce": "p1"}, "%~ p1", None),
    ("ping", "5.1", "an unknown attribute is ignored", {"nonce": "p1"}, "%~ p1 a=b", "%~ p1"),
    *(
        ("challenge", section, description,
         {"nonce": "N", "cookie": COOKIE, "bits": bits, "attributes": attributes}, line, None)
        for section, description, bits, attributes, line in (
            ("5.6", "no work asked", 0, {}, f"%= N {COOKIE} 0"),
            ("5.6", "work asked", 20, {}, f"%= N {COOKIE} 20"),
            ("5", "the most bits", 99, {}, f"%= N {COOKIE} 99"),
            ("5.1", "the list's head", 0, {"head": HEAD}, f"%= N {COOKIE} 0 head={HEAD}"),
            ("5.1", "the longest head, about to stop", 24, {"head": "~" * 32, "drain": "1"},
             f"%= N {COOKIE} 24 head={'~' * 32} drain=1"),
        )
    ),
    *(
        ("receipt", section, description,
         {"nonce": "N", "ttl": ttl, "cookie": COOKIE, "bits": 0, "attributes": attributes}, line, None)
        for section, description, ttl, attributes, line in (
            ("5.7", "the default ttl", 60, {}, f"%+ N 60 {COOKIE} 0"),
            ("5", "the longest ttl", 9999999, {}, f"%+ N 9999999 {COOKIE} 0"),
            ("5", "no ttl", 0, {}, f"%+ N 0 {COOKIE} 0"),
            ("5.1", "attributes beside a map of refused lines", 60, {"bare": "0", "head": HEAD, "drain": "1"},
             f"%+ N 60 {COOKIE} 0 bare=0 head={HEAD} drain=1"),
            ("5.7", "nobody has leased what was published", 60, {"audience": "0"},
             f"%+ N 60 {COOKIE} 0 audience=0"),
            ("5.7", "the longest answer to publishes alone", 9999999,
             {"bare": "0", "audience": "9999999", "head": "~" * 32, "drain": "1"},
             f"%+ N 9999999 {COOKIE} 0 bare=0 audience=9999999 head={'~' * 32} drain=1"),
            ("5.1", "the longest answer to who asks for the version as well", 9999999,
             {"bare": "0", "audience": "9999999", "head": "~" * 32, "drain": "1", "version": VERSION_MAX},
             f"%+ N 9999999 {COOKIE} 0 bare=0 audience=9999999 head={'~' * 32} drain=1"
             f" version={VERSION_MAX}"),
            ("5.1", "reserved attributes", 60, {"credit": "1048576", "drain": "1"},
             f"%+ N 60 {COOKIE} 0 credit=1048576 drain=1"),
            ("5.1", "an unknown attribute; its value may hold an equals sign", 60, {"x-1": "a=b", "y": ""},
             f"%+ N 60 {COOKIE} 0 x-1=a=b y="),
        )
    ),
    *(
        ("refusal", section, description,
         {"nonce": "N", "reason": reason, "lines": lines, "attributes": attributes}, line, again)
        for section, description, reason, lines, attributes, line, again in (
            ("5.8", "the first subscribe line", "full", 1, {}, "%- N full 1", None),
            ("5.8", "the first and the fifth", "topic", 0b10001, {}, "%- N topic 11", None),
            ("5.8", "the 64th alone", "topic", 1 << 63, {}, "%- N topic 8000000000000000", None),
            ("5.8", "all 64", "full", 2**64 - 1, {}, "%- N full ffffffffffffffff", None),
            ("5.8", "all of the datagram", "drain", None, {}, "%- N drain -", None),
            ("5", "a long reason with hyphens", "a-------------bc", 10, {}, "%- N a-------------bc a", None),
            ("5", "leading zeros say nothing", "full", 1, {}, "%- N full 0001", "%- N full 1"),
            ("5.1", "with an attribute", "rate", None, {"credit": "0"}, "%- N rate - credit=0", None),
            ("5.8", "the price", "work", 0b110, {"bits": "20"}, "%- N work 6 bits=20", None),
            ("5.8", "too many lines", "size", None, {"lines": "16"}, "%- N size - lines=16", None),
            ("5.8", "publishes too much", "rate", None, {}, "%- N rate -", None),
            ("5.8", "about to stop", "drain", 1, {"drain": "1"}, "%- N drain 1 drain=1", None),
            *(("5.8", "a limit", reason, 1, {}, f"%- N {reason} 1", None)
              for reason in ("address", "prefix", "topics")),
        )
    ),
    ("pong", "5.9", "a lease of 37 s", {"nonce": "p1", "left": 37, "attributes": {}}, "%: p1 37", None),
    ("pong", "5.9", "no lease", {"nonce": "p1", "left": 0, "attributes": {}}, "%: p1 0", None),
    ("pong", "5.1", "about to stop", {"nonce": "p1", "left": 5, "attributes": {"drain": "1"}},
     "%: p1 5 drain=1", None),
]  # fmt: skip

REFUSED_CONTROL_LINES: list[tuple[str, bytes]] = [
    *((reason, line.encode("latin-1")) for reason, line in (
        ("no nonce", "%?"),
        ("no nonce after the space", "%? "),
        ("no space", "%?N"),
        ("two spaces", "%?  N"),
        ("a space at the end", "%? N "),
        ("a tab for a space", "%?\tN"),
        ("a carriage return at the end", "%? N\r"),
        ("23 characters of nonce", "%? " + "n" * 23),
        ("a nonce that is not base64url", "%? N+"),
        ("a nonce that is not base64url", "%? N/"),
        ("padding of base64 in a nonce", "%? N="),
        ("a nonce that is not ASCII", "%? \xf8"),
        ("an attribute without a name", "%? N =1"),
        ("an attribute without an equals sign", "%? N x"),
        ("an attribute in upper case", "%? N X=1"),
        ("an attribute that begins with a digit", "%? N 1=1"),
        ("an attribute's name in which a capital stands", "%? N aB=1"),
        ("a value that is not ASCII", "%? N x=\xe9"),
        ("a value with a tab in it", "%? N x=a\tb"),
        ("a verb in place of another's fields", f"%? N {COOKIE} -"),
        ("no cookie", "%! N"),
        ("no stamp", f"%! N {COOKIE}"),
        ("an empty stamp", f"%! N {COOKIE} "),
        ("31 characters of cookie", f"%! N {COOKIE[1:]} -"),
        ("33 characters of cookie", f"%! N {COOKIE}A -"),
        ("a cookie that is not base64url", f"%! N {COOKIE[1:]}. -"),
        ("23 characters of stamp", f"%! N {COOKIE} " + "s" * 23),
        ("an attribute in the stamp's place", f"%! N {COOKIE} v=2"),
        ("no nonce", "%~"),
        ("two nonces", "%~ N N"),
        ("no bits", f"%= N {COOKIE}"),
        ("three digits of bits", f"%= N {COOKIE} 100"),
        ("a leading zero", f"%= N {COOKIE} 07"),
        ("a sign", f"%= N {COOKIE} -1"),
        ("31 characters of cookie", f"%= N {COOKIE[1:]} 0"),
        ("fields in another order", f"%+ N {COOKIE} 60 0"),
        ("eight digits of ttl", f"%+ N 10000000 {COOKIE} 0"),
        ("a leading zero", f"%+ N 060 {COOKIE} 0"),
        ("a fraction", f"%+ N 1.5 {COOKIE} 0"),
        ("no ttl", f"%+ N {COOKIE} 0"),
        ("no hexmap", "%- N full"),
        ("no reason", "%- N 1"),
        ("17 digits of hexmap", "%- N full 00000000000000001"),
        ("a hexmap in upper case", "%- N full F"),
        ("a hexmap with a prefix", "%- N full 0x1"),
        ("17 characters of reason", "%- N " + "r" * 17 + " 1"),
        ("a reason in upper case", "%- N Full 1"),
        ("a reason that begins with a hyphen", "%- N -full 1"),
        ("a digit in the reason", "%- N full2 1"),
        ("no seconds", "%: N"),
        ("a leading zero", "%: N 00"),
        ("eight digits of seconds", "%: N 10000000"),
        ("not a number", "%: N -"),
        ("an unknown verb", "%# N"),
        ("a verb that is a letter", "%z N"),
        ("an envelope without its topic", "%@p.1 x"),
        ("a percent sign alone", "%"),
        ("no control line", "a"),
        ("no control line but an escape", "%20 N"),
        ("a blank line", ""),
        ("a control line within a line", "a %? N"),
        ("the LF is no part of a line", "%? N\n"),
    )),
]  # fmt: skip

# --- Datagrams (§2) ----------------------------------------------------------------------------------

_ASK = b"%? N\n"

# section, description, datagram, lines, unterminated, verdict
DATAGRAMS: list[tuple[str, str, bytes, list[bytes], bool, str]] = [
    ("2.2", "nothing", b"", [], False, "empty"),
    ("2.2", "one line", b"a\n", [b"a"], False, "taken"),
    ("4.1", "subscribe and publish share it", b"a\nb hello\n", [b"a", b"b hello"], False, "taken"),
    ("2.2", "bytes after the last LF are dropped", b"a\nb", [b"a"], True, "taken"),
    ("2.2", "no LF at all", b"a", [], True, "empty"),
    ("2.2", "a carriage return is a byte like others", b"a\r\n", [b"a\r"], False, "taken"),
    ("2.2", "other line ends are bytes like others", b"a\x0b\x0c\x85\xe2\x80\xa8\n",
     [b"a\x0b\x0c\x85\xe2\x80\xa8"], False, "taken"),
    ("2.3", "blank lines are padding", b"\n\na\n\n\nb\n\n", [b"a", b"b"], False, "taken"),
    ("2.3", "nothing but padding", b"\n" * 192, [], False, "empty"),
    ("4.4", "copies from an open server: a blank line and the lines", b"\nt m\nt n\n",
     [b"t m", b"t n"], False, "taken"),
    ("2.3", "a space is no blank line", b" \n", [b" "], False, "taken"),
    ("5.2", "a request padded to 192 bytes", _ASK.ljust(192, b"\n"), [b"%? N"], False, "taken"),
    ("2.1", "64 lines", b"".join(b"t%d\n" % i for i in range(64)), [b"t%d" % i for i in range(64)], False,
     "taken"),
    ("2.1", "65 lines", b"".join(b"t%d\n" % i for i in range(65)), [b"t%d" % i for i in range(65)], False,
     "too-many-lines"),
    ("2.3", "64 lines, and padding, which is not counted", b"\n".join(b"t%d\n" % i for i in range(64)),
     [b"t%d" % i for i in range(64)], False, "taken"),
    ("2.2", "64 lines and a tail, which is no line", b"t\n" * 64 + b"t", [b"t"] * 64, True, "taken"),
    ("2.1", "1200 bytes", b"t " + b"m" * 1197 + b"\n", [b"t " + b"m" * 1197], False, "taken"),
    ("2.1", "1201 bytes", b"t " + b"m" * 1198 + b"\n", [b"t " + b"m" * 1198], False, "oversize"),
    ("2.1", "1201 bytes, the last of them padding", b"t " + b"m" * 1197 + b"\n\n", [b"t " + b"m" * 1197],
     False, "oversize"),
]  # fmt: skip

# --- Envelopes (§9) ----------------------------------------------------------------------------------

_EVERY_BYTE = bytes(range(256))
_BINARY_800 = bytes(800)
_G = urlsafe_b64encode(bytes(range(96))).decode()  # a signature's form: what it proves, nobody asks here
_S = urlsafe_b64encode(bytes(range(38))).rstrip(b"=").decode()  # of 6 bytes of tag, and 32 of key
_SEALED_TEXT = urlsafe_b64encode(bytes(range(48))).rstrip(b"=").decode()

# section, description, publisher, seq, attributes, payload, wire, the attribute that must be understood
ENVELOPES: list[tuple[str, str, str, int, dict[str, str], bytes, bytes, str | None]] = [
    ("9.1", "plain", "0123456789a", 1, {}, b"hello", b"%@0123456789a.1 hello", None),
    ("9.1", "an empty payload", "p", 2, {}, b"", b"%@p.2 ", None),
    ("9.1", "the payload begins after one space", "p", 2, {}, b" x", b"%@p.2  x", None),
    ("9.1", "the longest publisher", "_" * 43, 7, {}, b"x", b"%@" + b"_" * 43 + b".7 x", None),
    ("9.1", "hyphens and underscores", "-_", 10, {}, b"x", b"%@-_.10 x", None),
    ("9.1", "the highest seq", "p", 10**18 - 1, {}, b"x", b"%@p.999999999999999999 x", None),
    ("9.2", "time", "p", 1, {"t": "1767225600000"}, b"x", b"%@p.1;t=1767225600000 x", None),
    ("9.2", "two attributes, one unknown", "p", 1, {"t": "1", "x-y2": "a:b=c"}, b"x",
     b"%@p.1;t=1;x-y2=a:b=c x", None),
    ("9.2", "an empty value", "p", 1, {"r": ""}, b"x", b"%@p.1;r= x", None),
    ("9.2", "a name in upper case has to be understood", "p", 1, {"T": "text/plain"}, b"x",
     b"%@p.1;T=text/plain x", "T"),
    ("9.2", "also where it is not the first", "p", 1, {"t": "1", "Zz": "1"}, b"x", b"%@p.1;t=1;Zz=1 x", "Zz"),
    ("9.2", "only the first letter counts", "p", 1, {"aB": "1"}, b"x", b"%@p.1;aB=1 x", None),
    ("9.1", "the payload is encoded as any message", "p", 1, {}, b"50%\n\xff", b"%@p.1 50%25%0A\xff", None),
    ("9.1", "an envelope within", "p", 1, {}, b"%@q.1 x", b"%@p.1 %25@q.1 x", None),
    ("9.2", "two line feeds are shorter %-encoded than in base64url with its mark", "p", 1, {}, b"\n\n",
     b"%@p.1 %0A%0A", None),
    ("9.2", "three are longer", "p", 1, {}, b"\n\n\n", b"%@p.1;B=1 CgoK", None),
    ("9.2", "of two lines of one length, the %-encoded one", "p", 1, {}, b"a\n\n\n",
     b"%@p.1 a%0A%0A%0A", None),
    ("9.2", "no padding: two characters for one byte more", "p", 1, {}, bytes(4), b"%@p.1;B=1 AAAAAA", None),
    ("9.2", "three for two", "p", 1, {}, bytes(5), b"%@p.1;B=1 AAAAAAA", None),
    ("9.2", "bytes above ASCII need no base64url", "p", 1, {}, b"\xff" * 8, b"%@p.1 " + b"\xff" * 8, None),
    ("9.2", "characters 62 and 63 are - and _", "p", 1, {}, b"\0\1\2\3\xfb\xff",
     b"%@p.1;B=1 AAECA_v_", None),
    ("9.2", "some of each: %-encoding is shorter", "p", 1, {}, _EVERY_BYTE,
     b"%@p.1 " + b"".join(b"%%%02X" % b if b < 32 or b in (37, 127) else bytes([b]) for b in _EVERY_BYTE),
     None),
    ("9.5", "any 800 bytes fit on a topic of 12, whatever the number", "0123456789a", 10**18 - 1, {},
     _BINARY_800, b"%@0123456789a.999999999999999999;B=1 " + b"A" * 1067, None),
    ("9.2", "with another attribute", "p", 1, {"t": "5"}, b"\n\n\n", b"%@p.1;B=1;t=5 CgoK", None),
    ("9.2", "with one that has to be understood", "p", 1, {"T": "x"}, b"\n\n\n", b"%@p.1;B=1;T=x CgoK", "T"),
    ("9.2", "a value of B that is not known", "p", 1, {"B": "2"}, b"CgoK", b"%@p.1;B=2 CgoK", "B"),
    ("9.2", "signed", "p", 1, {"t": "1790000000000", "g": _G}, b"50%",
     f"%@p.1;t=1790000000000;g={_G} 50%25".encode(), None),
    ("9.2", "a signature without a time", "p", 1, {"g": _G}, b"x", f"%@p.1;g={_G} x".encode(), None),
    ("9.2", "signed, in base64url", "p", 1, {"t": "1", "g": _G}, b"\n\n\n",
     f"%@p.1;B=1;t=1;g={_G} CgoK".encode(), None),
    ("9.2", "signed, and not to be understood", "p", 1, {"T": "x", "g": _G}, b"x",
     f"%@p.1;T=x;g={_G} x".encode(), "T"),
]  # fmt: skip

# The same without the last: what is sent otherwise, and must be understood all the same.
READ_ENVELOPES: list[tuple[str, str, str, int, dict[str, str], bytes, bytes, bytes]] = [
    ("9.2", "B=1 may stand anywhere among the attributes", "p", 1, {"t": "5"}, b"\n\n\n",
     b"%@p.1;t=5;B=1 CgoK", b"%@p.1;B=1;t=5 CgoK"),
    ("9.2", "text in base64url, although it is longer", "p", 1, {}, b"hello", b"%@p.1;B=1 aGVsbG8",
     b"%@p.1 hello"),
    ("9.2", "nothing in base64url", "p", 1, {}, b"", b"%@p.1;B=1 ", b"%@p.1 "),
    ("9.2", "%-encoding, although it is longer", "p", 1, {}, b"\n\n\n", b"%@p.1 %0A%0A%0A",
     b"%@p.1;B=1 CgoK"),
    ("9.2", "an attribute that stands twice: the last counts", "p", 1, {}, b"\n\n\n",
     b"%@p.1;B=2;B=1 CgoK", b"%@p.1;B=1 CgoK"),
    ("9.2", "the time twice, before a signature: the last counts", "p", 1, {"t": "2", "g": _G}, b"x",
     f"%@p.1;t=1;t=2;g={_G} x".encode(), f"%@p.1;t=2;g={_G} x".encode()),
    ("9.2", "signed, in the longer form, which is what was signed", "p", 1, {"g": _G}, b"hello",
     f"%@p.1;B=1;g={_G} aGVsbG8".encode(), f"%@p.1;g={_G} hello".encode()),
]  # fmt: skip

# What is sealed is read, up to its seal, and made of what nobody sees here: so there is no way back. The last
# is what is sealed, in bytes.
SEALED_ENVELOPES: list[tuple[str, str, int, dict[str, str], bytes, bytes]] = [
    ("sealed", "0123456789a", 1000, {"S": _S}, f"%@0123456789a.1000;S={_S} {_SEALED_TEXT}".encode(),
     bytes(range(48))),
    ("sealed, of a length that leaves two bits over", "p", 1, {"S": _S}, f"%@p.1;S={_S} CgoKCgo".encode(),
     b"\n\n\n\n\n"),
    ("nothing, which is no seal's, is read all the same", "p", 1, {"S": _S}, f"%@p.1;S={_S} ".encode(), b""),
    ("sealed, with an attribute of a later version", "p", 1, {"S": _S, "x": "1"},
     f"%@p.1;S={_S};x=1 CgoK".encode(), b"\n\n\n"),
]  # fmt: skip

REFUSED_ENVELOPES = [
    ("no publisher", b"%@.1 x"),
    ("44 characters of publisher", b"%@" + b"p" * 44 + b".1 x"),
    ("a publisher that is not base64url", b"%@p+.1 x"),
    ("no seq", b"%@p. x"),
    ("no dot", b"%@p x"),
    ("seq 0", b"%@p.0 x"),
    ("a leading zero", b"%@p.01 x"),
    ("19 digits of seq", b"%@p.1000000000000000000 x"),
    ("a sign", b"%@p.-1 x"),
    ("no space, so no payload", b"%@p.1"),
    ("an attribute without a name", b"%@p.1;=x x"),
    ("an attribute without an equals sign", b"%@p.1;t x"),
    ("an attribute that begins with a digit", b"%@p.1;1=x x"),
    ("an empty attribute", b"%@p.1; x"),
    ("a semicolon at the end", b"%@p.1;t=1; x"),
    ("a percent sign in a value", b"%@p.1;t=%41 x"),
    ("a value that is not ASCII", b"%@p.1;t=\xc3\xb8 x"),
    ("a name in which an underscore stands", b"%@p.1;a_b=1 x"),
    ("a tab for the space", b"%@p.1\tx"),
    ("a payload with a letter escaped", b"%@p.1 %41"),
    ("a payload with a raw control byte", b"%@p.1 \x01"),
    ("a payload that is cut in an escape", b"%@p.1 50%2"),
    ("another sign for the at sign", b"%%p.1 x"),
    ("base64url with padding", b"%@p.1;B=1 Cg=="),
    ("base64url with padding", b"%@p.1;B=1 CgoKCgo="),
    ("padding where there is no room for it", b"%@p.1;B=1 CgoK="),
    ("one character over", b"%@p.1;B=1 CgoKC"),
    ("unused bits that are not zero: four", b"%@p.1;B=1 Ch"),
    ("unused bits that are not zero: two", b"%@p.1;B=1 Cgp"),
    ("base64 that is not base64url", b"%@p.1;B=1 Cgo+"),
    ("base64 that is not base64url", b"%@p.1;B=1 Cgo/"),
    ("a space in base64url", b"%@p.1;B=1 Cg oK"),
    ("an escape in base64url", b"%@p.1;B=1 Cgo%0A"),
    ("a byte above ASCII in base64url", b"%@p.1;B=1 CgoK\xff"),
    ("%-encoding that is marked as base64url", b"%@p.1;B=1 50%25"),
    *(
        (reason, f"%@p.1;t=1{attributes} x".encode("latin-1"))
        for reason, attributes in (
            ("two signatures", f";g={_G};g={_G}"),
            ("two signatures, the first of which is none", f";g=1;g={_G}"),
            ("an attribute behind the signature", f";g={_G};a=b"),
            ("the time behind the signature", f";g={_G};t=2"),
            ("a signature of nothing", ";g="),
            ("127 characters of signature", f";g={_G[1:]}"),
            ("129 characters of signature", f";g={_G}A"),
            ("padding in a signature", f";g={_G[:-1]}="),
            ("base64 that is not base64url in a signature", f";g={_G[:-1]}+"),
            ("something behind a signature", f";g={_G}.2.0"),
        )
    ),
    ("a signature of what is no base64url, as B=1 says", f"%@p.1;B=1;g={_G} 50%25".encode()),
    *(
        (reason, f"%@p.1{attributes} {payload}".encode("latin-1"))
        for reason, attributes, payload in (
            ("two seals", f";S={_S};S={_S}", "CgoK"),
            ("two seals, the first of which is none", f";S=1;S={_S}", "CgoK"),
            ("an empty seal", ";S=", "CgoK"),
            ("50 characters of seal", f";S={_S[1:]}", "CgoK"),
            ("52 characters of seal", f";S={_S}A", "CgoK"),
            ("padding in a seal", f";S={_S}=", "CgoK"),
            ("padding in the place of a seal's last letter", f";S={_S[:-1]}=", "CgoK"),
            ("base64 that is not base64url in a seal", f";S=+{_S[1:]}", "CgoK"),
            ("unused bits of a seal that are not zero", f";S={_S[:-1]}V", "CgoK"),
            ("B=1 before a seal", f";B=1;S={_S}", "CgoK"),
            ("B=1 behind a seal", f";S={_S};B=1", "CgoK"),
            ("another value of B beside a seal", f";B=2;S={_S}", "CgoK"),
            ("a signature beside a seal", f";S={_S};g={_G}", "CgoK"),
            ("a signature before a seal", f";g={_G};S={_S}", "CgoK"),
            ("sealed text", f";S={_S}", "50%25"),
            ("padding in what is sealed", f";S={_S}", "Cg=="),
            ("one character over in what is sealed", f";S={_S}", "CgoKC"),
            ("unused bits in what is sealed that are not zero", f";S={_S}", "Ch"),
            ("base64 that is not base64url in what is sealed", f";S={_S}", "Cgo/"),
            ("a space in what is sealed", f";S={_S}", "Cg oK"),
        )
    ),
]

# --- Cookies (§6) ------------------------------------------------------------------------------------

COOKIES = [
    ("an IPv4 address", bytes(range(32)), "192.0.2.7", 7400, 1000, 0, False),
    ("another port", bytes(range(32)), "192.0.2.7", 7401, 1000, 0, False),
    ("another address", bytes(range(32)), "192.0.2.8", 7400, 1000, 0, False),
    ("another secret", bytes(range(1, 33)), "192.0.2.7", 7400, 1000, 0, False),
    ("a price of 18 bits", bytes(range(32)), "192.0.2.7", 7400, 1000, 18, False),
    ("and keeping many leases costs as much", bytes(range(32)), "192.0.2.7", 7400, 1000, 18, True),
    ("a step later", bytes(range(32)), "192.0.2.7", 7400, 1000 + 1 / 65536, 0, False),
    ("the last step of a second", bytes(range(32)), "192.0.2.7", 7400, 1001 - 1 / 65536, 0, False),
    ("the first second", bytes(32), "127.0.0.1", 1, 0, 0, False),
    ("the last second of the first epoch", bytes(32), "127.0.0.1", 1, 63, 0, False),
    ("the first second of the second epoch", bytes(32), "127.0.0.1", 1, 64, 0, False),
    ("the highest port and a late clock", b"\xff" * 32, "255.255.255.255", 65535, 4294967295, 127, True),
    ("an IPv6 address", bytes(range(32)), "2001:db8::7", 7400, 1000, 0, False),
    ("an IPv6 address that holds an IPv4 one", bytes(range(32)), "::192.0.2.7", 7400, 1000, 0, False),
]


def cookie(secret: bytes, address: str, port: int, time_s: float, bits: int, is_keeping_dear: bool) -> str:
    """The reference construction (§6.1), written again."""
    seconds = int(time_s)
    parts = int((time_s - seconds) * 65536)
    key = blake2s((seconds // 64).to_bytes(8, "big"), key=secret, person=b"kcastke1").digest()
    ip = ip_address(address)
    issued = bytes([2, bits + 128 * is_keeping_dear]) + parts.to_bytes(2, "big") + seconds.to_bytes(4, "big")
    bound = bytes([ip.version]) + ip.packed + port.to_bytes(2, "big")
    tag = blake2s(issued + bound, digest_size=16, key=key, person=b"kcastck1").digest()
    return urlsafe_b64encode(issued + tag).decode()


# --- Stamps (§5.11) ----------------------------------------------------------------------------------

_LINES_63 = [b"t%d" % number for number in range(63)]
_THREE = [b"weather/oslo", b"room/1", b"living%20room"]
_LONGEST = "NJcR5muv9yUOyCzS5QPyEw"

# description, cookie, topics, stamp, bits
STAMPS: list[tuple[str, str, list[bytes], str, int]] = [
    ("one topic", COOKIE, [b"t"], "6d", 8),
    ("a bit more than it is worth", COOKIE, [b"t"], "6d", 9),
    ("worth more than is asked", COOKIE, [b"t"], "6d", 1),
    ("nothing is asked, and anything will do", COOKIE, [b"t"], "0", 0),
    ("worth nothing", COOKIE, [b"t"], "0", 1),
    ("20 bits: a million hashes", COOKIE, [b"t"], "1110e7", 20),
    ("another stamp", COOKIE, [b"t"], "6e", 8),
    ("the same characters and another number of them", COOKIE, [b"t"], "06d", 8),
    ("upper case is another stamp", COOKIE, [b"t"], "6D", 8),
    ("another cookie", "_" * 32, [b"t"], "6d", 8),
    ("a stamp of its own for the other cookie", "_" * 32, [b"t"], "fc", 8),
    ("three topics", COOKIE, _THREE, "171a", 12),
    ("the same three in another order", COOKIE, _THREE[::-1], "171a", 12),
    ("two of the three", COOKIE, _THREE[:2], "171a", 12),
    ("one more than the three", COOKIE, [*_THREE, b"t"], "171a", 12),
    ("the boundary between two topics moved", COOKIE, [b"weather/oslor", b"oom/1", _THREE[2]], "171a", 12),
    ("the longest stamp", COOKIE, _THREE, _LONGEST, 12),
    ("a stamp may begin with hyphens", COOKIE, _THREE, "--uIaG", 8),
    ("63 topics", COOKIE, _LINES_63, "2b615", 14),
    ("62 of the 63 topics", COOKIE, _LINES_63[:-1], "2b615", 14),
    ("the longest topic, as it stands on the wire", COOKIE, [b"%00" * 85], "c47", 10),
    ("a topic that stands twice is hashed twice", COOKIE, [b"t", b"t"], "2c", 9),
    ("and no stamp for the topic alone", COOKIE, [b"t"], "2c", 9),
    ("a line that is no topic is hashed too", COOKIE, [b"%41", b"t"], "10d", 9),
    ("and is not left out", COOKIE, [b"t"], "10d", 9),
]  # fmt: skip

# bits, new leases, renewals beyond the first 8 where keeping has a price, the price in bits
PRICES = [
    (20, 1, 0, 20), (20, 2, 0, 21), (20, 3, 0, 22), (20, 4, 0, 22), (20, 5, 0, 23), (20, 8, 0, 23),
    (20, 9, 0, 24), (20, 32, 0, 25), (20, 33, 0, 26), (20, 63, 0, 26), (1, 1, 0, 1), (1, 63, 0, 7),
    (24, 63, 0, 30), (20, 0, 0, 0), (0, 1, 0, 0), (0, 63, 0, 0), (0, 0, 0, 0),
    (8, 0, 1, 8), (8, 0, 55, 14), (14, 0, 16, 18), (14, 0, 17, 18), (18, 0, 1, 18), (18, 0, 63, 18),
    (24, 0, 1, 18), (8, 1, 1, 9), (14, 1, 62, 20), (0, 0, 55, 0),
]  # fmt: skip


def work(cookie: str, topics: list[bytes], stamp: str) -> bytes:
    """What a stamp is judged by (§5.11), written again."""
    digest = blake2b(digest_size=8, person=b"kcastwk1")
    for part in (cookie.encode(), *(topic + b"\n" for topic in topics), stamp.encode()):
        digest.update(part)
    return digest.digest()


def zero_bits(digest: bytes) -> int:
    """How many zero bits it begins with."""
    bits = "".join(f"{byte:08b}" for byte in digest)
    return len(bits) - len(bits.lstrip("0"))


# --- The file ----------------------------------------------------------------------------------------


def document() -> Vector:
    """All of it, as JSON has it."""
    requests = ("ask", "vouch", "ping")
    envelopes: list[tuple[str, str, str, int, dict[str, str], bytes, bytes, str | None, bytes | None]] = [
        *((*vector, None) for vector in ENVELOPES),
        *((*vector[:7], None, vector[7]) for vector in READ_ENVELOPES),
    ]
    return {
        "about": ABOUT,
        "protocol": 1,
        "topics": [
            {"description": d, "section": "3.1", "name_hex": name.hex(), **_show("wire", wire)}
            for d, name, wire in TOPICS
        ],
        "refused_topics": [
            {"description": d, "section": "3.1", "reason": reason, **_show("wire", wire)}
            for d, wire, reason in REFUSED_TOPICS
        ],
        "messages": [
            {"description": d, "section": "3.2", "payload_hex": payload.hex(), **_show("wire", wire)}
            for d, payload, wire in MESSAGES
        ],
        "refused_messages": [
            {"description": d, "section": "3.2", "reason": reason, **_show("wire", wire)}
            for d, wire, reason in REFUSED_MESSAGES
        ],
        "control_lines": [
            {
                "description": d,
                "section": section,
                "kind": kind,
                "sender": "client" if kind in requests else "server",
                "fields": fields,
                **_show("wire", line.encode()),
                **({"formatted_hex": again.encode().hex()} if again is not None else {}),
            }
            for kind, section, d, fields, line, again in CONTROL_LINES
        ],
        "refused_control_lines": [
            {"description": line.decode("latin-1"), "section": "5", "reason": reason, **_show("wire", line)}
            for reason, line in REFUSED_CONTROL_LINES
        ],
        "datagrams": [
            {
                "description": d,
                "section": section,
                "datagram_hex": datagram.hex(),
                "lines_hex": [line.hex() for line in lines],
                "unterminated": unterminated,
                "verdict": verdict,
            }
            for section, d, datagram, lines, unterminated, verdict in DATAGRAMS
        ],
        "envelopes": [
            {
                "description": d,
                "section": section,
                "publisher": publisher,
                "seq": seq,
                "attributes": attributes,
                "payload_hex": payload.hex(),
                **_show("wire", wire),
                "must_understand": must_understand,
                **({"formatted_hex": again.hex()} if again is not None else {}),
            }
            for section, d, publisher, seq, attributes, payload, wire, must_understand, again in envelopes
        ],
        "sealed_envelopes": [
            {
                "description": d,
                "section": "9.2",
                "publisher": publisher,
                "seq": seq,
                "attributes": attributes,
                "payload_hex": payload.hex(),
                **_show("wire", wire),
            }
            for d, publisher, seq, attributes, wire, payload in SEALED_ENVELOPES
        ],
        "refused_envelopes": [
            {"description": reason, "section": "9.1", "reason": reason, **_show("wire", wire)}
            for reason, wire in REFUSED_ENVELOPES
        ],
        "cookies": [
            {
                "description": d,
                "section": "6.1",
                "secret_hex": secret.hex(),
                "address": address,
                "port": port,
                "time_s": time_s,
                "bits": bits,
                "keeping": keeping,
                "cookie": cookie(secret, address, port, time_s, bits, keeping),
            }
            for d, secret, address, port, time_s, bits, keeping in COOKIES
        ],
        "stamps": [
            {
                "description": d,
                "section": "5.11",
                "cookie": its_cookie,
                "topics_hex": [topic.hex() for topic in topics],
                "stamp": stamp,
                "work_hex": work(its_cookie, topics, stamp).hex(),
                "worth_bits": zero_bits(work(its_cookie, topics, stamp)),
                "bits": bits,
                "valid": zero_bits(work(its_cookie, topics, stamp)) >= bits,
            }
            for d, its_cookie, topics, stamp, bits in STAMPS
        ],
        "prices": [
            {
                "section": "5.11",
                "bits": bits,
                "new_leases": new_leases,
                "kept_leases": kept,
                "price_bits": price,
            }
            for bits, new_leases, kept, price in PRICES
        ],
    }


def text() -> str:
    """The file's text."""
    return json.dumps(document(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text(), encoding="ascii")
