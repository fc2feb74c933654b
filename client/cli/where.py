"""`kcast where`: shows the servers of a topic, their ranks, and why it is these."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, NamedTuple

import click

from kcast.client.cli.common import (
    cluster_option,
    errors_as_lines,
    load_cluster,
    topic_argument,
)
from kcast.client.cli.proofs import Credentials, key_option, require, seal_option
from kcast.client.cli.text import escaped, paragraph, table, tell, text_fields, to_json
from kcast.client.cli.times import utc
from kcast.client.clusters.cluster import Cluster, ServerEntry
from kcast.client.clusters.stages import in_force, stages
from kcast.client.clusters.view import View
from kcast.hashring.hashing import ARCS, OFFSET_BITS, hashed_bytes, topic_hash
from kcast.hashring.policy import Policy

if TYPE_CHECKING:
    from kcast.client.sealed.membership import Group
    from kcast.client.sealed.sealing import Epoch

_RING = 2**64
_TIMES_MAX_S = 253_402_300_800  # the year 10000: no calendar shows more


@click.command("where")
@click.argument("topic")
@cluster_option
@click.option("-k", type=click.IntRange(min=1), help="Number of hosts to list. [default: the policy's K]")
@seal_option("Show where messages sealed for this group travel, of which you are a member.")
@key_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each server, one a line.")
def command(
    topic: str,
    cluster_name: str | None,
    k: int | None,
    group_name: str | None,
    key_name: str | None,
    as_json: bool,
) -> None:
    """Show the servers of TOPIC, nearest first, and why it is these. Asks no server.

    On the ring, a topic belongs to the K hosts whose points come right before its position; rank 1 is the
    nearest. If -k is greater than K, the hosts that would be next have `-` under "used".

    In a group a topic travels under another name, which servers cannot understand, and which is another one
    in each epoch. With --seal both are shown, and the next epoch's where it is known already; the servers are
    those of the present one.

    With --json the keys are topic (or topic_base64, if it is not UTF-8), policy, hashed, position, rank,
    server, host and used; on the ring also arc, point and distance. Positions, points and distances are
    hexadecimal, in units of 2^-64 of the ring. With --seal there are also group, epoch and wire_topic, and
    next_epoch, next_from (in UTC) and next_wire_topic, which are null where no next epoch is known.

    \b
    Examples:
      kcast where --cluster lab.cluster weather/oslo
      kcast where --cluster lab.cluster weather/oslo --seal ops
    """
    require(key_name is not None and group_name is None, "--key", "--seal")
    with errors_as_lines("where"):
        name = _Name(topic_argument(topic))
        if group_name is not None:
            credentials = Credentials.load("where", key_name, group_name)
            assert credentials.group is not None
            name = _in_group(name.topic, credentials.group, time())
        file = load_cluster("where", cluster_name)
        now_unix_s = time()
        cluster = in_force(file, now_unix_s)
        policy = cluster.policy
        if policy.placement != "ring":
            if k is not None:
                raise click.UsageError(f"-k needs a policy on the ring; this one is {policy}: leave -k out.")
            lines = _without_ring(cluster, name, as_json)
        else:
            lines = _on_ring(cluster, name, policy.k if k is None else k, as_json)
        for line in lines:
            tell(line)
        if not as_json:
            for line in _coming(file, now_unix_s):
                tell(line)


class _Name(NamedTuple):
    """A topic's name, the one under which its messages travel, if that is another one, and what to say of
    it: as lines, and as keys of JSON."""

    topic: bytes
    hidden: bytes | None = None
    lines: tuple[str, ...] = ()
    fields: Mapping[str, object] = {}

    @property
    def placed(self) -> bytes:
        """What decides about the servers."""
        return self.topic if self.hidden is None else self.hidden


def _in_group(topic: bytes, group: "Group", now_unix_s: float) -> _Name:
    from kcast.client.sealed.topics import hidden

    # One that holds now is there, or the group could not be loaded.
    epoch = group.writing(now_unix_s) or group.epochs[-1]
    name = hidden(epoch.topic_secret, topic)
    lines = [f"sealed    {name.decode()}, in epoch {epoch.number} of {escaped(group.name)}"]
    fields: dict[str, object] = {"group": group.name, "epoch": epoch.number, "wire_topic": name.decode()}
    later = min((each for each in group.epochs if each.from_unix_s > now_unix_s), default=None, key=_begin_of)
    fields |= dict.fromkeys(("next_epoch", "next_from", "next_wire_topic"))
    if later is not None:
        next_name, begin = hidden(later.topic_secret, topic).decode(), utc(later.from_unix_s)
        lines.append(f"next      {next_name}, in epoch {later.number}, from {begin} on")
        fields |= {"next_epoch": later.number, "next_from": begin, "next_wire_topic": next_name}
    return _Name(topic, name, tuple(lines), fields)


def _begin_of(epoch: "Epoch") -> float:
    return epoch.from_unix_s


def _on_ring(cluster: Cluster, name: _Name, k: int, as_json: bool) -> Iterator[str]:
    view = View(replace(cluster, policy=Policy(k, k, k)))
    explanation, servers = view.explain(name.placed)
    used_count, publish, subscribe = cluster.policy.sizes(len(view.ring))
    position = explanation.topic_hash
    rows = []
    for place, server in zip(explanation.hosts, servers, strict=True):
        used = place.rank < used_count
        if as_json:
            yield to_json(
                {
                    **_common_fields(cluster, name, position),
                    "rank": place.rank + 1,
                    "server": server.name,
                    "host": server.key,
                    "used": used,
                    "arc": place.arc,
                    "point": f"{place.point:016x}",
                    "distance": f"{place.distance:016x}",
                }
            )
        distance = f"{place.distance / _RING:.7f}"
        names = escaped(server.name), escaped(server.key)
        rows.append(
            (
                f"{place.rank + 1}",
                *names,
                "yes" if used else "-",
                f"{place.arc}",
                f"{place.point:016x}",
                distance,
            )
        )
    if as_json:
        return
    yield from _head(cluster, name)
    arc = position >> OFFSET_BITS
    where = f"{position:016x}, {position / _RING:.7f} of the ring, arc {arc} of 0 to {ARCS - 1}"
    yield from _fact("position", where)
    yield from _fact("used", _used(publish, subscribe, used_count))
    yield ""
    yield from table(("rank", "server", "host key", "used", "arc", "point", "distance"), rows, left=3)
    yield from _shared_hosts(view, servers)
    yield ""
    yield from paragraph(
        "Each host has one point in each arc, from its key and the cluster's salt. A topic's hosts are those "
        "whose points come right before its position; the distance is a share of the ring."
    )


def _without_ring(cluster: Cluster, name: _Name, as_json: bool) -> Iterator[str]:
    view = View(cluster)
    servers = view.servers(name.placed)
    position, host_count = topic_hash(name.placed), len(view.ring)
    _, publish, subscribe = cluster.policy.sizes(host_count)
    if as_json:
        for rank, server in enumerate(servers, 1):
            yield to_json(
                {
                    **_common_fields(cluster, name, position),
                    "rank": rank,
                    "server": server.name,
                    "host": server.key,
                    "used": True,
                }
            )
        return
    yield from _head(cluster, name)
    if cluster.policy.placement == "modulo":
        where = f"{position:016x}, modulo {host_count} hosts: number {position % host_count}"
        yield from _fact("position", where)
        yield from _fact("used", "the host with that number; host keys are numbered in order, from 0")
    else:
        yield from _fact("position", "without effect: every topic is on all hosts")
        yield from _fact("used", _used(publish, subscribe, host_count))
    yield ""
    rows = [(f"{rank}", escaped(s.name), escaped(s.key)) for rank, s in enumerate(servers, 1)]
    yield from table(("rank", "server", "host key"), rows, left=3)
    yield from _shared_hosts(view, servers)


def _head(cluster: Cluster, name: _Name) -> Iterator[str]:
    hashed = hashed_bytes(name.placed)
    yield f"topic     {escaped(name.topic)}"
    yield from name.lines
    yield f"hashed    {escaped(hashed)}" + ("" if hashed == name.placed else " (only what is inside {...})")
    yield f"policy    {cluster.policy}"


def _coming(file: Cluster, now_unix_s: float) -> Iterator[str]:
    """Yields a note where another salt is to come, which places the topic anew."""
    begins = [stage.from_unix_s for stage in stages(file) if now_unix_s < stage.from_unix_s < _TIMES_MAX_S]
    if begins:
        yield ""
        yield from paragraph(f"Another salt holds from {utc(begins[0])} on: topics have other servers then.")


def _fact(name: str, text: str) -> list[str]:
    return paragraph(text, f"{name:<10}")


def _used(publish: int, subscribe: int, total: int) -> str:
    if publish == subscribe == total:
        return "both sides use " + ("the one host there is" if total == 1 else f"all {total} hosts")
    return f"publishers send to {_part(publish, total)}, subscribers lease on {_part(subscribe, total)}"


def _part(count: int, total: int) -> str:
    return f"all {total}" if count == total else f"{count} of {total}, drawn at random"


def _shared_hosts(view: View, servers: tuple[ServerEntry, ...]) -> Iterator[str]:
    """Yields a line for each host that has several servers, of which the topic uses one."""
    for server in servers:
        count = sum(other.key == server.key for other in view.cluster.servers)
        if count > 1:
            host = escaped(server.key)
            yield from paragraph(
                f"Host {host} has {count} servers; this topic uses {server.name}, chosen by the ports."
            )


def _common_fields(cluster: Cluster, name: _Name, position: int) -> dict[str, object]:
    return {
        **text_fields("topic", name.topic),
        **name.fields,
        "policy": str(cluster.policy),
        **text_fields("hashed", hashed_bytes(name.placed)),
        "position": f"{position:016x}",
    }
