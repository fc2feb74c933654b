"""`kcast servers log`: the history of a list, as its public log has it."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import time

import click

from kcast.client.cli.common import errors_as_lines, say, value_option
from kcast.client.cli.servers.auditing import tell_audit
from kcast.client.cli.servers.names import complete_names, stored
from kcast.client.cli.servers.show import time_text
from kcast.client.cli.text import escaped, table, tell, to_json
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import Cluster
from kcast.client.trust.checks.asking import Asking, Fault
from kcast.client.trust.checks.judge import shown_tree
from kcast.client.trust.checks.log_checks import last_entries
from kcast.client.trust.checks.verdicts import Held, answered
from kcast.client.trust.forms import tiles
from kcast.client.trust.forms.checkpoint import Checkpoint
from kcast.client.trust.forms.note import NoteError
from kcast.client.trust.forms.paths import CHECKPOINT, PROOF_BYTES_MAX, list_path
from kcast.client.trust.forms.record import ListRecord, TrustRecord, is_file_of, read_record
from kcast.client.trust.publisher.editing import EditError
from kcast.client.trust.publisher.workplace import Workplace
from kcast.client.trust.reach.sources import FolderSource, Source, source_of
from kcast.client.trust.reach.update import places_of
from kcast.client.trust.state.store import Store

_LAST = 20
_VERB = "servers log"


@click.command("log")
@click.argument("what", metavar="@NAME|URL|FILE", shell_complete=complete_names)
@value_option("--last", click.IntRange(1), "Show the last N entries.", _LAST, "N")
@click.option(
    "--audit",
    "is_audit",
    is_flag=True,
    help="Build the log's tree anew from all entries, hold every file to it, and print what is wrong.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each, one a line.")
def command(what: str, last: int, is_audit: bool, as_json: bool) -> None:
    """Print what the public log of a list has: every version that was ever published.

    Whoever reads it sees whom the list has taken in, and can ask why. @NAME is a list that this user trusts:
    its log must be signed and cosigned as that says, and extend what it has shown before, and have each entry
    that is printed. URL is where a list lies, FILE the work file of one's own; of these nothing is checked.

    With --json the keys are index, kind (list or trust), version, bytes, sha256, and for lists, where they
    can be had, hosts, added, removed (numbers), and valid_after (unix seconds).

    With --audit each line is a finding: where, and what; with --json the keys are where and text. The exit
    code is 1 if there is any. For @NAME the log is also held to what this user has stored.

    \b
    Examples:
      kcast servers log @example.org/lab
      kcast servers log https://lists.example.org/lab --audit
      kcast servers log lab.cluster --last 100
    """
    with errors_as_lines(_VERB):
        source, known = _source(what)
        if is_audit:
            tell_audit(source, known[1] if known else None, as_json=as_json)
            return
        checkpoint, records = _checked_entries(source, *known, last) if known else _entries(source, last)
        rows = list(_rows(source, records))
        if as_json:
            for row in rows:
                tell(to_json(row))
        else:
            heads = ("entry", "what", "hosts", "added", "removed", "holds from", "sha256")
            for line in table(heads, map(_cells, rows), left=2):
                tell(line)
        if not known:
            unchecked = "nothing of it was checked: give @NAME of a list that you trust, or --audit"
            say(
                _VERB,
                f"{checkpoint.origin} has {checkpoint.size} entries; shown: {len(records)}; {unchecked}",
            )
        elif not as_json:
            say(
                _VERB, f"{checkpoint.origin} has {checkpoint.size} entries; shown and checked: {len(records)}"
            )


def _source(what: str) -> tuple[Source, tuple[Store, Held] | None]:
    """Returns where to read, and for a name what this user has stored of it. Raises KcastError."""
    if what.startswith("@"):
        store, held = stored(what)
        places = places_of(store)
        if not places:
            raise EditError(f"{what}: nothing says where its log lies: give a URL or a folder")
        return source_of(places[0]), (store, held)
    place = Workplace(Path(what))
    if "://" not in what and Path(what).is_file() and place.served.is_dir():
        return FolderSource(place.served), None
    return source_of(what), None


def _checked_entries(
    source: Source, store: Store, held: Held, last: int
) -> tuple[Checkpoint, list[tuple[int, ListRecord | TrustRecord]]]:
    """Returns the checkpoint of a log, and its last entries with their indices, by what is held of it.

    Evidence of a fork is stored. Raises EditError where something does not follow from what is held.
    """

    def read() -> Asking[tuple[Checkpoint, list[tuple[int, bytes]]]]:
        tree = yield from shown_tree(held, int(time()))
        return tree.checkpoint, (yield from last_entries(last, tree))

    try:
        checkpoint, entries = answered(read(), cache(source.get))  # the proofs of all have tiles in common
        return checkpoint, [(index, read_record(entry)) for index, entry in entries]
    except Fault as fault:
        folder = None
        if fault.evidence:
            with store.locked():
                folder = store.evidence(fault.evidence)
        kept = f"; what it has signed is kept in {folder}" if folder else ""
        raise EditError(f"{source.name}: {fault.text} ({fault.fault}){kept}") from None
    except NoteError as error:
        raise EditError(f"{source.name}: {error}") from None


def _entries(source: Source, last: int) -> tuple[Checkpoint, list[tuple[int, ListRecord | TrustRecord]]]:
    """Returns the same of a log of which nothing is held, and checks nothing. Raises EditError."""
    data = source.get(CHECKPOINT, PROOF_BYTES_MAX)
    if data is None:
        raise EditError(
            f"{source.name}: there is no log (checkpoint): give a URL or a folder; no bundle has it"
        )
    try:
        checkpoint = Checkpoint.read(data)
        first = max(0, checkpoint.size - last)
        entries = tiles.answered(tiles.entries(first, checkpoint.size), source.get)
        return checkpoint, list(enumerate(map(read_record, entries), first))
    except NoteError as error:
        raise EditError(f"{source.name}: {error}") from None


def _rows(source: Source, records: list[tuple[int, ListRecord | TrustRecord]]) -> Iterator[dict[str, object]]:
    former: frozenset[str] | None = None
    for index, record in records:
        row: dict[str, object] = {
            "index": index,
            "kind": "list" if isinstance(record, ListRecord) else "trust",
            "version": record.version,
            "bytes": record.size_bytes,
            "sha256": record.sha256,
        }
        if isinstance(record, ListRecord):
            cluster = _list(source, record)
            hosts = cluster.hosts if cluster else None
            added = removed = None
            if hosts is not None and former is not None:
                added, removed = len(hosts - former), len(former - hosts)
            row |= {
                "hosts": None if hosts is None else len(hosts),
                "added": added,
                "removed": removed,
                "valid_after": cluster.signed.valid_after_s if cluster and cluster.signed else None,
            }
            former = hosts
        yield row


def _list(source: Source, record: ListRecord | TrustRecord) -> Cluster | None:
    """Returns the list of a record; None where it cannot be had, or is another one."""
    path = list_path(record.version)
    data = source.get(path, min(record.size_bytes, clusters.FILE_BYTES_MAX))
    if data is None or not is_file_of(record, data):
        return None
    try:
        return clusters.parse(clusters.decode(data, path), path)
    except clusters.ClusterError:  # whoever has the keys can log anything, and is to be seen all the same
        return None


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    holds = row.get("valid_after")
    counts = ("" if row.get(name) is None else str(row[name]) for name in ("hosts", "added", "removed"))
    return (
        str(row["index"]),
        f"{row['kind']} {row['version']}",
        *counts,
        time_text(int(str(holds))) if holds is not None else "",
        escaped(str(row["sha256"])[:16]),
    )
