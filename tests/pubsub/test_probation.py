"""pubsub/probation.py: who makes room, against a naive model; all end with equal parts. PROTOCOL §7.10."""

from collections import Counter
from random import Random

from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Networks, Path
from kcast.pubsub.probation import Probation
from tests.support.forms import Seeds
from tests.support.naive_table import NaiveProbation

PATH_OF = Networks().path_of
ADDRESSES: list[Address] = [
    *((f"192.0.{net}.{host}", port) for net in range(3) for host in range(3) for port in range(3)),
    *((f"2001:db8:{net}:{part}::{host}", 1) for net in range(3) for part in (0, 1, 256) for host in (1, 2)),
    *(("127.0.0.1", port) for port in range(3)),
]


def test_parties_of_an_address_the_widest_first() -> None:
    assert PATH_OF(("192.0.2.7", 5)) == (b"\xc0\x00\x02", "192.0.2.7", ("192.0.2.7", 5))
    wide, middle, narrow, address = PATH_OF(("2001:db8:1:203::7", 5))
    assert (len(wide), len(middle), len(narrow)) == (6, 7, 8)
    assert address == ("2001:db8:1:203::7", 5)
    assert PATH_OF(("127.0.0.1", 5)) == (("127.0.0.1", 5),)


Thing = tuple[Address, int]


def path_of(thing: Thing) -> Path:
    return PATH_OF(thing[0])


def test_probation_is_the_naive_one(seeds: Seeds) -> None:
    for seed in seeds(4, 20):
        rng = Random(seed)
        probation: Probation[Thing] = Probation(path_of)
        naive = NaiveProbation()
        addresses = rng.sample(ADDRESSES, rng.choice((2, 5, 20)))
        for _ in range(400):
            address = addresses[int(len(addresses) * rng.random() ** 2)]
            thing = address, rng.randrange(8)
            if rng.random() < 0.6:
                probation.enter(thing)
                naive.enter(thing, path_of(thing))
            else:
                assert probation.leave(thing) is naive.leave(thing, path_of(thing))
            if rng.random() < 0.02:
                network = path_of(thing)[0]
                probation.forget(network)
                naive.forget(network)
            asker, is_bound = PATH_OF(rng.choice(ADDRESSES)), rng.random() < 0.5
            assert probation.yielding_to(asker, of_its_network=is_bound) == naive.yielding_to(
                asker, of_its_network=is_bound
            )
            assert len(probation) == len(naive.things)
        probation.clear()
        assert len(probation) == 0 and probation.yielding_to(PATH_OF(addresses[0])) is None


def shares_after(wanted: dict[Address, int], room: int, rng: Random) -> Counter[Address]:
    """What each holds in the end, if all ask again and again for more, up to what they want."""
    probation: Probation[Thing] = Probation(path_of)
    held: dict[Address, dict[int, None]] = {address: {} for address in wanted}
    number = 0
    for _ in range(60 * room):
        address = rng.choice(list(wanted))
        if len(held[address]) >= wanted[address]:
            continue
        if len(probation) >= room:
            victim = probation.yielding_to(PATH_OF(address))
            if victim is None:
                continue
            probation.leave(victim)
            del held[victim[0]][victim[1]]
        number += 1
        probation.enter((address, number))
        held[address][number] = None
    return Counter({address: len(its) for address, its in held.items()})


def test_networks_end_with_equal_parts_however_many_addresses_they_have(seeds: Seeds) -> None:
    """Nine networks want all there is, with 1 to 40 addresses each, and one wants little and gets it."""
    for seed in seeds(1, 5):
        rng = Random(seed)
        greedy = {(f"198.51.{net}.{host}", 1): 500 for net in range(9) for host in range(1 + 5 * net)}
        modest: Address = ("203.0.113.5", 1)
        held = shares_after({**greedy, modest: 4}, 184, rng)
        assert held[modest] == 4
        by_network = Counter[str]()
        for (host, _), count in held.items():
            by_network[host.rpartition(".")[0]] += count
        del by_network["203.0.113"]
        assert sorted(by_network.values()) == [20] * 9, by_network


def test_newcomer_in_the_network_of_a_squatter_gets_a_part_of_its_part() -> None:
    """By IPs, and behind one IP by ports."""
    squatter = {("198.51.100.1", port): 500 for port in range(50)}
    others = {(f"198.51.{net}.1", 1): 500 for net in range(3)}
    neighbour, behind = ("198.51.100.2", 1), ("198.51.100.1", 99)
    held = shares_after({**squatter, **others, neighbour: 6, behind: 500}, 80, Random(1))
    assert held[neighbour] == 6
    assert sum(held[address] for address in squatter) + held[behind] == 14
    assert held[behind] == 0 or held[behind] == 1, "one port of 51"
    assert held[("198.51.0.1", 1)] == 20


def test_a_flood_of_askers_that_hold_nothing_takes_nothing_from_equals() -> None:
    """Where each holds one, nobody is pushed out for another: else all would be, again and again."""
    probation: Probation[Address] = Probation(PATH_OF)
    for address in ADDRESSES[:9:3]:
        probation.enter(address)
    for host in range(50):
        assert probation.yielding_to(PATH_OF((f"192.0.0.{host}", 77))) is None
