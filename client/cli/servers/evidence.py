"""`kcast servers evidence`: what lies on this machine that shows that a log has lied."""

from pathlib import Path
from time import localtime, strftime

import click

from kcast.client.cli.common import errors_as_lines, say
from kcast.client.cli.servers.names import name_argument, stored
from kcast.client.cli.text import escaped, tell, to_json
from kcast.client.trust.forms.checkpoint import Checkpoint
from kcast.client.trust.forms.note import NoteError


@click.command("evidence")
@name_argument
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each, one a line.")
def command(name: str, as_json: bool) -> None:
    """List the evidence against a list's log, and say what it proves.

    A log that shows different people different histories signs two checkpoints that do not fit together.
    Where this machine has met both, they lie here, for you to show to others; kcast never deletes them.

    With --json the keys are folder, files (a list), at (when it was found) and proves.

    \b
    Example:
      kcast servers evidence @example.org/lab
    """
    with errors_as_lines("servers evidence"):
        store, _ = stored(name)
        folders = sorted(store.folder.glob("evidence/*/"), key=lambda each: each.stat().st_mtime)
        for folder in folders:
            files = sorted(path.name for path in folder.iterdir())
            at = strftime("%Y-%m-%d %H:%M", localtime(folder.stat().st_mtime))
            proves = _proves(folder)
            if as_json:
                tell(to_json({"folder": str(folder), "files": files, "at": at, "proves": proves}))
            else:
                tell(f"{at}  {escaped(str(folder))}: {escaped(', '.join(files))}")
                tell(f"{'':18}{escaped(proves)}")
        if not folders and not as_json:
            say("servers evidence", f"{name}: there is none")


def _proves(folder: Path) -> str:
    """Says what two checkpoints prove: the log's key has signed both."""
    seen = []
    for path in sorted(folder.iterdir()):
        try:
            seen.append(Checkpoint.read(path.read_bytes()))
        except NoteError:
            continue
    if len(seen) < 2:
        return "no two checkpoints lie here: the files speak for themselves"
    first, second = sorted(seen, key=lambda each: each.size)[:2]
    if first.size == second.size and first.root != second.root:
        return f"{first.origin} has signed two different logs of size {first.size}"
    return (
        f"{first.origin} has signed a log of size {second.size} that does not extend its log of size "
        f"{first.size}"
    )
