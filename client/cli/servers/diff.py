"""`kcast servers diff`: what tells two lists apart, and whether clients with either still meet."""

from pathlib import Path
from time import time

import click

from kcast.client import cluster as clusters
from kcast.client.cli.common import errors_as_lines, escaped, to_json
from kcast.client.cli.servers.show import time_text
from kcast.client.cluster import Cluster


@click.command("diff")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(old: Path, new: Path | None, as_json: bool) -> None:
    """Compare two lists of servers, and say whether clients always meet while some have the one and some the
    other.

    With one FILE, a work file, it is compared with the list that is published of it.

    With --json the keys are added, removed, changed (hosts, by their keys on the ring; the last have other
    servers), keep (the least number of its servers that each topic keeps), of, moved_percent (the share of
    topics that have another server), always_meet, new_placement (whether all topics are placed anew), and
    anew_at (unix seconds, from which a salt that only the second list has places all topics anew; or null).

    \b
    Examples:
      kcast servers diff lab.cluster
      kcast servers diff lab.log/list/41 lab.log/list/42
    """
    with errors_as_lines("servers diff"):
        before, after, names = _two_lists(old, new)
        from kcast.client.trust.checks.meeting import hosts_changed, sample, sentence

        now = time()
        difference, found = hosts_changed(before, after, now), sample(before, after, now)
        if as_json:
            fields: dict[str, object] = {
                "added": difference.added,
                "removed": difference.removed,
                "changed": difference.changed,
                "keep": difference.kept,
                "of": difference.kept_of,
                "moved_percent": found.moved_percent,
                "always_meet": difference.always_meet,
                "new_placement": difference.is_new_placement,
                "anew_at": difference.anew_at_unix_s,
            }
            click.echo(to_json(fields))
            return
        for sign, hosts in (("+", difference.added), ("-", difference.removed), ("~", difference.changed)):
            for host in hosts:
                click.echo(f"{sign} {escaped(host)}")
        click.echo(sentence(difference, found, names))
        if difference.anew_at_unix_s is not None:
            click.echo(
                f"from {time_text(difference.anew_at_unix_s)} on, a new salt places all topics anew: clients "
                "without it may then\nmiss those that have it"
            )


def _two_lists(old: Path, new: Path | None) -> tuple[Cluster, Cluster, str]:
    """Returns both lists, and how they are called together."""
    if new is None:
        from kcast.client.trust.publisher.editing import EditError
        from kcast.client.trust.publisher.workplace import Workplace

        published = Workplace(old).published()
        if published is None:
            raise EditError(f"{old}: nothing is published of it yet: give two lists")
        before = clusters.parse(published.data.decode(), f"version {published.record.version}")
        return before, clusters.load(old), f"version {published.record.version} and {escaped(str(old))}"
    before, after = clusters.load(old), clusters.load(new)
    if before.signed and after.signed and before.name == after.name:
        return before, after, f"versions {before.signed.version} and {after.signed.version}"
    return before, after, f"{escaped(str(old))} and {escaped(str(new))}"
