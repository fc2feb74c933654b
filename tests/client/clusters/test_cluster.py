"""client/clusters/cluster.py: every word of a cluster file, every complaint with its line. PROTOCOL §10."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.client.cluster import (
    Cluster,
    ClusterError,
    ListFacts,
    ServerEntry,
    format_cluster,
    host_key,
    lab,
    parse,
    parse_address,
)
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters import reader as cluster_reader
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, format_address

HEADER = "kcast-cluster 1\n"
ONE = "server 192.0.2.1:7400\n"


def cluster_of(*lines: str) -> Cluster:
    """A file of these facts, and one server behind them."""
    return parse(HEADER + "".join(line + "\n" for line in lines) + ONE)


# --- Words --------------------------------------------------------------------------------------------


def test_smallest_file() -> None:
    """§10: without `policy` it is k=5 publish=3 subscribe=5; no salt is the empty salt."""
    cluster = parse(HEADER + ONE)
    assert cluster == Cluster((ServerEntry((("192.0.2.1", 7400),), "192.0.2.1"),))
    assert cluster.policy == Policy(5, 3, 5)
    assert (cluster.name, cluster.salt, cluster.is_lab) == ("", b"", False)


def test_file_with_every_word_that_needs_no_signature() -> None:
    text = """\
kcast-cluster 1          # the first line
# a comment
name   london            # names have no spaces

policy k=3 publish=2 subscribe=3
salt   6b63617374
x-owner whoever, whatever=1
lab
server 192.0.2.7:7400,[2001:db8::7]:7400  key=north
\tserver [2001:db8::8]:7401\t
"""
    cluster = parse(text)
    assert cluster == Cluster(
        servers=(
            ServerEntry((("192.0.2.7", 7400), ("2001:db8::7", 7400)), "north"),
            ServerEntry((("2001:db8::8", 7401),), "[2001:db8::8]:7401"),
        ),
        policy=Policy(3, 2, 3),
        name="london",
        salt=b"kcast",
        is_lab=True,
    )
    assert not cluster.is_signed


LIST = """\
kcast-cluster 1
name example.org/lab
policy k=1 publish=1 subscribe=1
salt 6b63617374
version 7
trust 2
valid-after 1700000000
fresh-until 1700003600
valid-until 1700007200
min-servers 2
"""
FACTS = ListFacts(7, 2, 1700000000, 1700003600, 1700007200, 2)


def test_signed_list_with_every_word() -> None:
    """§10.4: those of 0.4 that nobody uses any more are read, and not written."""
    text = f"""\
{LIST}lab
salt 00ff from=1600000000
salt aaaa from=1500000000
next-salt 0a0b0c0d {"01" * 32}
next-salt 0a0b0c0e {"02" * 32}
salt-reveal 0a0b0c0d {"03" * 32} in=6
server 192.0.2.7:7400 key=north

server 192.0.2.8:7400
pending 192.0.2.9:7400,[2001:db8::9]:7400 key=south   # soon
"""
    signatures = ("\N{EM DASH} signer-0 AAAA", "\N{EM DASH} signer-1 BBBB # no comment")
    expected = Cluster(
        servers=(
            ServerEntry((("192.0.2.7", 7400),), "north"),
            ServerEntry((("192.0.2.8", 7400),), "192.0.2.8:7400"),
        ),
        policy=Policy(1, 1, 1),
        name="example.org/lab",
        salt=b"\x00\xff",
        is_lab=True,
        signed=FACTS,
    )
    assert parse(text) == expected and expected.is_signed
    signed = parse(f"{text}\n{signatures[0]}\n{signatures[1]}\n")
    assert signed == replace(expected, signatures=signatures)
    assert parse(format_cluster(signed)) == expected
    later = parse(text.replace("from=1600000000", "from=1700000001"))
    assert (later.salt, later.signed) == (b"\xaa\xaa", replace(FACTS, has_later_salt=True))


@pytest.mark.parametrize("line", ["name a#b", "name a#b # c", "name a#b #", "name a#b #c#d"])
def test_comment_begins_with_a_word(line: str) -> None:
    assert cluster_of(line).name == "a#b"


def test_order_of_words_is_free() -> None:
    text = HEADER + "server 192.0.2.1:1 key=a\nlab\nsalt 02\npolicy scheme=S\nname n\n"
    cluster = parse(text)
    assert (cluster.servers[0].key, cluster.salt, cluster.policy.scheme) == ("a", b"\x02", "S")


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        ("k=5 publish=5 subscribe=1", Policy(5, 5, 1)),
        ("subscribe=4 k=4 publish=2", Policy(4, 2, 4)),
        ("scheme=S", Policy.from_scheme("S")),
        ("scheme=R", Policy.from_scheme("R", servers=1)),
        ("scheme=R publish=1 subscribe=1", Policy.from_scheme("R", servers=1, publish=1, subscribe=1)),
        ("scheme=CH", Policy(3, 3, 3)),
        ("scheme=CH k=7", Policy(7, 7, 7)),
        ("scheme=RCH", Policy(5, 3, 5)),
        ("scheme=RCH k=6 k'=2", Policy(6, 2, 6)),
        ("scheme=RCH k=6 k'=2 side=publish", Policy(6, 2, 6)),
        ("scheme=RCH k=6 k'=2 side=subscribe", Policy(6, 6, 2)),
        ("scheme=RCH side=subscribe", Policy(5, 5, 3)),
    ],
)
def test_policies(words: str, policy: Policy) -> None:
    """§8.3, §10"""
    assert cluster_of(f"policy {words}").policy == policy


def test_scheme_r_counts_hosts_and_not_servers() -> None:
    servers = [f"192.0.2.{host}:{port}" for host in range(1, 31) for port in (1, 2)]
    cluster = cluster_of("policy scheme=R", *(f"server {server}" for server in servers[2:]))
    assert (cluster.policy.k, cluster.policy.publish, cluster.policy.subscribe) == (30, 17, 17)


# --- Addresses and keys -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.7:7400", ("192.0.2.7", 7400)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[2001:db8::7]:65535", ("2001:db8::7", 65535)),
        ("[2001:DB8:0:0::0007]:1", ("2001:db8::7", 1)),
        ("[::ffff:192.0.2.7]:7400", ("192.0.2.7", 7400)),
        ("[::ffff:c000:207]:7400", ("192.0.2.7", 7400)),
        ("[::]:7400", ("::", 7400)),
    ],
)
def test_addresses_are_normalised(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(format_address(address)) == address


NO_ADDRESSES = [
    ":", "192.0.2.7", "192.0.2.7:", ":7400", "192.0.2.7:0", "192.0.2.7:65536", "192.0.2.7:-1",
    "192.0.2.7:+1", "192.0.2.7:1_0", "192.0.2.7:\u00b2", "192.0.2.7:\u0661", "192.0.2:1", "192.0.2.007:1",
    "192.0.2.256:1", "[192.0.2.7]:1", "2001:db8::7:7400", "[2001:db8::7]", "[2001:db8::7:1",
    "[fe80::1%eth0]:1", "[2001:db8::g]:1", "localhost:7400", "example.net:7400",
]  # fmt: skip


@pytest.mark.parametrize("text", ["", "192.0.2.7: 1", "192.0.2.7:" + "1" * 5000, *NO_ADDRESSES])
def test_address_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected IP:PORT or \[IPv6\]:PORT, not "):
        parse_address(text)


@pytest.mark.parametrize(
    ("address", "key"),
    [
        (("192.0.2.7", 7400), "192.0.2.7"),
        (("192.0.2.7", 7401), "192.0.2.7"),
        (("2001:db8::7", 7400), "2001:db8::/64"),
        (("2001:db8:0:0:ffff:ffff:ffff:ffff", 1), "2001:db8::/64"),
        (("2001:db8:0:1::7", 7400), "2001:db8:0:1::/64"),
        (("::1", 7400), "::/64"),
    ],
)
def test_host_keys(address: Address, key: str) -> None:
    """§8.1: neither the port, nor what the owner of a network can choose at will."""
    assert host_key(address) == key
    assert parse(f"{HEADER}server {format_address(address)}\n").servers[0].key == key


def test_server_with_two_families_is_known_by_its_first_address() -> None:
    """§8.1"""
    (entry,) = parse(HEADER + "server [2001:db8::7]:7400,192.0.2.7:7401\n").servers
    assert entry == ServerEntry((("2001:db8::7", 7400), ("192.0.2.7", 7401)), "2001:db8::/64")
    assert entry.name == "[2001:db8::7]:7400"


def test_several_servers_of_one_host() -> None:
    cluster = parse(HEADER + "server 192.0.2.1:1\nserver 192.0.2.1:2\n")
    assert [server.key for server in cluster.servers] == ["192.0.2.1", "192.0.2.1"]
    cluster = parse(HEADER + "lab\nserver 192.0.2.1:1 key=a\nserver 192.0.2.2:2 key=a\nserver 192.0.2.1:3\n")
    assert [server.key for server in cluster.servers] == ["a", "a", "192.0.2.1:3"]


def test_address_that_looks_like_the_key_of_another_server() -> None:
    text = "names\nserver 192.0.2.9:1,192.0.2.1:1\nserver a.b:1 key=192.0.2.1\n"
    assert [server.key for server in parse(HEADER + text).servers] == ["192.0.2.9", "192.0.2.1"]


# --- Complaints ---------------------------------------------------------------------------------------

HASH = "01" * 32
COMPLAINTS = [
    ("", 1, "expected 'kcast-cluster 1' as the first line, but there is none"),
    ("# only a comment\n\n", 1, "expected 'kcast-cluster 1' as the first line, but there is none"),
    ("kcast-cluster 2\n", 1, "expected 'kcast-cluster 1' as the first line, not 'kcast-cluster 2'"),
    ("server 192.0.2.1:1\n", 1, "expected 'kcast-cluster 1' as the first line, not 'server 192.0.2.1:1'"),
    ("\ufeff" + HEADER, 1, "expected 'kcast-cluster 1' as the first line, not "),
    (HEADER, 1, "expected at least one 'server IP:PORT' line before the end of the file"),
    (HEADER + "name n\n\n", 3, "expected at least one 'server IP:PORT' line"),
    (HEADER + ONE + "\n\N{EM DASH} x\n" + ONE, 4, "expected signatures at the end of the file alone, behind"),
    (HEADER + ONE + "\N{EM DASH} x\n", 3, "expected signatures at the end of the file alone, behind its las"),
    (HEADER + ONE + "\N{EM DASH}\n", 3, "expected signatures at the end of the file alone, behind its last"),
    (HEADER + "\n\N{EM DASH} x\n", 1, "expected at least one 'server IP:PORT' line"),
    *((HEADER + f"# a{char}{ONE}", 2, f"expected no control characters, not U+{ord(char):04X}")
      for char in "\x00\x0b\x0c\x1b\x1c\x1d\x1e\x1f\x7f\x80\x85\x9f\u2028\u2029\ud800"),
    (HEADER + "name a\rname b\n" + ONE, 2, "expected lines that end with LF or CR LF, not with CR"),
    (HEADER + ONE.replace("\n", "\r\r\n"), 2, "expected lines that end with LF or CR LF, not with CR"),
    (HEADER + ONE.replace("\n", "\r"), 2, "expected lines that end with LF or CR LF, not with CR"),
    (HEADER + "server\u00a0192.0.2.1:1\n", 2, "or x-..., not 'server\\xa0192.0.2.1:1'"),
    (HEADER + "srever 192.0.2.1:1\n", 2, "expected one of name, policy, salt, lab, names, server, version, "),
    (HEADER + "Server 192.0.2.1:1\n", 2, "or x-..., not 'Server'"),
    (HEADER + HEADER, 2, "not 'kcast-cluster'"),
    (HEADER + "name a\nname b\n", 3, "expected 'name' once; it stands in line 2 already"),
    (HEADER + "lab\n\nlab\n", 4, "expected 'lab' once; it stands in line 2 already"),
    (HEADER + "policy scheme=S\npolicy scheme=S\n", 3, "expected 'policy' once"),
    (HEADER + "version 1\nversion 1\n", 3, "expected 'version' once"),
    (HEADER + "next-keys a\n", 2, "or x-..., not 'next-keys'"),
    (HEADER + "name\n", 2, "expected 'name NAME', the name without spaces"),
    (HEADER + "name a b\n", 2, "expected 'name NAME', the name without spaces"),
    (HEADER + "lab yes\n", 2, "expected 'lab' alone on its line"),
    (HEADER + "salt\n", 2, "expected 'salt HEX', an even number of hex digits"),
    (HEADER + "salt abc\n", 2, "expected 'salt HEX', an even number of hex digits"),
    (HEADER + "salt zz\n", 2, "expected 'salt HEX', an even number of hex digits"),
    (HEADER + "salt aa\nsalt bb\n", 3, "expected one salt"),
    (HEADER + "salt aa from=soon\n", 2, "expected 'salt HEX from=UNIX-SECONDS'"),
    (HEADER + "salt aa from=-1\n", 2, "expected 'salt HEX from=UNIX-SECONDS'"),
    (HEADER + "salt aa from=\u00b2\n", 2, "expected 'salt HEX from=UNIX-SECONDS'"),
    (HEADER + "salt aa from=" + "9" * 5000 + "\n", 2, "expected 'salt HEX from=UNIX-SECONDS'"),
    (HEADER + "salt aa\nsalt bb from=5\n" + ONE, 3, "expected one salt, without from=: to change it"),
    (HEADER + "salt aa to=1\n", 2, "expected from=..., each once, not 'to=1'"),
    (HEADER + "version one\n", 2, "expected 'version NUMBER'"),
    (HEADER + "version 1 2\n", 2, "expected 'version NUMBER'"),
    (HEADER + "version -1\n", 2, "expected 'version NUMBER'"),
    (HEADER + "min-servers \u0663\n", 2, "expected 'min-servers NUMBER'"),
    (HEADER + "valid-until\n", 2, "expected 'valid-until NUMBER'"),
    (HEADER + "salt " + "aa" * 65 + "\n", 2, "expected a salt of at most 64 bytes, not 65"),
    *((LIST.replace(old, new) + ONE, line, complaint) for old, new, line, complaint in (
        ("trust 2\n", "", 5, "expected 'trust' too, in a signed list"),
        ("version 7\ntrust 2\n", "", 5, "expected 'version', 'trust' too, in a signed list"),
        ("version 7", "version 0", 5, "expected 'version NUMBER', which counts from 1"),
        ("trust 2", "trust 0", 6, "expected 'trust NUMBER', which counts from 1"),
        ("name example.org/lab\n", "", 4, "expected 'name NAME' in a signed list: such as example.org/lab"),
        ("name example.org/lab", "name Lab", 2, "expected 'name NAME' in a signed list: such as example.org"),
        ("until 1700003600", "until 1699999999", 8, "expected 'fresh-until' not before 'valid-after', 17000"),
        ("until 1700007200", "until 1700003599", 9, "expected 'valid-until' not before 'fresh-until', 17000"),
        ("policy", "names\npolicy", 3, "expected no 'names' in a signed list: names are for files that nobo"),
        ("trust 2", "trust\t2", 6, "expected spaces, not tabs, in a signed list"),
        ("trust 2\n", "trust 2\r\n", 6, "expected LF alone at the end of a line, not CR LF"),
    )),
    (LIST + ONE.strip(), 11, "expected LF at the end of a signed list"),
    (LIST + ONE + "\n\N{EM DASH} x y", 13, "expected LF at the end of a signed list"),
    (LIST + ONE + "\N{EM DASH} x y\n" + ONE, 12, "expected signatures at the end of the file alone, behind"),
    (LIST + ONE + "\n\N{EM DASH} x y\nserver 192.0.2.2:1\n", 13, "expected signatures at the end of the fil"),
    (LIST + ONE + "\n\N{EM DASH} x y\n\n", 13, "expected signatures at the end of the file alone, behind it"),
    (HEADER + ONE + "\n\N{EM DASH} x y\n", 4, "expected 'version', 'trust', 'valid-after', 'fresh-until', '"),
    (HEADER + "server 192.0.2.1:1,192.0.2.2:1,192.0.2.3:1\n", 2, "expected at most 2 addresses: one for eac"),
    (HEADER + "server " + "9" * 200 + "\n", 2, "not '" + "9" * 80 + "...'"),
    (HEADER + "server\n", 2, "expected 'server IP:PORT[,[IPv6]:PORT] [key=NAME]'"),
    (HEADER + "server localhost:1\n", 2,
     "localhost is a name: give the address, or add a line 'names' to have it looked up"),
    (HEADER + "server node7.example.net:1 key=a\n", 2, "node7.example.net is a name: give the address, or "),
    (HEADER + "lab\nserver localhost:1\n", 3, "localhost is a name: give the address, or add a line 'names'"),
    (HEADER + "server localhost:0\n", 2, "not 'localhost:0'; names are not looked up"),
    (HEADER + "names yes\n", 2, "expected 'names' alone on its line"),
    (HEADER + "names\nserver node:1\n", 3, "expected key=NAME: the ring needs a key that stays when"),
    (HEADER + "names\nserver node:1,192.0.2.1:1 key=a\n", 3, "beside a name nothing else may stand"),
    (HEADER + "names\nserver node:1 key=a\nserver NODE:1 key=b\n", 4, "node:1 stands in line 3 already"),
    (HEADER + "names\nserver a:1 key=a\nserver b:1 key=a\n", 4, "line 3 has port 1 on 'a' too"),
    (HEADER + "names\nversion 1\n" + ONE, 2, "expected no 'names' in a signed list: names are for files "),
    (HEADER + "names\n" + ONE + "\n\N{EM DASH} x\n", 2, "expected no 'names' in a signed list"),
    (HEADER + "server 192.0.2.1:0\n", 2, "not '192.0.2.1:0'; ports are 1 to 65535"),
    (HEADER + "server [2001:db8::1]:70000\n", 2, "not '[2001:db8::1]:70000'; ports are 1 to 65535"),
    (HEADER + "server 192.0.2.1:1,\n", 2, "expected IP:PORT or [IPv6]:PORT, not ''"),
    (HEADER + "server 192.0.2.1:1 192.0.2.2:1\n", 2, "expected key=..., each once, not '192.0.2.2:1'"),
    (HEADER + "server 192.0.2.1:1 key=\n", 2, "expected key=..., each once, not 'key='"),
    (HEADER + "server 192.0.2.1:1 key=a key=b\n", 2, "expected key=..., each once, not 'key=b'"),
    (HEADER + "server 192.0.2.1:1 key=a\n", 2, "key= may stand in files with 'lab' or 'names' only; add"),
    (HEADER + ONE + "\n" + ONE, 4, "192.0.2.1:7400 stands in line 2 already"),
    (HEADER + ONE + "server [::ffff:192.0.2.1]:7400\n", 3, "192.0.2.1:7400 stands in line 2 already"),
    (HEADER + "server 192.0.2.1:1,192.0.2.1:1\n", 2, "192.0.2.1:1 stands in line 2 already"),
    (HEADER + "server [2001:db8::1]:1\nserver [2001:db8::2]:1\n", 3,
     "expected another port: line 2 has port 1 on '2001:db8::/64' too"),
    (HEADER + "lab\nserver 192.0.2.1:1 key=a\nserver 192.0.2.2:1 key=a\n", 4,
     "expected another port: line 3 has port 1 on 'a' too"),
    *((f"{HEADER}\npolicy {words}\n{ONE}", 3, complaint) for words, complaint in (
        ("", "expected 'policy k=K publish=M subscribe=N' or 'policy scheme=S|R|CH|RCH ...'"),
        ("k=5", "k, publish and subscribe are all needed"),
        ("k=5 publish=3", "k, publish and subscribe are all needed"),
        ("k=5 publish=3 subscribe=5 k'=1", "k, publish and subscribe are all needed"),
        ("k=x publish=3 subscribe=5", "k is 'x': give a whole number"),
        ("k=+5 publish=3 subscribe=5", "k is '+5': give a whole number"),
        ("k=1_0 publish=3 subscribe=10", "k is '1_0': give a whole number"),
        ("scheme=CH k=\u0663", "k is '\u0663': give a whole number"),
        ("k=5 publish=0 subscribe=5", "publish is 0: give a whole number of at least 1"),
        ("k=0 publish=1 subscribe=1", "lab.txt:3: k is 0: give a whole number of at least 1; expected "),
        ("k=5 publish=6 subscribe=5", "publish=6 is more than k=5"),
        ("k=5 publish=2 subscribe=3", "may have no host in common"),
        ("k=5 k=5", "each once, not 'k=5'"),
        ("k = 5", "each once, not 'k'"),
        ("five", "expected k=..., publish=..., subscribe=..., scheme=..., k'=..., side=..., each once"),
        ("scheme=XYZ", "scheme is 'XYZ': use one of S, R, CH, RCH"),
        ("scheme=s", "scheme is 's': use one of S, R, CH, RCH"),
        ("scheme=S k=1", "scheme S takes no k: leave it out"),
        ("scheme=R k=1", "scheme R takes no k: leave it out"),
        ("scheme=CH k'=1", "scheme CH takes no k_prime: leave it out"),
        ("scheme=RCH publish=1", "scheme RCH takes no publish: leave it out"),
        ("scheme=RCH side=both", "side is 'both': use publish or subscribe"),
        ("scheme=RCH k=2 k'=3", "more than k=2"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "complaint"), COMPLAINTS)
def test_complaint_names_the_line_and_what_was_expected(text: str, line: int, complaint: str) -> None:
    with pytest.raises(ClusterError, match=re.escape(complaint)) as caught:
        parse(text, "lab.txt")
    assert str(caught.value).startswith(f"lab.txt:{line}: ")
    assert "\n" not in str(caught.value)


def test_every_word_has_a_complaint() -> None:
    complained = {line.split()[0] for text, _, _ in COMPLAINTS for line in text.split("\n") if line.split()}
    assert set(cluster_reader._Reader("")._words) - set(cluster_reader._UNUSED) <= complained


# --- Names --------------------------------------------------------------------------------------------


def test_servers_may_be_named_where_names_are_trusted() -> None:
    cluster = parse(
        HEADER + "server Kcast-0.kcast:7400 key=kcast-0\nnames\n" + ONE + "server 192.0.2.2:1 key=b\n"
    )
    named, literal, keyed = cluster.servers
    assert named == ServerEntry((), "kcast-0", ("kcast-0.kcast", 7400))
    assert (named.name, named.port) == ("kcast-0.kcast:7400", 7400)
    assert (literal.name, literal.port, literal.key) == ("192.0.2.1:7400", 7400, "192.0.2.1")
    assert keyed.key == "b"
    assert cluster.has_names and not cluster.is_lab


NAMES = [
    "a",
    "localhost",
    "kcast-0.kcast.default.svc.cluster.local",
    "a.",
    "_x._udp.example",
    "7up",
    "1.2.3.4a",
]
NO_NAMES = ["", ".", "a..b", "-a", "a-", "a b", "192.0.2.1", "999.999.999.999", "7", "a.7", "::1", "[a]"]
NO_NAMES += ["\u00e6", "a" * 64, "a." * 130, "a\n"]


@pytest.mark.parametrize("text", NAMES)
def test_names_of_hosts(text: str) -> None:
    assert clusters.is_host_name(text)


@pytest.mark.parametrize("text", NO_NAMES)
def test_what_is_no_name_of_a_host(text: str) -> None:
    assert not clusters.is_host_name(text)


# --- Files --------------------------------------------------------------------------------------------


def test_load(tmp_path: Path) -> None:
    path = tmp_path / "lab.txt"
    path.write_text(HEADER + "name Tromsø\r\n" + ONE, encoding="utf-8", newline="")
    assert clusters.load(path) == clusters.load(str(path)) == parse(path.read_text(encoding="utf-8"))
    assert clusters.load(str(path)).path == path
    assert clusters.load(path).name == "Tromsø"
    path.write_text(HEADER + "name Tromsø\n" + ONE, encoding="utf-8-sig")
    assert clusters.load(path).name == "Tromsø"


def test_signed_list_begins_with_its_first_word(tmp_path: Path) -> None:
    """§10.4: what is signed is the file's bytes, so nothing may come before them."""
    path = tmp_path / "lab.txt"
    path.write_text(LIST + ONE, encoding="utf-8")
    assert clusters.load(path).signed == FACTS
    path.write_text(LIST + ONE, encoding="utf-8-sig")
    with pytest.raises(ClusterError, match=r"lab\.txt:1: expected no U\+FEFF at the start of a signed list"):
        clusters.load(path)


def test_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match=r"none\.txt: No such file or directory"):
        clusters.load(tmp_path / "none.txt")
    with pytest.raises(ClusterError, match="Is a directory"):
        clusters.load(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"kcast-cluster 1\n\xff\n")
    with pytest.raises(ClusterError, match=r"binary:2: not UTF-8 text; is it a cluster file\?"):
        clusters.load(binary)
    monkeypatch.setattr(clusters, "FILE_BYTES_MAX", 10)
    with pytest.raises(ClusterError, match=r"binary: longer than 10 bytes; is it a cluster file\?"):
        clusters.load(binary)
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("x\n")
    with pytest.raises(ClusterError, match=r"wrong\.txt:1: expected"):
        clusters.load(wrong)


# --- Writing ------------------------------------------------------------------------------------------


def test_lab() -> None:
    cluster = lab([("127.0.0.1", 7401), ("::1", 7402)])
    assert format_cluster(cluster) == (
        "kcast-cluster 1\nname   lab\npolicy k=5 publish=3 subscribe=5\nsalt   6b63617374\nlab\n"
        "server 127.0.0.1:7401\nserver [::1]:7402\n"
    )
    assert parse(format_cluster(cluster)) == cluster


WORDS = st.from_regex(r"[a-zA-Z0-9\u00e6-\u00ff][a-z#=.-]{0,6}", fullmatch=True)
ADDRESSES = st.tuples(st.ip_addresses(v=4).map(str), st.integers(1, 65535)) | st.tuples(
    st.ip_addresses(v=6).map(str).filter(lambda text: not text.startswith("::ffff:")), st.integers(1, 65535)
)
RING_POLICIES = st.integers(1, 9).flatmap(
    lambda k: (
        st.integers(1, k).map(lambda few: Policy(k, few, k))
        | st.integers(1, k).map(lambda few: Policy(k, k, few))
    )
)
SALTS = st.binary(min_size=1, max_size=8)
TIMES = st.integers(0, 10**12)


LIST_NAMES = st.from_regex(r"[a-z0-9]{1,9}(\.[a-z]{1,9})?(/[a-z0-9]{1,9})?", fullmatch=True)


@st.composite
def facts_of_any_kind(draw: st.DrawFn) -> ListFacts:
    valid_after_s, fresh_until_s, valid_until_s = sorted(draw(st.tuples(TIMES, TIMES, TIMES)))
    return ListFacts(
        draw(st.integers(1, 10**9)),
        draw(st.integers(1, 10**9)),
        valid_after_s,
        fresh_until_s,
        valid_until_s,
        min_servers=draw(st.integers(0, 99)),
    )


@st.composite
def clusters_of_any_kind(draw: st.DrawFn) -> Cluster:
    is_lab = draw(st.booleans())
    groups = draw(
        st.lists(st.lists(ADDRESSES, min_size=1, max_size=2), min_size=1, max_size=6).filter(
            lambda groups: len({address for group in groups for address in group}) == sum(map(len, groups))
        )
    )
    servers: dict[tuple[str, int], ServerEntry] = {}
    for group in groups:
        own = format_address(group[0]) if is_lab else host_key(group[0])
        key = draw(st.sampled_from(["a", "b", own])) if is_lab else own
        servers.setdefault((key, group[0][1]), ServerEntry(tuple(group), key))
    has_names = draw(st.booleans())
    if has_names:
        for port in draw(st.sets(st.integers(1, 65535), max_size=3)):
            servers.setdefault(("c", port), ServerEntry((), "c", ("node-7.example", port)))
    hosts = len({entry.key for entry in servers.values()})
    some = st.integers(1, hosts)
    policy = draw(
        st.one_of(
            RING_POLICIES,
            st.just(Policy.from_scheme("S")),
            st.builds(
                lambda m, n: Policy.from_scheme("R", servers=hosts, publish=m, subscribe=n), some, some
            ),
        )
    )
    is_signed = draw(st.booleans()) and not has_names
    return Cluster(
        servers=tuple(servers.values()),
        policy=policy,
        name=draw(LIST_NAMES) if is_signed else draw(st.just("") | WORDS),
        salt=draw(st.just(b"") | SALTS),
        is_lab=is_lab,
        signed=draw(facts_of_any_kind()) if is_signed else None,
        has_names=has_names,
    )


@pytest.mark.long
@settings(derandomize=True, max_examples=60, deadline=None)
@given(clusters_of_any_kind())
def test_what_is_written_is_read_back_the_same(cluster: Cluster) -> None:
    assert parse(format_cluster(cluster)) == cluster


WORDS_OF_FILES = (
    "kcast-cluster 1",
    "server",
    "server a:1",
    "lab",
    "names",
    "policy",
    "salt",
    "name",
    "version 2",
    "trust 1",
    "valid-after 1",
    "fresh-until 1",
    "valid-until 1",
    "min-servers 0",
    "pending",
    "next-salt",
    "salt-reveal",
    "x-y",
)
VALUES_OF_FILES = (
    "key=a",
    "from=1",
    "from=\u0663",
    "scheme=R",
    "k=1",
    "k'=1",
    "k=\u00b2",
    "side=publish",
    "aa",
)
ODDITIES = ("#", "\n", "\n", "\N{EM DASH}", "\u2028", "\u00b2", "\x00", "=", ",", "9" * 30, "192.0.2.1:1")
TEXTS = st.lists(
    st.sampled_from((*WORDS_OF_FILES, *VALUES_OF_FILES, *ODDITIES)) | st.text(max_size=3), max_size=20
).map(" ".join)


@settings(derandomize=True, max_examples=500, deadline=None)
@given(TEXTS)
def test_any_text_is_a_cluster_or_a_complaint(text: str) -> None:
    for whole in (text, HEADER + text, f"{HEADER}lab\n{text}\n{ONE}"):
        try:
            cluster = parse(whole)
        except ClusterError as error:
            assert re.match(r"cluster:[1-9]\d*: ", str(error))
        else:
            assert cluster.servers


def test_a_file_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "FILE_BYTES_MAX", 1000)
    with pytest.raises(ClusterError, match="/dev/zero: longer than 1000 bytes"):
        clusters.load("/dev/zero")
