"""`kcast servers diff`: what tells two lists apart, and whether clients with either still meet."""

from pathlib import Path

import click

from kcast.client.cli.common import errors_as_lines
from kcast.client.cli.servers.names import complete_names
from kcast.client.cli.servers.show import read_list
from kcast.client.cli.text import escaped, tell, to_json
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import Cluster
from kcast.client.trust.checks.meeting import hosts_changed
from kcast.client.trust.publisher.editing import EditError
from kcast.client.trust.publisher.workplace import Workplace


@click.command("diff")
@click.argument("old", shell_complete=complete_names)
@click.argument("new", required=False, shell_complete=complete_names)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(old: str, new: str | None, as_json: bool) -> None:
    """Compare two lists of servers, and say whether clients always meet while some have the one and some the
    other.

    OLD and NEW are files, or @NAME for the newest list that is stored here. One work file alone is compared
    with the list that is published of it.

    With --json the keys are added, removed, changed (hosts, by their keys on the ring; the last have other
    servers), keep (the least number of its servers that each topic keeps), of, always_meet, and new_placement
    (whether all topics are placed anew).

    \b
    Examples:
      kcast servers diff lab.cluster
      kcast servers diff @example.org/lab lab.cluster
      kcast servers diff lab.log/list/41 lab.log/list/42
    """
    with errors_as_lines("servers diff"):
        before, after, names = _two_lists(old, new)
        difference = hosts_changed(before, after)
        if as_json:
            fields: dict[str, object] = {
                "added": difference.added,
                "removed": difference.removed,
                "changed": difference.changed,
                "keep": difference.kept,
                "of": difference.kept_of,
                "always_meet": difference.always_meet,
                "new_placement": difference.is_new_placement,
            }
            tell(to_json(fields))
            return
        for sign, hosts in (("+", difference.added), ("-", difference.removed), ("~", difference.changed)):
            for host in hosts:
                tell(f"{sign} {escaped(host)}")
        meet = "always meet" if difference.is_none or difference.always_meet else "do not always meet"
        tell(f"{difference.kept_text}: {names} {meet}")


def _two_lists(old: str, new: str | None) -> tuple[Cluster, Cluster, str]:
    """Returns both lists, and how they are called together."""
    if new is None:
        after, published = read_list(old), None
        if not old.startswith("@"):
            published = Workplace(Path(old)).published()
        if published is None:
            such_as = f", such as @{after.name} and {old}" if after.name and not old.startswith("@") else ""
            raise EditError(f"{old}: no published list is beside it: give two lists{such_as}")
        before = clusters.parse(published.data.decode(), f"version {published.record.version}")
        return before, after, f"version {published.record.version} and {escaped(old)}"
    before, after = read_list(old), read_list(new)
    if before.signed and after.signed and before.name == after.name:
        return before, after, f"versions {before.signed.version} and {after.signed.version}"
    return before, after, f"{escaped(old)} and {escaped(new)}"
