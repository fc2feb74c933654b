"""`kcast where`: shows the servers of a topic, their ranks, and why it is these."""

from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any

import click

from kcast.client.cli.common import cluster_option, errors_as_lines, load_cluster, topic_argument
from kcast.client.cli.presets import fill_in
from kcast.client.cli.protection import Credentials, key_option, require, seal_option
from kcast.client.cli.text import escaped, paragraph, table, tell, text_fields, to_json
from kcast.client.clusters.cluster import Cluster
from kcast.client.clusters.view import View
from kcast.hashring.hashing import ARCS, OFFSET_BITS, hashed_bytes, topic_hash
from kcast.hashring.policy import Policy

if TYPE_CHECKING:
    from kcast.client.sealed.membership import Group

_RING = 2**64


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
    as_json: bool,
    **proof: Any,
) -> None:
    """Show the servers of TOPIC, nearest first, and why it is these. Asks no server.

    On the ring, a topic belongs to the K hosts whose points come right before its position; rank 1 is the
    nearest. If -k is greater than K, the hosts that would be next have `-` under "used".

    In a group a topic travels under another name, which servers cannot understand, and which is another one
    in each epoch. With --seal both are shown, and the servers of the present one.

    With --json the keys are topic (or topic_base64, if it is not UTF-8), policy, hashed, position, rank,
    server, host and used; on the ring also arc, point and distance. Positions, points and distances are
    hexadecimal, in units of 2^-64 of the ring. With --seal there are also group, epoch and wire_topic.

    \b
    Examples:
      kcast where --cluster lab.cluster weather/oslo
      kcast where --cluster lab.cluster weather/oslo --seal ops
    """
    with errors_as_lines("where"):
        fill_in(proof, cluster_name)
    require(proof["key_name"] is not None and proof["group_name"] is None, "--key", "--seal")
    with errors_as_lines("where"):
        name, now_unix_s = topic_argument(topic), time()
        sealed: dict[str, object] = {}
        placed, hidden_lines = name, ""
        if proof["group_name"] is not None:
            group = Credentials.load("where", **proof).group
            assert group is not None
            placed, sealed, hidden_lines = _in_group(name, group, now_unix_s)
        cluster = load_cluster("where", cluster_name)
        policy = cluster.policy
        if k is not None and policy.placement != "ring":
            raise click.UsageError(f"-k needs a policy on the ring; this one is {policy}: leave -k out.")
        rows = _servers(cluster, placed, policy.k if k is None else k)
        hashed, position = hashed_bytes(placed), topic_hash(placed)
        if as_json:
            common = {**text_fields("topic", name), **sealed, "policy": str(policy)}
            common |= {**text_fields("hashed", hashed), "position": f"{position:016x}"}
            for row in rows:
                tell(to_json({**common, **row}))
            return
        inside = "" if hashed == placed else " (only what is inside {...})"
        tell(f"topic     {escaped(name)}\n{hidden_lines}hashed    {escaped(hashed)}{inside}")
        tell(f"policy    {policy}")
        where, used, explanation = _explained(cluster, position)
        heads = {"rank": "rank", "server": "server", "host": "host key"}
        if policy.placement == "ring":
            heads |= {each: each for each in ("used", "arc", "point", "distance")}
        lines = [*paragraph(where, "position  "), *paragraph(used, "used      "), ""]
        lines += table([*heads.values()], [[_cell(key, row[key]) for key in heads] for row in rows], left=3)
        tell("\n".join([*lines, *(["", *paragraph(explanation)] if explanation else ())]))


def _in_group(topic: bytes, group: "Group", now_unix_s: float) -> tuple[bytes, dict[str, object], str]:
    """Returns the name under which messages travel, and what to say of it: as keys of JSON, and as lines."""
    from kcast.client.sealed.topics import hidden

    # One that holds now is there, or the group could not be loaded.
    epoch = group.writing(now_unix_s) or group.epochs[-1]
    name = hidden(epoch.topic_secret, topic)
    fields: dict[str, object] = {"group": group.name, "epoch": epoch.number, "wire_topic": name.decode()}
    text = f"sealed    {name.decode()}, in epoch {epoch.number} of {escaped(group.name)}\n"
    return name, fields, text


def _servers(cluster: Cluster, topic: bytes, k: int) -> list[dict[str, object]]:
    """Returns what is known of each server of a topic, as keys of JSON."""
    is_on_ring = cluster.policy.placement == "ring"
    view = View(replace(cluster, policy=Policy(k, k, k)) if is_on_ring else cluster)
    used_count, _, _ = cluster.policy.sizes(len(view.ring))
    explanation, servers = view.explain(topic) if is_on_ring else (None, view.servers(topic))
    rows: list[dict[str, object]] = [
        {"rank": rank, "server": server.name, "host": server.key, "used": rank <= used_count}
        for rank, server in enumerate(servers, 1)
    ]
    for row, at in zip(rows, explanation.hosts if explanation else (), strict=bool(explanation)):
        row |= {"arc": at.arc, "point": f"{at.point:016x}", "distance": f"{at.distance:016x}"}
    return rows


def _cell(key: str, value: object) -> str:
    if key == "used":
        return "yes" if value else "-"
    return f"{int(str(value), 16) / _RING:.7f}" if key == "distance" else escaped(str(value))


def _explained(cluster: Cluster, position: int) -> tuple[str, str, str]:
    """Returns where the topic is, what it has there, and why it is these servers."""
    hosts = len(cluster.hosts)
    total, publish, subscribe = cluster.policy.sizes(hosts)
    used = f"publishers send to {_part(publish, total)}, subscribers lease on {_part(subscribe, total)}"
    if publish == subscribe == total:
        used = "both sides use " + ("the one host there is" if total == 1 else f"all {total} hosts")
    if cluster.policy.placement == "modulo":
        where = f"{position:016x}, modulo {hosts} hosts: number {position % hosts}"
        return where, "the host with that number; host keys are numbered in order, from 0", ""
    if cluster.policy.placement != "ring":
        return "without effect: every topic is on all hosts", used, ""
    place = f"{position / _RING:.7f} of the ring, arc {position >> OFFSET_BITS} of 0 to {ARCS - 1}"
    why = (
        "Each host has one point in each arc, from its key and the cluster's salt. A topic's hosts are those "
    )
    why += "whose points come right before its position; the distance is a share of the ring."
    return f"{position:016x}, {place}", used, why


def _part(count: int, total: int) -> str:
    return f"all {total}" if count == total else f"{count} of {total}, drawn at random"
