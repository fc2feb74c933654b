"""pubsub/listen.py: whether a wildcard address stands for several addresses."""

import sys
from pathlib import Path

import pytest

from kcast.pubsub.listen import PROC_NET, is_one_of_several

LOOPBACK = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
"""
# As in a container of compose.yaml.
ONE = """\
     +-- 172.30.74.0/24 2 0 2
        +-- 172.30.74.0/28 2 0 2
           |-- 172.30.74.0
              /24 link UNICAST
           |-- 172.30.74.11
              /32 host LOCAL
        |-- 172.30.74.255
           /32 link BROADCAST
"""
OTHER = ONE.replace("172.30.74", "192.0.2")

LOOPBACK_6 = "00000000000000000000000000000001 01 80 10 80       lo\n"
LINK_LOCAL_6 = "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n"
ONE_6 = "fd000000000000000000000000000002 04 40 00 82     eth0\n"
OTHER_6 = ONE_6.replace("fd00", "2001")


@pytest.mark.parametrize(
    ("host", "v4", "v6", "expected"),
    [
        ("0.0.0.0", LOOPBACK, "", False),
        ("0.0.0.0", LOOPBACK + ONE, ONE_6 + OTHER_6, False),
        ("0.0.0.0", (LOOPBACK + ONE) * 2, "", False),  # it stands in two tables
        ("0.0.0.0", LOOPBACK + ONE + OTHER, "", True),
        ("::", LOOPBACK + ONE, LOOPBACK_6 + LINK_LOCAL_6 + ONE_6, False),
        ("::", LOOPBACK + ONE, LOOPBACK_6 + ONE_6 + OTHER_6, True),
        ("::", LOOPBACK + ONE + OTHER, ONE_6, True),
        ("::", LOOPBACK + ONE, None, False),
        ("0.0.0.0", None, ONE_6, True),
    ],
)
def test_several_addresses(tmp_path: Path, host: str, v4: str | None, v6: str | None, expected: bool) -> None:
    for name, text in (("fib_trie", v4), ("if_inet6", v6)):
        if text is not None:
            (tmp_path / name).write_text(text)
    assert is_one_of_several((host, 7400), tmp_path) is expected


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's files")
def test_this_machine_s_files_are_as_here() -> None:
    assert "|-- 127.0.0.1\n" in (PROC_NET / "fib_trie").read_text()
