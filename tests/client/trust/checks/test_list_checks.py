"""trust/checks/list_checks.py: what a list leaves of topics' servers, in one sentence. PROTOCOL §10.7."""

import pytest

pytest.importorskip("nacl")

from kcast.client.cluster import Cluster
from kcast.client.trust.checks.list_checks import Clock, apart, kept, prefix_of
from tests.support.lists import FRESH_S, NOW_UNIX_S, Lists, hosts

LISTS = Lists()
CLOCK = Clock(NOW_UNIX_S)
FORMER = LISTS.cluster(12, version=41)


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (LISTS.cluster(12, version=42), "no topic has another server since version 41"),
        (LISTS.cluster(13, version=42), "every topic keeps at least 4 of 5 servers since version 41"),
        (
            LISTS.cluster(hosts(12, first=6), version=42, valid_after_s=NOW_UNIX_S + FRESH_S),
            "every topic keeps at least 0 of 5 servers since version 41, from when all have learned of it",
        ),
        (
            LISTS.cluster(12, version=42, salt=b"other", valid_after_s=NOW_UNIX_S + FRESH_S),
            "topics are placed anew since version 41, from when all have learned of it",
        ),
    ],
)
def test_what_each_topic_keeps(new: Cluster, text: str) -> None:
    assert apart(new, FORMER, CLOCK) is None
    assert kept(new, FORMER) == text


@pytest.mark.parametrize(
    ("host", "prefix"),
    [
        ("192.0.2.7", "192.0.2.0/24"),
        ("2001:db8:1:2::7", "2001:db8:1::/48"),
        ("::ffff:192.0.2.7", "192.0.2.0/24"),
        ("2002:c000:207::1", "192.0.2.0/24"),
        ("64:ff9b::c000:207", "192.0.2.0/24"),
        ("2001:0:1::3fff:fdf8", "192.0.2.0/24"),
    ],
)
def test_the_network_of_an_address_is_that_of_whoever_can_make_it(host: str, prefix: str) -> None:
    assert prefix_of(host) == prefix
