"""Logs of a sealed topic on the simulated network: each member has those of all epochs that it holds.

Each epoch's log is a part with a ledger of its own, by which the checkers of `tests.simulation.logs` judge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from kcast.client.history.epochs import Epochs
from kcast.client.history.log import Keeping, Log
from kcast.client.messages.envelope import new_publisher
from kcast.client.sealed.guards import SealedGuard
from kcast.client.sealed.membership import Group
from kcast.client.sealed.topics import hidden
from kcast.client.sealed.writers import SealedWriter
from kcast.pubsub import wire
from tests.simulation.hosts import START_UNIX_S
from tests.simulation.layers import LayerRun
from tests.simulation.logs import TOPIC, Disk, Holder, Logs, Talk
from tests.simulation.options import Options
from tests.simulation.world import World
from tests.support.attack_stage import ALICE, epoch, group_of


class SealedHolder(Holder):
    """A process's log of one epoch. What it appends its `writer` seals."""

    writer: SealedWriter

    def line(
        self, topic: bytes, payload: bytes, attributes: Mapping[str, str], spare_bytes: int, now: float
    ) -> tuple[int, bytes]:
        if not attributes:  # what holders say is clear
            return super().line(topic, payload, attributes, spare_bytes, now)
        given = wire.encode_topic(topic), [payload], now + self.clock_offset_s, attributes, spare_bytes
        first, (line,) = self.writer.lines(*given)
        return first, line


class Member:
    """A process, from its start to its end. Its `disks`, by wire topic, outlive it."""

    def __init__(self, logs: "SealedLogs", group: Group, disks: dict[bytes, Disk], error_s: float) -> None:
        world = logs.world
        self.logs, self.group, self.disks, self.error_s = logs, group, disks, error_s
        self.client = client = world.add_client(*world.new_client_addresses())
        client.set_wall_clock(error_s)
        self.holders: dict[Log, SealedHolder] = {}
        rng = Random(world.rng.getrandbits(64))
        self.guard = SealedGuard(group, client.now + client.core.clock_offset_s)
        self.writer = SealedWriter(lambda: group, rng.randbytes, lambda: new_publisher(rng), ALICE)
        self.epochs = Epochs(TOPIC, self.guard, self._open, lambda: client.core.clock_offset_s)
        LayerRun(world, client).begin(self.epochs)

    def _open(self, place: bytes) -> Log:
        part = self.logs.parts[place]
        disk = self.disks.setdefault(place, Disk(self.logs.world, place))
        holder = SealedHolder(part, self.client, disk, Keeping())
        holder.writer, holder.inner = self.writer, self.guard
        self.holders[holder.log] = holder
        part.begin(holder)
        return holder.log

    def append(self, payload: bytes) -> None:
        """Appends to the log of the epoch that is in force by its own clock."""
        self.epochs.handle_timeout(self.client.now)
        log = self.epochs.in_force
        assert log is not None
        self.holders[log].append(payload)

    def crash(self) -> None:
        for holder in self.holders.values():
            holder.logs.holders.remove(holder)
            holder.crash()


class SealedLogs:
    """Members of a group whose topic has entries, over all its epochs, and their crashes."""

    def __init__(self, options: Options, talk: Talk, starts: Sequence[float]) -> None:
        self.world = world = World(options)
        self.rng, self.talk = Random(f"sealed {options.seed}"), talk
        times = [int(START_UNIX_S + start) for start in starts]
        epochs = [epoch(number, at) for number, at in enumerate(times, 1)]
        epochs = [
            replace(each, next_from_unix_s=after)
            for each, after in zip(epochs, [*times[1:], float("inf")], strict=True)
        ]
        self.group = group_of(*epochs, until_unix_s=10**11)
        self.parts = {
            place: Logs(options, talk, topic=place, world=world)
            for place in (hidden(each.topic_secret, TOPIC) for each in epochs)
        }
        self.members: list[Member] = []
        for _ in range(talk.holders):
            self.start({})

    def start(self, disks: dict[bytes, Disk]) -> None:
        error_s = self.rng.uniform(-self.talk.error_s, self.talk.error_s)
        self.members.append(Member(self, self.group, disks, error_s))

    def crash(self) -> None:
        member = self.members.pop(self.rng.randrange(len(self.members)))
        member.crash()
        self.world.clock.after(self.rng.choice((0.1, 3.0)), partial(self.start, member.disks))

    def keep_appending(self, until: float) -> None:
        if self.world.clock.time < until:
            if able := [each for each in self.members if each.client.can_act]:
                self.rng.choice(able).append(b"x" * self.rng.choice((1, 20, 200)))
            delay_s = self.rng.expovariate(1 / self.talk.interval_s)
            self.world.clock.after(delay_s, partial(self.keep_appending, until))

    def run(self) -> "SealedLogs":
        healed_at = self.world.options.fault_s
        self.world.clock.after(1.0, partial(self.keep_appending, healed_at))
        for _ in range(self.talk.crashes):
            self.world.clock.at(self.rng.uniform(1.0, healed_at - 4), self.crash)
        self.world.run_until(healed_at + 3.0)
        self.world.heal()
        self.world.run_for(self.talk.calm_s)
        for part in self.parts.values():
            part.finish()
        return self
