"""client/clusters/reader.py: many lines at once are read as if one by one, and nothing breaks it.

PROTOCOL §10.1.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest

from kcast.client.cluster import (
    Cluster,
    ClusterError,
    ServerEntry,
    decode,
    format_cluster,
    is_list_name,
    parse,
)
from kcast.client.clusters.reader import cut
from tests.support.grammar import PROTOCOL, Grammar
from tests.support.word_by_word import parse_word_by_word

Data = TypeVar("Data", str, bytes)
HEADER = "kcast-cluster 1\n"
WORDS = "name a\nversion 9\ntrust 1\nvalid-after 1\nfresh-until 2\nvalid-until 3\nmin-servers 1\n"
SIGNATURES = "\n\N{EM DASH} a/signer-0 AAAA\n\N{EM DASH} a/signer-1 BBBB\n"


def outcome(read: Callable[[Data], Cluster], data: Data) -> Cluster | str:
    try:
        return read(data)
    except ClusterError as error:
        return str(error)


# --- Many lines at once -------------------------------------------------------------------------------

# Lines that are canonical, nearly so, or meet canonical ones. Hosts are few, so that some occur twice.
HOSTS = ("192.0.2.1", "192.0.2.2", "10.0.0.255", "0.0.0.0", "255.255.255.255", "1.2.3.4")
PORTS = ("1", "7400", "65535")
NO_HOSTS = ("192.0.2.256", "192.0.2.01", "192.0.2", "1.2.3.4.5", "a.b", "\u0661.2.3.4", "")
NO_PORTS = ("0", "65536", "07400", "99999", "", "\u0661", "1e3")


def server_line(chance: Random, *, soundness: float) -> str:
    host = chance.choice(HOSTS if chance.random() < soundness else NO_HOSTS)
    port = chance.choice(PORTS if chance.random() < soundness else NO_PORTS)
    form = chance.choices(
        (
            "server {}:{}\n", "server  {}:{}\n", "server {}:{} # x\n", "server {}:{} \n",
            "\tserver {}:{}\n", "server {}:{}\r\n", "server {}:{} key=192.0.2.1\n", "pending {}:{}\n",
            "server {}:{},[2001:db8::1]:1\n", "server [::ffff:{}]:{}\n", "#server {}:{}\n",
            "server {}:{}\n\n", "Server {}:{}\n", "server {}:{}",
        ),
        (60, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.2, 0.2),
    )[0]  # fmt: skip
    return form.format(host, port)


OTHER_LINES = (
    "\n", "# comment\n", "lab\n", "names\n", "name a\n", "server [2001:db8::1]:1\n",
    "server a.b:1 key=192.0.2.1\n", "policy scheme=R\n", "policy scheme=S\n", "salt aa\n", "x-y\n", WORDS,
    SIGNATURES, HEADER, "what\n", "\u2028",
)  # fmt: skip


def any_file(chance: Random) -> str:
    soundness = chance.choice((1.0, 1.0, 0.9))
    lines = [HEADER] if chance.random() < 0.95 else []
    if chance.random() < 0.3:
        lines.append("lab\n")
    for _ in range(chance.randrange(12)):
        is_server = chance.random() < 0.85
        lines.append(server_line(chance, soundness=soundness) if is_server else chance.choice(OTHER_LINES))
    return "".join(lines)


@pytest.mark.long
def test_lines_read_at_once_are_as_those_read_word_by_word() -> None:
    """The same cluster, or the same complaint about the same line."""
    chance = Random(13)
    sound = 0
    for _ in range(6000):
        text = any_file(chance)
        at_once = outcome(parse, text)
        assert at_once == outcome(parse_word_by_word, text), text
        sound += isinstance(at_once, Cluster)
    assert 1000 < sound < 5000


def test_order_and_line_numbers_of_what_is_read_at_once() -> None:
    middle = "server [2001:db8::1]:1\n# a comment\nserver 192.0.2.3:1\n"
    text = f"{HEADER}server 192.0.2.1:1\nserver 192.0.2.2:1\n{middle}server 192.0.2.4:1\n"
    names = [server.name for server in parse(text).servers]
    assert names == ["192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1", "192.0.2.3:1", "192.0.2.4:1"]
    with pytest.raises(ClusterError, match=r"cluster:8: 192\.0\.2\.2:1 stands in line 3 already"):
        parse(text + "server 192.0.2.2:1\n")
    with pytest.raises(ClusterError, match=r"cluster:9: expected one of name,"):
        parse(f"{text}server 192.0.2.5:1\nwhat\n")


def test_servers_of_a_lab_read_at_once_are_hosts_of_their_own() -> None:
    (one, two) = parse(f"{HEADER}server 192.0.2.1:1\nserver 192.0.2.1:2\nlab\n").servers
    assert one == ServerEntry((("192.0.2.1", 1),), "192.0.2.1:1")
    assert two == ServerEntry((("192.0.2.1", 2),), "192.0.2.1:2")


# --- Any input ----------------------------------------------------------------------------------------

SOUND = (
    f"{HEADER}# comment\nname tromsø\npolicy k=2 publish=1 subscribe=2\nsalt 00ff\nsalt 01 from=5\n"
    "server 192.0.2.1:7400\nserver 192.0.2.2:7400,[2001:db8::2]:7400\nserver [2001:db8:1::]:1\n",
    f"{HEADER}lab\nnames\nserver kcast-0.kcast:1 key=a\nserver 192.0.2.1:2 key=a\nserver 192.0.2.1:3\n",
    f"{HEADER}{WORDS}next-salt 0a0b0c0d {'01' * 32}\nsalt-reveal 0a0b0c0d {'02' * 32} in=8\n"
    f"server 192.0.2.1:7400\n\nserver 192.0.2.2:7400\npending 192.0.2.3:7400\n{SIGNATURES}",
)
PIECES = (
    *(b"\n", b"\n\n", b"\r", b"\r\n", b"\t", b" ", b"\0", b"\x0b", b"\x0c", b"\x1c", b"\x7f", b"\xc2\x85"),
    *(
        b"\xe2\x80\xa8",
        b"\xe2\x80\xa9",
        b"\xe2\x80\x94 ",
        b"\xc2\xa0",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xed\xa0\x80",
    ),
    *(b"#", b"=", b",", b"key=", b"from=", b"in=", b"server ", b"pending ", b"lab\n", b"names\n", b"9" * 30),
)


def mutant(chance: Random, texts: Sequence[str] = SOUND) -> bytes:
    data = bytearray(chance.choice(texts).encode())
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at, to = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
        kind = chance.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at:at] = chance.choice(PIECES)
        elif kind == 2:
            del data[at : min(to, at + 9)]
        elif kind == 3:
            head, *lines = data.splitlines(keepends=True)
            chance.shuffle(lines)
            data = bytearray(head + b"".join(lines))
        else:
            data[at:at] = data[at : min(to, at + 60)]
    return bytes(data)


def check(data: bytes) -> bool:
    """Whether the bytes are a sound file. Complaints are one line, name a line, and quote little."""
    try:
        cluster = parse(decode(data, "x"), "x")
    except ClusterError as error:
        assert re.fullmatch(r"x:[1-9][0-9]*: [^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,400}", str(error)), data
        assert int(str(error).split(":")[1]) <= data.count(b"\n") + 1, data
        return False
    assert cluster.servers
    assert parse(format_cluster(cluster)) == replace(cluster, signatures=()), data
    assert cluster.is_signed or not cluster.signatures
    return True


@pytest.mark.long
def test_any_mutant_of_a_sound_file_is_a_cluster_or_a_complaint() -> None:
    chance = Random(13)
    sound = sum(check(mutant(chance)) for _ in range(8000))
    assert 500 < sound < 5000


def test_any_bytes_are_a_complaint() -> None:
    chance = Random(14)
    assert not any(check(chance.randbytes(chance.randrange(200))) for _ in range(500))
    assert not any(check(HEADER.encode() + chance.randbytes(chance.randrange(1, 9))) for _ in range(500))


LONG = 100_000


@pytest.mark.parametrize(
    "line",
    [
        *("server " + char * LONG for char in ",:[9.a"),
        *(f"{word} {'9' * LONG}" for word in ("policy", "salt", "version", "next-salt", "pending", "name x")),
        *(f"policy {setting}={'9' * LONG}" for setting in ("scheme", "k", "scheme=CH k=1 side")),
        f"lab\nserver 192.0.2.1:2 key={'a' * LONG}\nserver 192.0.2.2:2 key={'a' * LONG}",
        "w" * LONG,
    ],
    ids=lambda line: line[:12],
)
def test_complaint_about_a_long_line_is_short(line: str) -> None:
    assert not check(f"{HEADER}{line}\nserver 192.0.2.1:1\n".encode())
    assert not check(f"{line}\n".encode())


# --- The grammar of PROTOCOL §10 ----------------------------------------------------------------------

FACTS = ("version", "trust", "valid-until", "pending", "next-salt", "salt-reveal")
GRAMMAR = Grammar(PROTOCOL)


@pytest.mark.long
def test_signed_lists_that_are_read_are_in_the_grammar() -> None:
    """§10.4, as a whole and fact by fact."""
    chance = Random(15)
    whole, fact = GRAMMAR.pattern("signed-list"), GRAMMAR.pattern("list-fact")
    facts_seen = 0
    for data in (mutant(chance, SOUND[2:]) for _ in range(6000)):
        read = outcome(lambda data: parse(decode(data, "x")), data)
        if isinstance(read, str) or not read.signatures:
            continue
        assert whole.fullmatch(data), data
        for line in cut(data.decode())[0].split("\n"):
            words = re.split("(?:^| )#", line)[0].strip(" ")
            if words.split(" ")[0] in FACTS:
                facts_seen += 1
                assert fact.fullmatch(words.encode()), line
    assert facts_seen > 500


def test_names_of_lists_are_those_of_the_grammar() -> None:
    chance = Random(16)
    name = GRAMMAR.pattern("list-name")
    texts = [
        "".join(chance.choices("a0.-/A_ \n", (6, 6, 2, 2, 2, 0.2, 0.2, 0.2, 0.2), k=chance.randrange(9)))
        for _ in range(5000)
    ]
    assert [is_list_name(text) for text in texts] == [
        name.fullmatch(text.encode()) is not None for text in texts
    ]
    assert 500 < sum(map(is_list_name, texts)) < 4500
    assert is_list_name("a" * 64) and not is_list_name("a" * 65)


# --- Where the text ends ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whole", "text", "tail"),
    [
        ("", "", ""),
        ("a\n", "a\n", ""),
        ("a\n\nb\n", "a\n", "b\n"),
        ("a\n\nb\n\nc\n", "a\n\nb\n", "c\n"),
        ("a\n\n\nb\n", "a\n\n", "b\n"),
        ("a\n\n", "a\n", ""),
        ("\n\na\n", "\n", "a\n"),
        ("a\r\n\r\nb\r\n", "a\r\n\r\nb\r\n", ""),
    ],
)
def test_text_ends_at_the_last_empty_line(whole: str, text: str, tail: str) -> None:
    """C2SP signed-note"""
    assert cut(whole) == (text, tail)
