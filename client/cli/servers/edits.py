"""What `add` and `remove` share: a work file is read, changed and written as the next version."""

from collections.abc import Callable
from pathlib import Path

import click

from kcast.client.cli.text import escaped, tell
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import Cluster, facts_of
from kcast.client.trust.forms.note import Note
from kcast.client.trust.publisher.editing import next_draft
from kcast.client.trust.publisher.signing import refuse_edit
from kcast.client.trust.publisher.workplace import Workplace, read_note, write_note

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


def edit(file: Path, change: Callable[[Cluster], Cluster], what: str) -> None:
    """Changes a work file, and says what is to be done next. Raises KcastError."""
    note = read_note(file)
    before = clusters.parse(note.text, str(file))
    refuse_edit(note, Workplace(file).published_text(facts_of(before).version), str(file))
    after = next_draft(change(before), is_signed=bool(note.signatures))
    write_note(file, Note(clusters.format_cluster(after)))
    assert after.signed is not None
    tell(
        f"{escaped(str(file))}: {what}: version {after.signed.version}, which 'kcast servers publish "
        f"{escaped(str(file))}' publishes"
    )
