"""client/session/lease_requests.py: a ttl, however short, makes clients renew at a bounded rate (§7.3)."""

import pytest

from kcast.client.session.lease_requests import RENEWAL_INTERVAL_S_MIN, renewal_interval_s
from kcast.client.session.leases import Leases
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from tests.client.session.test_session_lies import Liar
from tests.support.fake_server import FakeServer, Talk, topics_of

DATAGRAMS_PER_S = 6


def leases_of(count: int, size: int = 3) -> Leases:
    leases = Leases()
    for topic in topics_of(count, size):
        leases.want(topic, 0.0)
    return leases


@pytest.mark.parametrize("ttl_s", [0, 1, 2, 5])
@pytest.mark.parametrize(("count", "size"), [(1, 3), (63, 3), (150, 3), (500, 3), (60, 200)])
def test_short_ttl_brings_few_datagrams(ttl_s: int, count: int, size: int) -> None:
    liar = Liar(lie=lambda liar, _, asked: liar.receipt(asked, ttl_s=ttl_s))
    talk = Talk(liar, rtt_s=0.001)
    topics = topics_of(count, size)
    talk.want(*topics)
    talk.run(5)
    talk.asked.clear()
    talk.run(60)
    assert len(talk.asked) <= 60 * DATAGRAMS_PER_S
    names_bytes = 60 * DATAGRAMS_PER_S * DATAGRAM_BYTES_MAX
    assert sum(len(topic) + 1 for asked in talk.asked for topic in asked.topics) <= names_bytes


@pytest.mark.parametrize("count", [1, 63, 150])
def test_some_topics_are_kept_at_a_server_whose_ttl_is_a_second(count: int) -> None:
    talk = Talk(FakeServer(ttl_s=1), rtt_s=0.01)
    topics = topics_of(count)
    talk.want(*topics)
    talk.run(5)
    for _ in range(200):
        talk.run(0.1)
        assert talk.is_leased(*topics)


def test_many_leases_are_renewed_no_more_often_than_every_few_seconds() -> None:
    assert renewal_interval_s(1.0, 3, leases_of(10**4)) == RENEWAL_INTERVAL_S_MIN
    assert renewal_interval_s(60.0, 3, leases_of(10**4)) == 20.0
    assert renewal_interval_s(1.0, 3, leases_of(1)) == pytest.approx(1 / 3)


def test_sizes_of_topics_that_are_wanted_no_more_do_not_count() -> None:
    leases = leases_of(60, 200)
    assert renewal_interval_s(1.0, 3, leases) > RENEWAL_INTERVAL_S_MIN - 0.1
    for topic in topics_of(60, 200):
        leases.unwant(topic)
    assert renewal_interval_s(1.0, 3, leases) == pytest.approx(1 / 3)
