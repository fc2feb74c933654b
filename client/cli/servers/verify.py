"""`kcast servers verify`: makes all checks of a list, and prints each."""

from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import click

from kcast.client import cluster as clusters
from kcast.client.cli.common import EXIT_FAILURE, errors_as_lines, fail
from kcast.client.cli.layout import paragraph
from kcast.client.cli.servers.names import complete_names, stored
from kcast.client.cli.text import escaped, tell, to_json

if TYPE_CHECKING:
    from kcast.client.trust.checks.verdicts import Check, Held, Verdict
    from kcast.client.trust.forms.record import ListRecord

_VERB = "servers verify"
_STEP_CHARS = 12


@click.command("verify")
@click.argument("what", metavar="@NAME|URL|FILE", shell_complete=complete_names)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each check, one a line.")
def command(what: str, as_json: bool) -> None:
    """Check a list of servers as clients do, and print each check.

    @NAME is a list that this user trusts: it is fetched anew, and stored if all checks pass. A URL, or the
    path of a folder or of a bundle, is checked by what this user trusts, and nothing is stored. FILE is a
    list as a file; it is compared with what is known of its name here.

    The exit code is 1 if a check fails. With --json the keys are step, ok and text; the last line has the
    verdict: ok, fault and text.

    \b
    Examples:
      kcast servers verify @example.org/lab
      kcast servers verify https://lists.example.org/lab
      kcast servers verify lab.cluster
    """
    with errors_as_lines("servers verify"):
        now = int(time())
        if what.startswith("@"):
            verdict = _of_name(what, now)
        elif "://" not in what and Path(what).is_file() and not _is_bundle(Path(what)):
            verdict = _of_file(Path(what), now)
        else:
            verdict = _of_source(what, now)
        if not _print(verdict, as_json=as_json):
            raise SystemExit(EXIT_FAILURE)


def _print(verdict: "Verdict", *, as_json: bool) -> bool:
    """Prints the checks; returns whether the list may be used."""
    from kcast.client.trust.checks.verdicts import Refused

    refused = verdict if isinstance(verdict, Refused) else None
    for check in verdict.checks:
        if as_json:
            click.echo(to_json({"step": check.step, "ok": check.is_ok, "text": check.text}))
        else:
            _print_check(check)
    if as_json:
        fault, text = (str(refused.fault), refused.text) if refused else (None, None)
        click.echo(to_json({"ok": refused is None, "fault": fault, "text": text}))
    elif refused:
        tell(f"refused: {escaped(refused.text)} ({refused.fault})")
    return refused is None


def _print_check(check: "Check") -> None:
    lines = paragraph(escaped(check.text), check.step.ljust(_STEP_CHARS), 74)
    for line in lines[:-1]:
        tell(line)
    tell(f"{lines[-1]:<75}{'ok' if check.is_ok else 'no'}")


def _of_name(name: str, now: int) -> "Verdict":
    from random import SystemRandom

    from kcast.client.trust.publisher.editing import EditError
    from kcast.client.trust.reach import update

    store, held = stored(name)
    found = update.run_round(store, now, SystemRandom())
    if found.accepted:
        return found.accepted
    if found.refused:
        return found.refused[0]
    kept = "; what is stored here stays in use: 'kcast servers show' prints it" if held.list else ""
    raise EditError(f"{name}: {'; '.join(found.unreachable)}{kept}")


def _of_source(source: str, now: int) -> "Verdict":
    from kcast.client.trust.checks.judge import judge
    from kcast.client.trust.checks.verdicts import Held, answered
    from kcast.client.trust.forms import document as documents
    from kcast.client.trust.forms.note import NoteError
    from kcast.client.trust.publisher.editing import EditError
    from kcast.client.trust.reach.sources import source_of
    from kcast.client.trust.state.store import Store

    place = source_of(source)
    data = place.get("trust/1", documents.DOCUMENT_BYTES_MAX)
    if data is None:
        raise EditError(f"{source}: there is no trust document (trust/1)")
    try:
        document, note = documents.parse(data)
        documents.check_own(data)
    except NoteError as error:
        raise EditError(f"{source}: trust/1: {error}") from None
    held = Store(document.name).load()
    if held is None:
        pin = documents.pin_of(note.text)
        tell(f"{escaped(document.name)} is not known here: all that follows rests on the pin {pin}", err=True)
    return answered(judge(held or Held(data), now), place.get)


def _is_bundle(path: Path) -> bool:
    from kcast.client.trust.forms.bundle import HEADER

    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


# --- A file ------------------------------------------------------------------------------------------------


def _of_file(file: Path, now: int) -> "Verdict":
    """Judges a list as a file: as clients do, but for the log, which is looked at as far as it is here."""
    from kcast.client.cluster import facts_of
    from kcast.client.trust.checks.rehearsal import rehearse
    from kcast.client.trust.checks.verdicts import Held
    from kcast.client.trust.forms import document as documents
    from kcast.client.trust.forms.record import ListRecord
    from kcast.client.trust.publisher.editing import EditError
    from kcast.client.trust.publisher.workplace import Workplace, read_file
    from kcast.client.trust.state.places import is_known
    from kcast.client.trust.state.store import Store

    cluster = clusters.load(file)
    if not cluster.is_signed:
        known = (
            "; a list of this name is trusted here, so no client takes it" if is_known(cluster.name) else ""
        )
        fail(_VERB, f"{file}: it is not signed: nothing in it can be checked{known}")
    facts, data = facts_of(cluster), read_file(file)
    if not cluster.signatures:
        fail(_VERB, f"{file}: nobody has signed it yet: 'kcast servers publish' and 'kcast servers sign' do")
    held = Store(cluster.name).load()
    trusted = [*Workplace(file).trust_documents(), *([held.trust] if held else [])]
    found = [documents.parse(each)[0] for each in trusted]
    document = next(
        (each for each in found if (each.name, each.version) == (cluster.name, facts.trust)), None
    )
    if document is None:
        raise EditError(
            f"{file}: version {facts.trust} of the trust document of {cluster.name} is not at hand: "
            "'kcast servers trust URL PIN' fetches it"
        )
    record = ListRecord.of(cluster.name, facts.version, facts.trust, data)
    verdict = rehearse(document, Held(b""), record, data, now)
    return _with_log(verdict, _logged(file, record, held))


def _logged(file: Path, record: "ListRecord", held: "Held | None") -> "Check":
    """Says whether the list is in the log, by the proofs that are at hand."""
    from kcast.client.trust.checks.verdicts import Check
    from kcast.client.trust.forms.checkpoint import Checkpoint, LogProof
    from kcast.client.trust.forms.paths import list_path, proof_path
    from kcast.client.trust.publisher.workplace import Workplace

    beside = Workplace(file).served_file(proof_path(list_path(record.version)))
    for data in (held.proof if held else None, beside):
        proof = LogProof.parse(data) if data else None
        if proof is not None and proof.extra == record.data:
            checkpoint = Checkpoint.parse(proof.checkpoint.text)
            if proof.shows(record.data, checkpoint):
                return Check(
                    "log", f"entry {proof.index} of {checkpoint.origin}, as it was at size {checkpoint.size}"
                )
    return Check("log", "no proof is at hand that it is in the public log", is_ok=False)


def _with_log(verdict: "Verdict", logged: "Check") -> "Verdict":
    """Returns the verdict with what is known of the log in place of the log that was made up."""
    from dataclasses import replace

    from kcast.client.trust.checks.faults import ListFault
    from kcast.client.trust.checks.verdicts import Accepted, Refused

    checks = (
        logged,
        *(each for each in verdict.checks if each.step not in ("trust", "checkpoint", "history", "list")),
    )
    if isinstance(verdict, Accepted) and not logged.is_ok:
        return Refused(ListFault.UNLOGGED, logged.text, checks=checks)
    return replace(verdict, checks=checks)
