"""pubsub/cookie.py: golden cookies, and everything that a cookie is not good for. PROTOCOL §6."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.pubsub import cookie as cookie_module
from kcast.pubsub import wire
from kcast.pubsub.cookie import SECRET_BYTES, Cookies, Issued
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import COOKIE_CHARS, COOKIE_EPOCH_S, COOKIE_PUBLISH_LIFE_S, COOKIE_TIME_STEP_S
from kcast.pubsub.stamp import Quote
from tests.support import wire_vectors
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    answer,
    handshake,
    lease,
    new_server,
    send,
    vouched,
)

VECTORS: list[dict[str, Any]] = json.loads(wire_vectors.FILE.read_text(encoding="ascii"))["cookies"]
SECRET = bytes(range(SECRET_BYTES))
HOLDER: Address = ("192.0.2.7", 7400)
ISSUED_AT = 1000.0
BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def age_of(cookies: Cookies, cookie: bytes, address: Address, now: float) -> float | None:
    issued = cookies.read(cookie, address, now)
    return None if issued is None else issued.age_s


@pytest.fixture
def cookies() -> Cookies:
    return Cookies(SECRET)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["description"]))
def test_golden_cookie_both_ways(vector: dict[str, Any]) -> None:
    cookies = Cookies(bytes.fromhex(vector["secret_hex"]))
    address, quote = (vector["address"], vector["port"]), Quote(vector["bits"], vector["keeping"])
    cookie = vector["cookie"].encode()
    assert cookies.mint(address, vector["time_s"], quote) == cookie
    issued = cookies.read(cookie, address, vector["time_s"])
    assert issued is not None
    assert issued.quote == quote
    assert 0 <= vector["time_s"] - issued.issued_at < COOKIE_TIME_STEP_S
    assert len(cookie) == COOKIE_CHARS


@pytest.mark.parametrize(
    "stranger",
    [
        ("192.0.2.8", 7400),
        ("192.0.2.7", 7401),
        ("192.0.2.7", 7400 ^ 0x100),
        ("2001:db8::7", 7400),
        ("::192.0.2.7", 7400),
        ("64:ff9b::192.0.2.7", 7400),
    ],
)
def test_cookie_is_bound_to_address_port_and_family(stranger: Address, cookies: Cookies) -> None:
    """§6.1, both ways: neither is the holder's good for the stranger, nor the other way round."""
    assert age_of(cookies, cookies.mint(HOLDER, ISSUED_AT), stranger, ISSUED_AT) is None
    assert age_of(cookies, cookies.mint(stranger, ISSUED_AT), HOLDER, ISSUED_AT) is None
    assert age_of(cookies, cookies.mint(stranger, ISSUED_AT), stranger, ISSUED_AT) == 0.0


def test_cookie_of_another_server_or_of_the_same_after_a_restart_is_foreign() -> None:
    """§6.3: a server's secret is new with each process."""
    before, after = Cookies(SECRET), Cookies(bytes(SECRET_BYTES))
    assert age_of(after, before.mint(HOLDER, ISSUED_AT), HOLDER, ISSUED_AT) is None


@pytest.mark.parametrize(
    ("now", "age_s"),
    [
        (999.999, None),
        (1000.0, 0.0),
        (1000.25, 0.25),
        (1063.5, 63.5),
        (1000.0 + COOKIE_PUBLISH_LIFE_S, 3600.0),
        (1000.001 + COOKIE_PUBLISH_LIFE_S, None),
        (0.0, None),
        (1e9, None),
    ],
)
def test_age(now: float, age_s: float | None, cookies: Cookies) -> None:
    """§6.2: neither from the future nor past the longest life."""
    assert age_of(cookies, cookies.mint(HOLDER, ISSUED_AT), HOLDER, now) == age_s


def test_age_counts_in_steps(cookies: Cookies) -> None:
    """A cookie looks up to a step older than it is, never younger; so the later of two cookies is known."""
    step_s = COOKIE_TIME_STEP_S
    assert age_of(cookies, cookies.mint(HOLDER, 1000.75), HOLDER, 1001.0) == 0.25
    assert age_of(cookies, cookies.mint(HOLDER, 1000 + 2.9 * step_s), HOLDER, 1000 + 3 * step_s) == step_s


@pytest.mark.parametrize("quote", [Quote(bits, flag) for bits in (0, 1, 18, 24) for flag in (False, True)])
def test_quote_stands_in_the_cookie(quote: Quote, cookies: Cookies) -> None:
    """§6.1: nobody but the server can change it."""
    cookie = cookies.mint(HOLDER, ISSUED_AT, quote)
    issued = cookies.read(cookie, HOLDER, ISSUED_AT)
    assert issued == Issued(0.0, ISSUED_AT, quote)
    raw = bytearray(urlsafe_b64decode(cookie))
    raw[1] ^= 1
    assert cookies.read(urlsafe_b64encode(raw), HOLDER, ISSUED_AT) is None


def test_epochs_roll_over(cookies: Cookies) -> None:
    """A cookie of the last second of an epoch serves on; each epoch has a key of its own."""
    for epochs in range(1, 57):
        issued_at = epochs * COOKIE_EPOCH_S - 1
        cookie = cookies.mint(HOLDER, issued_at)
        for later_s in (0.0, 1.0, COOKIE_EPOCH_S + 1.0, COOKIE_PUBLISH_LIFE_S):
            assert age_of(cookies, cookie, HOLDER, issued_at + later_s) == later_s


def test_each_flipped_bit_makes_it_foreign(cookies: Cookies) -> None:
    raw = urlsafe_b64decode(cookies.mint(HOLDER, ISSUED_AT))
    for bit in range(len(raw) * 8):
        forged = bytearray(raw)
        forged[bit // 8] ^= 1 << bit % 8
        assert age_of(cookies, urlsafe_b64encode(forged), HOLDER, ISSUED_AT) is None, f"bit {bit}"


@pytest.mark.parametrize("version", [0, 1, 255])
def test_another_version_is_foreign(version: int, monkeypatch: pytest.MonkeyPatch, cookies: Cookies) -> None:
    """Also one that is made with the same secret."""
    with monkeypatch.context() as patch:
        patch.setattr(cookie_module, "_VERSION", version)
        other = cookies.mint(HOLDER, ISSUED_AT)
        assert age_of(cookies, other, HOLDER, ISSUED_AT) == 0.0
    assert urlsafe_b64decode(other)[0] == version
    assert age_of(cookies, other, HOLDER, ISSUED_AT) is None


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.text(BASE64URL, min_size=COOKIE_CHARS, max_size=COOKIE_CHARS), st.floats(0, 1e9))
def test_what_any_parser_lets_through_is_checked_without_raising(text: str, now: float) -> None:
    assert age_of(Cookies(SECRET), text.encode(), HOLDER, now) is None


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.ip_addresses().map(str),
    st.integers(0, 65535),
    st.floats(0, 4e9),
    st.floats(0, COOKIE_PUBLISH_LIFE_S - 1),
)
def test_minted_is_good_for_its_holder_through_its_life(
    host: str, port: int, at: float, later_s: float
) -> None:
    cookies = Cookies(SECRET)
    age_s = age_of(cookies, cookies.mint((host, port), at), (host, port), at + later_s)
    assert age_s is not None
    assert later_s - 1e-6 <= age_s < later_s + COOKIE_TIME_STEP_S + 1e-6


@pytest.mark.parametrize("size", [0, 16, 31, 33, 64])
def test_secret_of_another_length_is_the_callers_fault(size: int) -> None:
    with pytest.raises(ValueError, match=f"must be 32 random bytes, not {size}"):
        Cookies(bytes(size))


# --- §6: cookies through the server -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_s", "leases", "publishes"),
    [
        (0, True, True),
        (128, True, True),
        (128.001, False, True),
        (3600, False, True),
        (3600.001, False, False),
    ],
)
def test_lives_of_a_cookie(age_s: float, leases: bool, publishes: bool) -> None:
    """§6.2: 128 s for leases, new or renewed, and 1 h to publish; both to the end."""
    for line, good in ((b"t", leases), (b"t m", publishes), (b"", publishes)):
        server = new_server()
        cookie = handshake(server)
        lines = [line] if line else []
        (reply,) = answer(server, vouched(cookie, *lines), now=START + age_s)
        assert isinstance(reply, wire.Receipt if good else wire.Challenge)
        assert len(server.leases) == (line == b"t" and good)


def test_old_cookie_does_nothing_for_the_publishes_beside_a_subscribe() -> None:
    """§5.4: it answers `%=`, and does nothing else with the datagram."""
    server = new_server()
    cookie = handshake(server)
    lease(server, OTHER, b"t", now=START + 129)
    back = send(server, vouched(cookie, b"t", b"t m"), now=START + 129)
    assert [where for where, _ in back] == [CLIENT]
    assert server.drops == {Drop.COOKIE_OLD: 1}


def test_restarted_server_takes_no_cookie_of_before() -> None:
    """§6.3"""
    (reply,) = answer(new_server(2), vouched(handshake(new_server(1)), b"t"))
    assert isinstance(reply, wire.Challenge)
