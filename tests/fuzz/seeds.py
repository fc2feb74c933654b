"""Inputs to begin with, made of vectors, golden files and the rules."""

import json
from collections.abc import Iterator

from kcast.client.cluster import format_cluster, lab
from kcast.hashring.policy import Policy
from kcast.loadtest.scenario import message_id, payload, topic_name
from tests.fuzz.capture_files import sound
from tests.fuzz.server import SETTINGS
from tests.support.checkout import ROOT
from tests.support.tap_records import GOLDEN_FILE
from tests.support.vector_lines import sealed_lines

WIRE = ROOT / "pubsub" / "vectors" / "wire.json"
TRUST = ROOT / "client" / "vectors" / "trust.json"


def seeds_of(name: str) -> list[bytes]:
    """Returns the inputs that a target begins with."""
    return list(_SEEDS[name]())


def _of_wire(*groups: str) -> Iterator[bytes]:
    vectors = json.loads(WIRE.read_text(encoding="utf-8"))
    for group in groups:
        for vector in vectors[group]:
            yield bytes.fromhex(vector.get("wire_hex", vector.get("datagram_hex", "")))


def _wire() -> Iterator[bytes]:
    groups = ("topics", "refused_topics", "messages", "refused_messages")
    for text in _of_wire(*groups, "control_lines", "refused_control_lines"):
        yield b"t " + text + b"\n" + text + b"\n"
    yield from _of_wire("datagrams")


def _messages() -> Iterator[bytes]:
    yield from _of_wire("envelopes", "sealed_envelopes", "refused_envelopes", "messages", "refused_messages")
    yield from (line.partition(b" ")[2] for line in sealed_lines())


def _router() -> Iterator[bytes]:
    several = (b"t a\nt b\nt c\n", b"t a\n\n\n\nt b\n\n\n\n", b"t a\nu b\nt c\n", b"t a\n%~ N\n", b"t a\nt b")
    for lines in several:
        for segment_bytes in (3, 7, 200):
            for lines_max in (0, 62):
                yield bytes((segment_bytes, lines_max)) + lines


def _copies() -> Iterator[bytes]:
    texts = (
        b"\x01\x02\x01", b"t %@p.3 %25\n\x01", b"\x01\xfe\x04\x01\x02", b"\x06\xfe\x04\x06\x06", b"\x05\x02",
        b"t\x049 x\nu\x049 x\na%20b\x049 x\nv\x049 x\n", b"\x03m\n\x03m\n", b"t\x0401 m\n\x02", b"t\x041 m",
        b"\n\n\x01\n\n\x02", b"t %@.1 m\nt %@p. m\nt %@p.1\nt \nt\n m\n%+ x\n\x01", b"\x02\xfe\x03\x02",
        b"\x01\x07\x08\x02\x07\x08", b"\x07\xfe\x04\x07\xfe\x03\x07\x08", b"t\x041\x09m\n\x01",
        b"\x07\x01u\x041;S=A\n",
    )  # fmt: skip
    for text in texts:
        for remembers in range(3):
            yield bytes((remembers, 0)) + text


def _server() -> Iterator[bytes]:
    """Each server: a handshake, leases, publishes of all kinds, a renewal, and the end."""
    ask = b"%? N\n\x05"
    for number in range(len(SETTINGS)):
        by_the_rules = (
            (0, 0, ask),
            (0, 0, b"%! V \x01 \x04\nt\nu\n\x05"),
            (1, 0, ask),
            (1, 0, b"%! V \x01 -\nt hello\nu x\n\x05"),
            (1, 0x10, b"t bare\n%~ P\n"),
            (1, 0x20, b"t bare\n"),
            (0, 0x04, b"%! W \x01 -\nt\n\x05"),
            (1, 0xC0, b"%! V \x01 -\nt last\n\x05"),
            (4, 0x05, ask),
        )
        yield bytes([number]) + b"\xfe".join(bytes(step[:2]) + step[2] for step in by_the_rules)
    for number in range(len(SETTINGS)):
        at_the_limits = (
            (0, 0, ask),
            (0, 0, b"%! V \x01 \x04\nt\nu\nv\nw\nfull\nmany\n\x05"),
            (0, 0x30, b"%! W \x01 -\n\x06\x05"),
            (0, 0x30, b"%! X \x03 -\n\x07\x05"),
            (0, 0x38, b"\x07"),
            (2, 0x02, b"%! X \x01 -\nt\n\x05"),
            (3, 0x30, ask + b"t stranger\n"),
            (6, 0x10, ask),
            (6, 0x00, b"%! X \x01 \x04\nt\n\x05"),
            (0, 0x06, b"%! X \x02 \x04\nt\n\x05"),
            (0, 0x07, b"%! X \x02 \x04\nt x\n\x05"),
        )
        yield bytes([number]) + b"\xfe".join(bytes(step[:2]) + step[2] for step in at_the_limits)

    full = b"%! V \x01 \x04\nfull\n\x05"
    for number in range(len(SETTINGS)):
        many_publishers = [(source, 0, ask) for source in (0, 1, 2, 4)]
        many_publishers += [(source, 0, b"%! V \x01 -\n\x05") for source in (0, 1, 2, 4)]
        yield bytes([number]) + b"\xfe".join(bytes(step[:2]) + step[2] for step in many_publishers)
        much = [
            (0, 0, ask),
            (0, 0, full),
            (2, 0, ask),
            (2, 0, b"%! V \x01 -\n\x05"),
            *[(2, 0x38, b"\x07")] * 14,
        ]
        yield bytes([number]) + b"\xfe".join(bytes(step[:2]) + step[2] for step in much)


def _client() -> Iterator[bytes]:
    """Leases granted, refused, priced and lost; copies of all kinds; publishes with and without an answer."""
    grant = b"%+ \x01 60 \x04 0 credit=65536\n"
    cookie = b"%= \x01 \x04 0\n"
    copies = b"t %@p.1 one\nt %@p.2;t=5 two\nt raw\nu %@q.7;B=1 AAAA\nt %@p.3;Z=1 x\nt %@ x\nt %zz\n"
    for remembers in (0, 0x80):
        by_the_rules = (
            (0, 0, cookie), (1, 0, cookie), (0, 0, grant), (1, 0, grant),
            (0, 0, copies), (1, 0, copies), (0, 0xC0, copies), (1, 2, b"t %@p.9 nine\nt %@p.10 ten\nt raw\n"),
            (0, 0x0D, b"%+ \x01 60 \x04 0 audience=3\n"), (1, 0x08, b"%: \x01 30\n"), (0, 6, grant + copies),
            (0, 4, b"%+ \x01 60 \x04 0 drain=1 head=43.x\n"),
        )  # fmt: skip
        yield bytes([remembers]) + b"\xfe".join(bytes(step[:2]) + step[2] for step in by_the_rules)
        against_them = (
            (0, 0, b"%= \x01 \x04 2\n"), (1, 0, b"%= \x01 \x04 30\n"),
            (0, 0, b"%- \x01 work - bits=3\n"), (1, 0, b"%- \x01 full 1\n"), (0, 3, b"%- \x02 size -\n"),
            (2, 0, grant + copies), (1, 0, b"%+ \x03 60 \x04 0\n"), (0, 0x20, b"\x05"), (1, 0x2F, b"\x05"),
            (0, 0x10, b"%+ \x01 0 \x04 0 keep=9 credit=0\n"), (0, 0x18, copies), (0, 7, b"%- \x01 rate -\n"),
        )  # fmt: skip
        yield bytes([remembers]) + b"\xfe".join(bytes(step[:2]) + step[2] for step in against_them)


def _cluster_file() -> Iterator[bytes]:
    for policy in (Policy(), Policy(1, 1, 1)):
        yield format_cluster(lab([("127.0.0.1", 7401), ("::1", 7402)], policy)).encode()
    yield b"kcast-cluster 1\nname lab\npolicy scheme=RCH k=5 k'=3 side=subscribe\nsalt 6b63\nlab # all\n"
    yield (
        b"kcast-cluster 1\r\npolicy scheme=R\nsalt 00\nsalt 01 from=5\nsalt 02 from=6\nnames\nx-y z\n"
        b"server 192.0.2.7:7400,[2001:db8::7]:7400 key=london\nserver kcast-0.kcast:7400 key=a\n"
        b"server 192.0.2.8:1\nserver 192.0.2.9:65535\n"
    )
    signed = json.loads(TRUST.read_text(encoding="utf-8"))["list"]["data"].encode()
    yield signed
    yield signed.partition(b"\n\n")[0] + b"\npending 192.0.2.200:7400\n"


def _signed_forms() -> Iterator[bytes]:
    from tests.fuzz.signed_forms import FORMS  # which needs the extra `trust`

    vectors = json.loads(TRUST.read_text(encoding="utf-8"))
    texts = {
        "note": vectors["list"]["data"], "document": vectors["trust_document"]["data"],
        "proof": vectors["proof"]["data"], "record": vectors["record"]["data"],
        "add-checkpoint": vectors["add_checkpoint"][0]["data"], "vkey": vectors["vkeys_refused"][0]["vkey"],
        "checkpoint": vectors["checkpoint"]["data"].partition("\n\n")[0] + "\n",
        "bundle": "kcast-bundle 1\nlist/1 3\nabc\nlatest 0\n\n",
    }  # fmt: skip
    for number, kind in enumerate(FORMS):
        yield bytes([number]) + texts[kind].encode()


def _tap_reader() -> Iterator[bytes]:
    for cut_at in (0, 60, 200):
        yield bytes([cut_at]) + GOLDEN_FILE
    yield bytes(1) + GOLDEN_FILE[:150]


def _tap_writer() -> Iterator[bytes]:
    for room in range(3):
        yield bytes([room]) + b"".join(
            bytes((1, what)) + b"\0topic\0\3line\0line two\0\1" for what in (0, 2, 3, 4, 5, 0, 2)
        )


def _capture_lines() -> Iterator[bytes]:
    messages = [
        b"%b %%@PUBLISHER.%d %b\n" % (topic_name(12), 1, payload(message_id(pub_id, 5), 20))
        for pub_id in (0, 3, 1 << 31)
    ]
    yield b"\0".join(messages)
    yield (
        b"%! N C -\n"
        + topic_name(12)
        + b"\n"
        + topic_name(7)
        + b"\n\n\n\0"
        + messages[0] * 2
        + b"weather x\n"
    )


def _capture_files() -> Iterator[bytes]:
    yield b"\0"
    for status in ("running", "complete", "partial"):
        info = sound() | {"status": status}
        yield json.dumps(info).encode()
        yield json.dumps(info | {"scenarios": [{"rate": 1e300}], "tables": {"publish": {}}}).encode()
        yield json.dumps(info | {"schema_version": 0}).encode()


def _kernel_filter() -> Iterator[bytes]:
    for number in range(6):
        for family in range(3):
            for start in (b"%! N", b"%? N", b"%~ N", b"t m"):
                address = bytes(range(1, 17)) if family == 2 else b"\x7f\0\0\1"
                yield bytes((number, family)) + address + b"\x04\xd2" + b"\x80\0\0\0" + start


def _group_file() -> Iterator[bytes]:
    from kcast.client.sealed.group_file import Role  # which needs the extra `trust`
    from tests.support.groups import ALICE, BOB, OWNER, made, recipient

    mixed = (recipient(OWNER), recipient(ALICE, is_sender=True), recipient(BOB, Role.WRITER, is_sender=True))
    for members in ((ALICE,), (recipient(ALICE, Role.WRITER),), mixed):
        file, data = made(3, 2, members=members)
        yield b"f" + data
        yield b"t" + file.head.note.text.encode().replace(b"rest ", b"") + data.removeprefix(file.head.data)


def _sealed() -> Iterator[bytes]:
    from tests.fuzz.sealed import LINES, SEALED  # which needs the extra `trust`
    from tests.support.sealed_by_hand import body

    for number, vector in enumerate(LINES):
        for each in (vector, *vector["mutants"]):
            yield bytes([number]) + each["line"].encode().partition(b" ")[2].removesuffix(b"\n")
    frames = (
        body(0, "rain"), body(0, "", "a=b;T=c"), body(4, "rain", count=3), body(6, "", count=6),
        body(1, "x" * 40, "a=b"), body(2, "rain"), body(8, "rain"), body(0, "rain", lengths=(0, 999)),
    )  # fmt: skip
    for each in frames:
        yield bytes([SEALED]) + each


_SEEDS = {
    "server": _server, "client": _client, "signed-forms": _signed_forms, "group-file": _group_file,
    "cluster-file": _cluster_file,
    "tap-reader": _tap_reader, "tap-writer": _tap_writer, "capture-lines": _capture_lines,
    "capture-files": _capture_files, "wire": _wire, "router": _router, "copies": _copies,
    "messages": _messages, "sealed": _sealed,
    "kernel-filter": _kernel_filter,
}  # fmt: skip
