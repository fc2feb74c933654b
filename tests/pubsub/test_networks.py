"""pubsub/networks.py: which addresses share what a server gives."""

import pytest

from kcast.pubsub.networks import Networks, is_loopback


@pytest.mark.parametrize(
    ("host", "networks"),
    [
        ("192.0.2.7", ["c00002"]),
        ("192.0.2.255", ["c00002"]),
        ("2001:db8:1:203::7", ["20010db800010203", "20010db8000102", "20010db80001"]),
        ("::ffff:192.0.2.7", ["c00002"]),
        ("2002:c000:0207::1", ["c00002"]),
        ("2001:0:1234::3fff:fdf8", ["c00002"]),
        ("64:ff9b::192.0.2.7", ["c00002"]),
        ("127.0.0.1", []),
        ("127.255.0.9", []),
        ("::1", []),
    ],
)
def test_networks_of_an_address(host: str, networks: list[str]) -> None:
    assert [network.hex() for network in Networks().of(host)] == networks


def test_loopback_may_count_as_any_other() -> None:
    networks = Networks(exempts_loopback=False)
    assert networks.of("127.0.0.1") == (b"\x7f\x00\x00",)
    assert len(networks.of("::1")) == 3


def test_whose_rates_an_address_uses() -> None:
    networks = Networks()
    assert networks.shares_of(("192.0.2.7", 1)) == (("192.0.2.7", 1), (b"\xc0\x00\x02", 8))
    assert [factor for _, factor in networks.shares_of(("2001:db8::7", 1))] == [1, 4, 16]
    assert networks.shares_of(("2001:db8::7", 1)) == networks.shares_of(("2001:db8::8", 2))
    assert networks.shares_of(("127.0.0.1", 1)) != networks.shares_of(("127.0.0.1", 2))


@pytest.mark.parametrize(
    ("host", "is_local"), [("127.0.0.1", True), ("::1", True), ("128.0.0.1", False), ("::2", False)]
)
def test_loopback(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
