"""pubsub/holders.py: what addresses and networks hold, against lists that are counted again and again."""

from dataclasses import dataclass
from itertools import islice
from random import Random

from kcast.pubsub.audience import Entry
from kcast.pubsub.endpoint import Address
from kcast.pubsub.holders import Holders, Holdings
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, LEASES_KEPT_FREE
from kcast.pubsub.networks import Networks
from tests.support.forms import Seeds

ADDRESSES: list[Address] = [
    *((f"198.51.{net}.{host}", port) for net in range(4) for host in (1, 2) for port in range(3)),
    *((f"2001:db8:{net}::{host}", 1) for net in range(2) for host in (1, 2)),
    ("203.0.113.1", 1),
    *(("127.0.0.1", port) for port in range(3)),
]
A, B, HERE = ADDRESSES[0], ("203.0.113.1", 1), ("127.0.0.1", 1)
NETWORKS = Networks()
NETWORK_OF = {address: (None, *NETWORKS.of(address[0]))[-1] for address in ADDRESSES}  # the widest


@dataclass
class Naive:
    """The leases that stand, and when each address without one may be forgotten."""

    entries: list[Entry]  # in the order in which they were granted
    openers: dict[bytes, Entry]
    known_until: dict[Address, float]

    def of(self, address: Address) -> list[Entry]:
        return [entry for entry in self.entries if entry.address == address]

    def by_network(self) -> dict[bytes | None, list[Entry]]:
        """The leases of each network; under None those of addresses that count for no network."""
        found: dict[bytes | None, list[Entry]] = {network: [] for network in NETWORK_OF.values()}
        for entry in self.entries:
            found[NETWORK_OF[entry.address]].append(entry)
        return found

    def known(self) -> set[Address]:
        holding = {entry.address for entry in self.entries if NETWORK_OF[entry.address]}
        return holding | self.known_until.keys()


def check(holders: Holders, naive: Naive, is_established: set[bytes]) -> None:
    known, by_network = naive.known(), naive.by_network()
    known_networks = {NETWORK_OF[address] for address in known}
    for address in ADDRESSES:
        assert holders.lease_count(address) == len(naive.of(address))
        assert (address in holders) is (address in known)
        network = holders.network_of(address)
        assert network == NETWORK_OF[address]
        if network is None:
            continue
        holdings, theirs = holders.holdings_of(network), by_network[network]
        assert (holdings is None) is (network not in known_networks)
        if holdings is None:
            continue
        topics = {topic for topic, opener in naive.openers.items() if opener in theirs}
        found = holdings.leases, holdings.established, holdings.topics, holdings.established_topics
        assert found == (
            len(theirs),
            sum(entry.is_established for entry in theirs),
            len(topics),
            len(topics & is_established),
        )
    assert len(holders) == len(known)
    everybody = list(holders.fairly(Random(1)))
    assert sorted(everybody) == sorted(known)


def test_holders_are_the_naive_ones(seeds: Seeds) -> None:
    """As a table calls them: topics are opened, joined, handed over, established and left."""
    for seed in seeds(1, 4):
        rng = Random(seed)
        holders, naive = Holders(NETWORKS, 1000), Naive([], {}, {})
        is_established: set[bytes] = set()
        now = 100.0
        for _ in range(400):
            now += rng.choice((0.0, 1.0, 10.0))
            address = ADDRESSES[int(len(ADDRESSES) * rng.random() ** 2)]
            topic = b"%d" % rng.randrange(40)
            on_topic = [entry for entry in naive.entries if entry.topic == topic]
            mine = [entry for entry in on_topic if entry.address == address]
            if not mine:
                entry = Entry(topic, (address[0], address[1]), now, has_joined=bool(on_topic))
                if len(on_topic) == 1:
                    holders.shares_topic(on_topic[0])
                holders.add(entry)
                naive.entries.append(entry)
                naive.openers.setdefault(topic, entry)
                naive.known_until.pop(address, None)
            elif not mine[0].is_established and rng.random() < 0.5:
                if topic not in is_established:
                    is_established.add(topic)
                    holders.count_topic(naive.openers[topic].address, 0, 1)
                mine[0].opened_at = None
                holders.count_established(mine[0])
            else:
                entry = mine[0]
                naive.entries.remove(entry)
                if naive.openers[topic] is entry:
                    holders.count_topic(address, -1, -(topic in is_established))
                    on_topic.remove(entry)
                    del naive.openers[topic]
                    if on_topic:
                        naive.openers[topic] = on_topic[-1]
                        holders.count_topic(on_topic[-1].address, 1, topic in is_established)
                    else:
                        is_established.discard(topic)
                holders.remove(entry, now)
                if not naive.of(address) and holders.network_of(address):
                    naive.known_until[address] = now + COOKIE_LEASE_LIFE_S
            holders.expire(now, 1000)
            naive.known_until = {each: at for each, at in naive.known_until.items() if at > now}
            assert holders.next_expiry() == min(naive.known_until.values(), default=None)
            check(holders, naive, is_established)


def holders_of(*addresses: Address) -> Holders:
    holders = Holders(NETWORKS, 1000)
    for number, address in enumerate(addresses):
        holders.add(Entry(b"%d" % number, address, 0.0))
    return holders


def test_a_lease_alone_stands_for_its_network() -> None:
    holders = holders_of(A)
    network = holders.network_of(A)
    assert network is not None
    entry = holders.holdings_of(network)
    assert isinstance(entry, Entry)
    assert (entry.leases, entry.topics, entry.established, entry.established_topics) == (1, 1, 0, 0)
    entry.opened_at = None
    assert (entry.established, entry.established_topics) == (1, 1)
    holders.shares_topic(entry)
    assert isinstance(holders.holdings_of(network), Holdings)


def test_a_lease_alone_that_joined_a_topic_stands_for_its_network_until_the_topic_counts_for_it() -> None:
    holders = holders_of(A)
    entry = Entry(b"0", B, 0.0, has_joined=True)
    holders.add(entry)
    network = holders.network_of(B)
    assert network is not None and holders.holdings_of(network) is entry
    entry.opened_at = None
    assert (entry.leases, entry.topics, entry.established, entry.established_topics) == (1, 0, 1, 0)
    holders.count_topic(B, 1, 1)
    found = holders.holdings_of(network)
    assert isinstance(found, Holdings)
    assert (found.leases, found.topics, found.established, found.established_topics) == (1, 1, 1, 1)


def test_all_leases_of_an_address_have_one_object_for_it() -> None:
    """A datagram brings an address of its own each time."""
    holders = Holders(NETWORKS, 1000)
    host, port = A
    entries = [Entry(b"%d" % number, (host, port), 0.0) for number in range(5)]
    assert len({id(entry.address) for entry in entries}) == 5
    for entry in entries:
        holders.add(entry)
    assert {id(entry.address) for entry in entries} == {id(entries[0].address)}


def test_where_one_of_the_first_few_has_gone_the_next_one_takes_its_place() -> None:
    holders = Holders(NETWORKS, 1000)
    entries = [Entry(b"%02d" % number, A, 0.0) for number in range(LEASES_KEPT_FREE + 3)]
    for entry in entries:
        holders.add(entry)
    assert list(holders.beyond_free(A)) == [b"08", b"09", b"10"]
    holders.remove(entries[2], 1.0)
    assert list(holders.beyond_free(A)) == [b"09", b"10"]
    holders.remove(entries[10], 1.0)
    assert list(holders.beyond_free(A)) == [b"09"]
    holders.remove(entries[9], 1.0)
    assert not holders.beyond_free(A)
    assert not holders.beyond_free(B)


# --- Who has left ---------------------------------------------------------------------------------------


def test_who_has_left_is_known_as_long_as_a_cookie_of_its_may_be_good() -> None:
    holders, told = Holders(NETWORKS, 1000), list[Address]()
    holders.forgotten = told.append
    for address in (A, HERE):
        entry = Entry(b"t", address, 0.0)
        holders.add(entry)
        holders.remove(entry, 60.0)
    assert A in holders and HERE not in holders, "on loopback no filter asks for it"
    holders.expire(60.0 + COOKIE_LEASE_LIFE_S - 0.001, 1000)
    assert A in holders
    holders.keep(A, 100.0)
    assert holders.next_expiry() == 100.0 + COOKIE_LEASE_LIFE_S
    holders.expire(100.0 + COOKIE_LEASE_LIFE_S, 1000)
    assert A not in holders and told == [A] and not len(holders)
    holders.keep(A, 300.0)
    assert holders.next_expiry() is None


def test_no_more_than_so_many_who_left_are_known_and_those_with_leases_always() -> None:
    holders, told = Holders(NETWORKS, 10), list[Address]()
    holders.forgotten = told.append
    holders.add(Entry(b"t", B, 0.0))
    addresses = [(f"198.51.{number}.1", 1) for number in range(30)]
    for number, address in enumerate(addresses):
        entry = Entry(b"%d" % number, address, 0.0)
        holders.add(entry)
        holders.remove(entry, float(number))
    assert told == addresses[:20]
    assert B in holders and len(holders) == 11


def test_to_choose_some_touches_no_network_twice_before_all_have_one() -> None:
    crowd: list[Address] = [("198.51.100.1", port) for port in range(500)]
    few: list[Address] = [("203.0.113.1", 1), ("192.0.2.1", 1), ("192.0.2.1", 2)]
    holders = holders_of(*crowd, *few)
    for seed in range(9):
        chosen = list(islice(holders.fairly(Random(seed)), 4))
        assert len({NETWORKS.of(host) for host, _ in chosen[:3]}) == 3
