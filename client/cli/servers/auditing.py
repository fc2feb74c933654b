"""`kcast servers log --audit`: looks through a whole log."""

from kcast.client.cli.common import count_of, fail, say
from kcast.client.cli.text import escaped, paragraph, tell, to_json
from kcast.client.trust.checks.verdicts import Held
from kcast.client.trust.forms.checkpoint import Checkpoint
from kcast.client.trust.forms.document import parse, pin_of
from kcast.client.trust.reach.sources import Source

_VERB = "servers log"


def tell_audit(source: Source, held: Held | None, *, as_json: bool) -> None:
    """Prints each finding, one a line, and on standard error what was looked at.

    `held` is what this user has stored of the list. The program ends with 1 where something was found. Raises
    KcastError.
    """
    from kcast.client.trust.publisher.audit import audit

    pins, checkpoint = {}, None
    if held is not None:
        document, note = parse(held.trust)
        pins, checkpoint = {document.version: pin_of(note.text)}, held.checkpoint
    found = audit(source, pins, checkpoint)
    log: Checkpoint = found.checkpoint
    for finding in found.findings:
        if as_json:
            tell(to_json({"where": finding.where, "text": finding.text}))
        else:
            for line in paragraph(escaped(finding.text), escaped(f"{finding.where}: ")):
                tell(line)
    looked_at = (
        f"{log.origin} has {log.size} entries; looked at {count_of(found.lists, 'list')} and "
        f"{count_of(found.documents, 'trust document')}"
    )
    if found.findings:
        fail(_VERB, f"{looked_at}: {count_of(len(found.findings), 'finding')}")
    known = "" if pins else f"; its first trust document has the pin {found.pin}"
    say(_VERB, f"{looked_at}: all follow from the entries{known}")
