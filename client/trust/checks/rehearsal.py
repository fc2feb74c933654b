"""Judges a list before it is logged, as a client would that has the one before. Sans-IO. PROTOCOL §10.7.

A list that is in the log cannot be taken out again. So it is judged first, by the judge that clients have,
with a log that is made up for that: it has this one entry, its key is known to all, and it has no witness.
All checks but those of the log come out as they will for clients.
"""

from dataclasses import replace

from kcast.client.trust.checks.judge import judge
from kcast.client.trust.checks.verdicts import Held, Verdict, answered
from kcast.client.trust.forms import merkle
from kcast.client.trust.forms.checkpoint import Checkpoint, LogProof
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import SigningKey, sign
from kcast.client.trust.forms.paths import LATEST, list_path
from kcast.client.trust.forms.quorum import NONE, Policy
from kcast.client.trust.forms.record import ListRecord

_SEED = bytes(32)


def rehearse(
    document: TrustDocument, held: Held, record: ListRecord, data: bytes, now_unix_s: int
) -> Verdict:
    """Returns the verdict on a list of one who holds the lists in `held`, or none."""
    log = SigningKey.from_seed(document.policy.log.name, _SEED)
    made_up = replace(document, policy=Policy(log.verifier, {}, {}, NONE))
    trust = sign(made_up.text, [log]).data
    leaf = merkle.leaf_hash(record.data)
    checkpoint = sign(Checkpoint(log.verifier.name, 1, leaf).text, [log])
    files = {LATEST: LogProof(record.data, 0, (), checkpoint).data, list_path(record.version): data}
    steps = judge(replace(held, trust=trust, list_trust=trust, checkpoint=None), now_unix_s)
    return answered(steps, lambda path, bytes_max: files.get(path))
