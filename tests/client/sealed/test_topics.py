"""client/sealed/topics.py: what servers see of a topic, and whose messages a topic wants."""

import pytest

from kcast.client import cluster as clusters
from kcast.client.clusters.view import View
from kcast.client.sealed.topics import beacon_of, hash_of, hidden, parse_certified, topic_start
from kcast.hashring.hashing import hashed_bytes
from kcast.pubsub import wire

SECRET = bytes(range(32))
OTHER = bytes(range(1, 33))
KEYS = [bytes([first]) * 32 for first in (0xFF, 0x00, 0x80)]
NAMES = (
    b"weather/oslo",
    b"{game7}score",
    b"a{game7}",
    b"{}{a}b",
    "Größe 5 %".encode(),
    b"\0\xff",
    b"x" * 255,
)


@pytest.mark.parametrize("name", NAMES)
def test_hidden_topics_are_topics(name: bytes) -> None:
    topic = hidden(SECRET, name)
    assert wire.encode_topic(topic) == topic
    assert len(topic) == (22 if hashed_bytes(name) == name else 35)
    assert topic == hidden(SECRET, name) != hidden(OTHER, name)
    assert parse_certified(topic) is None


def test_the_forms() -> None:
    """As `openssl dgst -sha256 -mac hmac` gives them."""
    assert hidden(SECRET, b"weather/oslo") == b"c5HUYb1yZ9SbmeqKZLPkPQ"
    assert hidden(SECRET, b"{game7}score") == b"{B9ROqsEt22M}68XN7KQJ_Elx1TK2zQgWsg"
    assert beacon_of(SECRET) == b"\0group/3-xuRAQvoxnQ6oXNS4akyw"


@pytest.mark.parametrize("prefix", [b"", b"kcast-tag-of 1\n"])
def test_no_topic_of_a_user_has_the_hash_of_a_tag(prefix: bytes) -> None:
    """Else outsiders would see that a topic's name is its own tag."""
    name = prefix + b"{oslo}"
    assert hidden(SECRET, name)[1:11] != hidden(SECRET, name).partition(b"}")[2][:10]
    assert hidden(SECRET, name)[1:11] not in {
        hidden(SECRET, each)[-22:-12] for each in (b"oslo", b"{oslo}", name)
    }


def test_related_topics_share_their_servers() -> None:
    servers = "".join(f"server 192.0.{number}.1:{port}\n" for number in range(40) for port in (7400, 7401))
    view = View(clusters.parse(f"kcast-cluster 1\npolicy k=5 publish=3 subscribe=5\nsalt 00\n{servers}"))
    for tag in (b"a", b"game7", b"\xc3\xa9", b"{x"):
        names = [b"{%b}" % tag, b"{%b}score" % tag, b"chat/{%b}/%d" % (tag, 1), b"x{%b}{y}" % tag]
        assert len({view.servers(name) for name in names}) == 1
        assert len({view.servers(hidden(SECRET, name)) for name in names}) == 1
        assert len({hidden(SECRET, name) for name in names}) == len(names)
    spread = {view.servers(hidden(SECRET, b"{%d}score" % number)) for number in range(50)}
    assert len(spread) == 50
    assert len({view.servers(hidden(SECRET, b"score%d" % number)) for number in range(50)}) == 50


def test_certified_topics() -> None:
    start = topic_start(KEYS)
    assert start == topic_start(reversed([*KEYS, *KEYS]))
    assert len(start) == 23
    for name in (start, f"{start}/", f"{start}/oslo", f"{start}/{{a}}/\n"):
        assert parse_certified(name.encode()) == hash_of(KEYS)
    assert hash_of(KEYS) != hash_of(KEYS[:2])


@pytest.mark.parametrize(
    "name",
    [
        *("~", "~a", f"~{'a' * 21}", f"~{'a' * 21}/", f"~{'a' * 23}", f"~{'a' * 22}x", f"~{'a' * 22}\n"),
        *(f"~{'a' * 21}=/", f"~{'a' * 21}+/", f"x~{'a' * 22}/", f"~~{'a' * 21}/", f"~{'a' * 22}%2F", ""),
    ],
)
def test_other_topics_are_as_before(name: str) -> None:
    assert parse_certified(name.encode()) is None
