"""pubsub/networks.py: who shares limits with whom."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.pubsub.networks import Networks, is_loopback, networks_of, text_of


@pytest.mark.parametrize(
    ("host", "networks"),
    [
        ("192.0.2.7", ["192.0.2.0/24"]),
        ("10.0.0.255", ["10.0.0.0/24"]),
        ("2001:db8:1:2ff::7", ["2001:db8:1:2ff::/64", "2001:db8:1:200::/56", "2001:db8:1::/48"]),
        ("fe80::1%3", ["fe80::/64", "fe80::/56", "fe80::/48"]),
        ("::ffff:192.0.2.7", ["192.0.2.0/24"]),
        ("2002:c000:207::1", ["192.0.2.0/24"]),
        ("64:ff9b::c000:207", ["192.0.2.0/24"]),
        ("2001:0:1::3fff:fdf8", ["192.0.2.0/24"]),
    ],
)
def test_an_address_is_in_all_networks_whose_owner_has_it(host: str, networks: list[str]) -> None:
    assert [text_of(network) for network in networks_of(host)] == networks


@pytest.mark.parametrize("host", ["127.0.0.1", "127.255.255.255", "::1"])
def test_loopback_is_in_no_network_unless_it_is_not_exempt(host: str) -> None:
    assert is_loopback(host)
    assert networks_of(host) == ()
    assert networks_of(host, exempts_loopback=False)


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "2002:7f00:1::1", "64:ff9b::7f00:1", "128.0.0.1"])
def test_what_other_machines_can_use_is_not_exempt(host: str) -> None:
    """Addresses that only contain a loopback address may come from anywhere."""
    assert not is_loopback(host)
    assert networks_of(host)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.ip_addresses().map(str))
def test_each_network_contains_the_one_before(host: str) -> None:
    networks = networks_of(host, exempts_loopback=False)
    assert len(networks) in (1, 3)
    assert all(wider == narrower[:-1] for narrower, wider in pairwise(networks))
    assert len({text_of(network) for network in networks}) == len(networks)


def test_what_is_remembered_is_bounded() -> None:
    assert networks_of.cache_info().maxsize is not None


def test_whose_rates_an_address_uses() -> None:
    networks = Networks()
    assert networks.shares_of(("192.0.2.7", 1)) == (("192.0.2.7", 1), (b"\xc0\x00\x02", 8))
    assert [factor for _, factor in networks.shares_of(("2001:db8::7", 1))] == [1, 4, 16]
    assert networks.shares_of(("2001:db8::7", 1)) == networks.shares_of(("2001:db8::8", 2))
    assert networks.shares_of(("127.0.0.1", 1)) != networks.shares_of(("127.0.0.1", 2))


@pytest.mark.parametrize("host", ["::ffff:203.0.113.7", "2002:cb00:7107:1::5", "64:ff9b::cb00:7107"])
def test_who_has_an_ipv4_address_has_one_part_whatever_is_made_of_it(host: str) -> None:
    """6to4 makes a /48 of each IPv4 address. Its owner had the part of a whole IPv4 /24."""
    networks = Networks()
    assert networks.shares_of((host, 1)) == networks.shares_of(("203.0.113.7", 1))
    assert networks.path_of((host, 1))[:-1] == networks.path_of(("203.0.113.7", 1))[:-1]
