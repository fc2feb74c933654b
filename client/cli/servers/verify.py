"""`kcast servers verify`: makes all checks of a list, and prints each."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from time import time

import click

from kcast.client.cli.common import EXIT_FAILURE, errors_as_lines, fail, say
from kcast.client.cli.servers.names import complete_names, stored
from kcast.client.cli.text import escaped, paragraph, tell, to_json
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import ListFacts, facts_of
from kcast.client.trust.checks.asking import Fault
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.judge import judge
from kcast.client.trust.checks.list_checks import Clock
from kcast.client.trust.checks.log_checks import proven_unix_s, read_tree
from kcast.client.trust.checks.rehearsal import rehearse
from kcast.client.trust.checks.verdicts import Accepted, Check, Held, Refused, Verdict, answered
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.bundle import HEADER
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import NoteError
from kcast.client.trust.forms.paths import list_path, proof_path
from kcast.client.trust.forms.record import ListRecord
from kcast.client.trust.publisher.editing import EditError
from kcast.client.trust.publisher.workplace import Workplace, read_file
from kcast.client.trust.reach import update
from kcast.client.trust.reach.sources import source_of
from kcast.client.trust.reach.update import by_hand
from kcast.client.trust.state.places import is_known
from kcast.client.trust.state.standing import standing_of
from kcast.client.trust.state.store import Store

_VERB = "servers verify"
_STEP_CHARS = 12
_MARKS = {True: "ok", False: "no", None: "-"}


@click.command("verify")
@click.argument("what", metavar="@NAME|URL|FILE", shell_complete=complete_names)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each check, one a line.")
def command(what: str, as_json: bool) -> None:
    """Check a list of servers as clients do, and print each check.

    @NAME is a list that this user trusts: it is fetched anew, and stored if all checks pass. A URL, or the
    path of a folder or of a bundle, is checked by what this user trusts, and nothing is stored. FILE is a
    list as a file; it is checked in the same way, with the proof of the log that is stored or beside it.

    Where the name is not known here, the trust document that lies there is believed, and its pin is said.

    'no' is a check that fails, '-' one for which there was nothing to compare with. The exit code is 1 if the
    list is refused. With --json the keys are step, ok (null for '-') and text; the last line has the verdict:
    ok, fault and text.

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


def _print(verdict: Verdict, *, as_json: bool) -> bool:
    """Prints the checks; returns whether the list may be used."""
    refused = verdict if isinstance(verdict, Refused) else None
    for check in verdict.checks:
        if as_json:
            tell(to_json({"step": check.step, "ok": check.is_ok, "text": check.text}))
        else:
            _print_check(check)
    if as_json:
        fault, text = (str(refused.fault), refused.text) if refused else (None, None)
        tell(to_json({"ok": refused is None, "fault": fault, "text": text}))
    elif refused:
        tell(f"refused: {escaped(refused.text)} ({refused.fault})")
    return refused is None


def _print_check(check: Check) -> None:
    lines = paragraph(escaped(check.text), check.step.ljust(_STEP_CHARS), 74)
    for line in lines[:-1]:
        tell(line)
    tell(f"{lines[-1]:<75}{_MARKS[check.is_ok]}")


def _of_name(name: str, now: int) -> Verdict:
    store, held = stored(name)
    found = update.run_round(store, now, SystemRandom())
    _tell_others(store, now, found.accepted)
    if found.accepted:
        return found.accepted
    if found.refused:
        return found.refused[0]
    kept = "; what is stored here stays in use: 'kcast servers show' prints it" if held.list else ""
    raise EditError(f"{name}: {'; '.join(found.unreachable)}{kept}")


def _tell_others(store: Store, now: int, accepted: Accepted | None) -> None:
    """Says what no check has said: that what is stored shows the clock to be slow, and how updates come."""
    held = store.load()
    if held is None or held.list is None:
        return
    standing = standing_of(held)
    is_told = any(check.step == "clock" for check in (accepted.checks if accepted else ()))
    for trouble in (
        None if is_told else standing.clock(now).trouble,
        by_hand(standing.document, store.source),
    ):
        if trouble is not None:
            say(_VERB, f"{trouble.text} ({trouble.fault})")


def _of_source(source: str, now: int) -> Verdict:
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
        _tell_pin(document.name, documents.pin_of(note.text))
    return answered(judge(held or Held(data), now), place.get)


def _tell_pin(name: str, pin: str) -> None:
    tell(f"{escaped(name)} is not known here: all that follows rests on the pin {pin}", err=True)


def _is_bundle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


# --- A file ------------------------------------------------------------------------------------------------


def _of_file(file: Path, now: int) -> Verdict:
    """Judges a list as a file: as clients do, but for the log, which is looked at as far as it is here."""
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
    document = _document(file, cluster.name, facts, held, Workplace(file).trust_documents())
    record = ListRecord.of(cluster.name, facts.version, facts.trust, data)
    logged, proven_s = _logged(file, record, held, document)
    seen = standing_of(held).clock(now) if held and held.list else Clock(now)
    clock = replace(seen, proven_unix_s=max(seen.proven_unix_s, proven_s))
    verdict = rehearse(document, Held(b""), record, data, clock.at_least_unix_s)
    told = (Check("clock", clock.trouble.text, is_ok=False),) if clock.trouble else ()
    return _with_log(replace(verdict, checks=(*told, *verdict.checks)), logged)


def _document(
    file: Path, name: str, facts: ListFacts, held: Held | None, beside: Sequence[bytes]
) -> TrustDocument:
    """Returns the trust document to judge a list by: the one that this user trusts, or one that follows it
    where the list names a later one. What lies beside the list came with it, so none of it counts but what
    the owners of the one before have signed; without any trust, it begins with the first, whose pin is said.

    Raises EditError.
    """
    missing = (
        f"{file}: version {facts.trust} of the trust document of {name} is not at hand: "
        "'kcast servers trust URL PIN' fetches it"
    )
    if held is None and not beside:
        raise EditError(missing)
    # An older one than this user's is of no use: clients go by the newest that they have. Nor could it be
    # believed, since whoever makes one names whom he likes beside the owners of the next.
    first = beside[0] if held is None else held.trust
    try:
        document = documents.check_own(first)
        for data in beside[document.version :]:
            if document.version >= facts.trust:
                break
            document = documents.check_next(document, data)
    except NoteError as error:
        raise EditError(f"{file}: a trust document beside it cannot be used: {error}") from None
    if document.name != name or document.version < facts.trust:
        raise EditError(missing)
    if held is None:
        _tell_pin(name, documents.pin_of(documents.parse(first)[1].text))
    return document


def _logged(file: Path, record: ListRecord, held: Held | None, document: TrustDocument) -> tuple[Check, int]:
    """Says whether the list is in the log, by the proofs that are at hand, if log and witnesses have signed
    them: those of the trust document by which the list is judged, or of those that this user has stored.
    And which time is over by that."""
    stored_documents = (held.trust, held.list_trust) if held else ()
    trusted = [document, *(documents.parse(each)[0] for each in dict.fromkeys(stored_documents) if each)]
    path = proof_path(list_path(record.version))
    beside = Workplace(file).served_file(path)
    why = ""
    for data in filter(None, (held.proof if held else None, beside)):
        for each in trusted:
            try:
                tree = read_tree(data, each, path)
            except Fault as fault:
                why = f": {fault.text}" if data is beside else why
                continue
            proof, checkpoint = tree.proof, tree.checkpoint
            if proof.extra == record.data and proof.shows(record.data, checkpoint):
                text = f"entry {proof.index} of {checkpoint.origin}, as it was at size {checkpoint.size}"
                return Check("log", text), proven_unix_s(tree.note, each)
    return Check("log", f"no proof is at hand that it is in the public log{why}", is_ok=False), 0


def _with_log(verdict: Verdict, logged: Check) -> Verdict:
    """Returns the verdict with what is known of the log in place of the log that was made up."""
    checks = (
        logged,
        *(each for each in verdict.checks if each.step not in ("trust", "checkpoint", "history", "list")),
    )
    if isinstance(verdict, Accepted) and not logged.is_ok:
        return Refused(ListFault.UNLOGGED, logged.text, checks=checks)
    return replace(verdict, checks=checks)
