"""Cluster files: any bytes give a cluster, or a complaint that names a line. PROTOCOL §10."""

import re
from dataclasses import replace

from kcast.client.cluster import Cluster, ClusterError, decode, format_cluster, parse
from tests.support.word_by_word import parse_word_by_word

COMPLAINT = re.compile(r"file:([1-9][0-9]*): .+")
COMPLAINT_CHARS_MAX = 1_000


def check(data: bytes) -> None:
    """Takes bytes as a file."""
    try:
        cluster = parse(decode(data, "file"), "file")
    except ClusterError as error:
        told = str(error)
        complaint = COMPLAINT.fullmatch(told)
        assert complaint and told.isprintable() and len(told) <= COMPLAINT_CHARS_MAX, told
        assert int(complaint[1]) <= data.count(b"\n") + 1, told
        assert b"server" not in data or _read_word_by_word(data) == told
    else:
        assert _read_word_by_word(data) == cluster
        plain = replace(cluster, signatures=())
        assert parse(format_cluster(plain), "file") == plain


def _read_word_by_word(data: bytes) -> Cluster | str:
    try:
        return parse_word_by_word(decode(data, "file"), "file")
    except ClusterError as error:
        return str(error)
