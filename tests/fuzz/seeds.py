"""Inputs to begin with, made of vectors, golden files and the rules: `python -m tests.fuzz.seeds`."""

import hashlib
import json
from collections.abc import Iterator

from kcast.client.cluster import format_cluster, lab
from kcast.hashring.policy import Policy
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from kcast.loadtest.scenario import Scenario, message_id, payload, topic_name
from tests.fuzz.server import SETTINGS
from tests.fuzz.targets import CORPUS
from tests.support.checkout import ROOT
from tests.support.tap_records import GOLDEN_FILE

WIRE = ROOT / "pubsub" / "vectors" / "wire.json"
TRUST = ROOT / "client" / "vectors" / "trust.json"


def main() -> None:
    """Adds the seeds to the corpora."""
    for name, seeds in SEEDS.items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for data in seeds():
            (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


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
    yield from _of_wire("envelopes", "refused_envelopes", "messages", "refused_messages")


def _bursts() -> Iterator[bytes]:
    for lines in (
        b"t a\nt b\nt c\n",
        b"t a\n\n\n\nt b\n\n\n\n",
        b"t a\nu b\nt c\n",
        b"t a\n%~ N\n",
        b"t a\nt b",
    ):
        for segment_bytes in (3, 7, 200):
            for lines_max in (0, 62):
                yield bytes((segment_bytes, lines_max)) + lines


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
    for status in ("running", "complete", "partial"):
        info = {
            "schema_version": SCHEMA_VERSION, "status": status, "run_id": "20260101-x",
            "owner": {"pid": 1, "process_start": "1", "clock_id": ""},
            "scenarios": [Scenario().as_json(), {"scheme": "CH", "k": 2, "k_prime": 0}],
            "tables": {table: {"files": 1, "rows": 10} for table in TABLES},
            "versions": {"kcast": "0.1.0"},
        }  # fmt: skip
        yield json.dumps(info).encode()
        yield json.dumps(info | {"scenarios": [{"rate": 1e300}], "tables": {"publish": {}}}).encode()
        yield json.dumps(info | {"schema_version": 0}).encode()


def _sieve() -> Iterator[bytes]:
    for number in range(6):
        for family in range(3):
            for start in (b"%! N", b"%? N", b"%~ N", b"t m"):
                address = bytes(range(1, 17)) if family == 2 else b"\x7f\0\0\1"
                yield bytes((number, family)) + address + b"\x04\xd2" + b"\x80\0\0\0" + start


SEEDS = {
    "server": _server, "cluster-file": _cluster_file, "tap-reader": _tap_reader, "tap-writer": _tap_writer,
    "capture-lines": _capture_lines, "capture-files": _capture_files, "wire": _wire, "bursts": _bursts,
    "messages": _messages, "sieve": _sieve,
}  # fmt: skip

if __name__ == "__main__":
    main()
