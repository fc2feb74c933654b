"""Logs on the simulated network: seeds, the checkers with their saboteurs, random partitions, and figures."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from kcast.client.history.cursor import Cursor
from kcast.client.history.entries import Row
from kcast.client.history.having import Holder
from kcast.client.history.index import HIGHEST, LOWEST
from kcast.client.history.log import Log
from kcast.client.history.words import Ask, Have, Keep, Said, Word
from kcast.client.messages.envelope import new_publisher
from kcast.hashring.policy import Policy
from tests.simulation.checker import InvariantViolation
from tests.simulation.ledger import ClientTurn
from tests.simulation.logs import CHECKERS, DATAGRAM_BYTES, Disk, Logs, Talk
from tests.simulation.options import Options
from tests.support.forms import Seeds, few_of
from tests.support.sync_lab import make_entries

CALM = Options(seed=1, servers=5, clients=0, policy=Policy(5, 3, 5), delay_s=0.01, ttl_s=60, fault_s=15.0)
ROUGH = replace(CALM, loss=0.3, duplicate=0.1, reorder=0.3)


def settings(seed: int) -> tuple[Options, Talk]:
    """What a seed stands for."""
    rng = Random(f"logs {seed}")
    options = replace(
        CALM,
        seed=seed,
        servers=rng.randint(3, 6),
        policy=Policy(5, rng.choice((1, 3, 5)), 5),
        ttl_s=rng.choice((15, 60)),
        loss=rng.choice((0.0, 0.02, 0.3)),
        duplicate=rng.choice((0.0, 0.1)),
        reorder=rng.choice((0.0, 0.3)),
        delay_s=rng.choice((0.0005, 0.01, 0.06)),
        faults=rng.randint(0, 6),
        fault_s=rng.uniform(15, 30),
    )
    talk = Talk(
        holders=rng.randint(2, 5),
        interval_s=rng.choice((0.3, 1.0)),
        entries_max=rng.choice(((1000,), (1000,), (1000, 15))),
        crashes=rng.choice((0, 2, 4)),
        partitions=rng.choice((0, 0, 3)),
    )
    return options, talk


@pytest.mark.parametrize("remainder", range(4))
def test_seeds(seeds: Seeds, remainder: int) -> None:
    """In four parts, which several processes can run."""
    for seed in seeds(2, 200):
        if seed % 4 == remainder:
            Logs(*settings(seed)).run()


@pytest.mark.parametrize("remainder", range(4))
def test_seeds_with_liars(seeds: Seeds, remainder: int) -> None:
    """They forge what they have, answers, copies, and entries with the numbers of others."""
    for seed in seeds(1, 100):
        if seed % 4 == remainder:
            options, talk = settings(seed)
            Logs(replace(options, ttl_s=60), replace(talk, liars=1 + seed % 2, calm_s=180.0)).run()


@pytest.mark.parametrize("loss", [0.0, pytest.param(0.02, marks=pytest.mark.rest)])
def test_who_comes_late_gets_all_for_little_more_than_its_bytes(loss: float) -> None:
    """A leg of 20 ms, with credit and budgets."""
    logs = Logs(replace(CALM, seed=3, delay_s=0.02, uneven=False), Talk(holders=0, error_s=0.0))
    world, disk = logs.world, Disk(logs.world)
    topic = disk.tables.topic(disk.topic_name)
    entries, parents = make_entries(4000, 20, topic=disk.topic_name), tuple[bytes, ...]()
    for each in entries:
        disk.tables.commit([(topic, Row(each.id, each.publisher, each.seq, each.message, parents=parents))])
        parents = (each.id,)
    logs.start(disk)
    world.run_for(5.0)
    world.network.loss = loss
    late, received_bytes = logs.start(Disk(world)), 0

    def watch(turn: ClientTurn) -> None:
        nonlocal received_bytes
        if turn.host is late.client:
            received_bytes += sum(len(packet.data) + DATAGRAM_BYTES for packet in turn.packets)

    world.watchers.append(watch)
    world.run_for(6.0 if loss else 4.0)
    assert late.ids() == {each.id for each in entries}
    assert received_bytes < 1.15 * sum(len(each.message) for each in entries)
    logs.finish()


@pytest.mark.parametrize("remainder", range(2))
def test_parts_of_a_network_converge_each_by_itself_as_plain_sets_do(seeds: Seeds, remainder: int) -> None:
    """Again and again hosts fall into groups at random. All of a group that has a server have the same."""
    for seed in seeds(1, 50):
        if seed % 2 == remainder:
            parts(replace(CALM, seed=seed, delay_s=0.005, loss=seed % 3 * 0.02, uneven=False))


def parts(options: Options) -> None:
    logs = Logs(options, Talk(holders=5, error_s=1.0))
    world, rng = logs.world, Random(options.seed)
    holders, servers = logs.holders, world.servers
    world.run_for(4.0)
    oracle: dict[str, set[str]] = {holder.client.name: set() for holder in holders}
    for _ in range(4):
        clients = [holder.client for holder in holders]
        some = *rng.sample(clients, rng.randint(1, 4)), *rng.sample(servers, rng.randint(1, 4))
        one = {host.name for host in some}
        groups = [one, {host.name for host in [*clients, *servers]} - one]
        world.network.blocked.clear()
        logs.part(groups)
        world.run_for(5.0)
        made = [(holder, holder.append(b"x")) for holder in holders for _ in range(rng.randint(0, 2))]
        world.run_for(60.0)
        for holder, outcome in made:
            oracle[holder.client.name].add(outcome.result.id)
        for group in groups:
            names = [name for name in oracle if name in group]
            all_ = set().union(*(oracle[name] for name in names))
            oracle.update((name, set(all_)) for name in names)
        for holder in holders:
            assert holder.seen == oracle[holder.client.name], (groups, holder.log.status())


# --- The checkers find what is wrong -----------------------------------------------------------------


class Contented(Log):
    """Does not care what others have."""

    def said(self, said: Said, sender: str | None, now: float) -> None:
        if not isinstance(said, Have):
            super().said(said, sender, now)


class Hasty(Log):
    """Tells of an entry at once."""

    def came(self, row: Row, now: float, holder: Holder | None = None) -> None:
        self._begin(now)
        if not self.is_known(row.entry_id):
            self._take(row)


class Eager(Log):
    """Says that it keeps what is about to be written."""

    def on_disk(self, ids: Any) -> list[bytes]:
        return [each for each in ids if self._counts(each)]


class Patient(Log):
    """Ends no sync."""

    def handle_timeout(self, now: float) -> None:
        super().handle_timeout(now)
        if self._sync is not None:
            # A saboteur breaks what is there: mypy would have a subclass.
            self._sync.puller._end = lambda sync, now: None  # type: ignore[method-assign]


class Hoarder(Log):
    """Remembers who has asked."""

    def word(self, word: Word, by: str | None, now: float) -> None:
        super().word(word, by, now)
        if isinstance(word, Ask) and self._sync is not None:
            vars(self._sync.answers).setdefault("askers", set()).add(word.mine)


class Chatty(Log):
    """Answers all that others say."""

    def said(self, said: Said, sender: str | None, now: float) -> None:
        super().said(said, sender, now)
        if isinstance(said, Have) and self._sync is not None:
            having = self._sync.having
            having._equal, having._say_at = 0, now
            having._set_next()


class Stuttering(Cursor):
    """Tells the last one again."""

    def take(self) -> Any:
        found = super().take()
        self._ordinal -= bool(found)
        return found


class Sinking(Disk):
    """Loses its floor in a crash."""

    def crash(self) -> None:
        super().crash()
        with self.tables._writing():
            self.tables._db.execute("update topics set floor = ?", (LOWEST,))


USUAL, LYING = Talk(), Talk(liars=1, calm_s=180.0)
FULL = Talk(entries_max=(5,), interval_s=0.3, crashes=4)


@dataclass(frozen=True)
class Sabotage:
    """What is broken, in which weather, and which checker must say so."""

    checker: str
    make: dict[str, Any]
    talk: Talk = USUAL
    options: Options = ROUGH
    askers: int = 0


SABOTAGES = {
    "what others have ignored": Sabotage("same-set", {"make_log": Contented}),
    "children before parents": Sabotage("parents-first", {"make_log": Hasty}),
    "told again": Sabotage("once-each", {"make_cursor": Stuttering}),
    "the floor forgotten": Sabotage("floor-only-rises", {"make_disk": Sinking}, FULL),
    "kept before the commit": Sabotage("kept-is-on-disk", {"make_log": Eager}, options=CALM),
    "no end": Sabotage("sync-ends", {"make_log": Patient}, Talk(calm_s=180.0)),
    "askers remembered": Sabotage("holder-stateless", {"make_log": Hoarder}, LYING, CALM, 1000),
    "much ado": Sabotage("no-storm", {"make_log": Chatty}, options=CALM),
}


def run(sabotage: Sabotage, **make: Any) -> None:
    logs = Logs(sabotage.options, sabotage.talk, **make)
    if sabotage.askers:
        logs.world.clock.after(5.0, lambda: crowd(logs, sabotage.askers))
    logs.run()


def crowd(logs: Logs, askers: int) -> None:
    """So many ask each holder, all at once, for all that it has, and what it has on disk."""
    liar, ids = logs.liars[0], [bytes([0xFE, *[2] * 23])]
    for number in range(askers):
        mine, q = new_publisher(liar.rng), new_publisher(liar.rng)[:8]
        holder = logs.holders[number % len(logs.holders)].log.name.encode()
        liar.tell(holder, Ask(q, mine, "-", LOWEST, HIGHEST, 512))
        liar.tell(b"sync", Keep(q, mine, ids))
        if number % 20 == 19:
            liar.client.turn()


@pytest.mark.parametrize("name", few_of(SABOTAGES, 8))
def test_what_is_broken_is_found(name: str) -> None:
    sabotage = SABOTAGES[name]
    with pytest.raises(InvariantViolation) as caught:
        run(sabotage, **sabotage.make)
    assert caught.value.checker == sabotage.checker, caught.value


@pytest.mark.rest
@pytest.mark.parametrize("name", SABOTAGES)
def test_what_is_not_broken_passes(name: str) -> None:
    run(SABOTAGES[name])


def test_every_checker_is_sabotaged() -> None:
    assert {checker.name for checker in CHECKERS} == {sabotage.checker for sabotage in SABOTAGES.values()}


@pytest.mark.parametrize("remainder", range(2))
def test_seeds_of_sealed_topics_with_two_epoch_changes(seeds: Seeds, remainder: int) -> None:
    pytest.importorskip("cryptography")
    pytest.importorskip("nacl")
    from tests.simulation.sealed_logs import SealedLogs

    for seed in seeds(1, 100):
        if seed % 2 == remainder:
            options, talk = settings(seed)
            options = replace(options, fault_s=45.0, faults=0)
            logs = SealedLogs(options, replace(talk, entries_max=(1000,), calm_s=60.0), (-1000, 15, 30)).run()
            counts = [max(len(each.seen) for each in part.holders) for part in logs.parts.values()]
            assert min(counts) > 0 and all(len(part.holders) == talk.holders for part in logs.parts.values())
