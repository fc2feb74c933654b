"""What it costs to verify signed lists. Run `python -m tests.benchmarks.trust`.

Each is set against PyNaCl's own call on as many signatures of as long a text, in turn with it, so that the
ratio means the same on a slow or busy machine.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial, reduce

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair

from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.checkpoint import Checkpoint, cosignatures
from kcast.client.trust.forms.merkle import includes, leaf_hash, node_hash
from kcast.client.trust.forms.note import Note, VerifierKey, verify
from tests.support import trust_vectors

ROUNDS = 15
CALLS = 50
LEVELS = 17
DOCUMENT = documents.parse_text(trust_vectors.DOCUMENT_TEXT)


def us_each(work: Callable[[], object]) -> float:
    """Returns how long one call takes, in microseconds."""
    start = time.perf_counter()
    for _ in range(CALLS):
        work()
    return (time.perf_counter() - start) / CALLS * 1e6


def alone(signatures: int, text: str) -> Callable[[], object]:
    """Returns work that verifies so many signatures by the library's own call, and does nothing else."""
    public, secret = crypto_sign_seed_keypair(bytes(32))
    signed = crypto_sign(text.encode(), secret)

    def work() -> None:
        for _ in range(signatures):
            crypto_sign_open(signed, public)

    return work


def bench(what: str, work: Callable[[], object], signatures: int, text: str) -> None:
    """Prints what a piece of work takes, and how many times its signatures by themselves that is."""
    pairs = [(us_each(work), us_each(alone(signatures, text))) for _ in range(ROUNDS)]
    us = statistics.median(ours for ours, _ in pairs)
    ratio = statistics.median(ours / library for ours, library in pairs)
    print(f"{what:36} {us:7.0f} us, {ratio:.2f} times its {signatures} signatures alone")


def check_list(data: bytes, signers: list[VerifierKey]) -> None:
    """Reads a list's note, and verifies it."""
    assert len(verify(Note.parse(data), signers)) == 3


def check_checkpoint(data: bytes) -> None:
    """Reads a checkpoint, and verifies log and quorum."""
    note = Note.parse(data)
    Checkpoint.parse(note.text)
    assert verify(note, [DOCUMENT.policy.log])
    assert DOCUMENT.policy.is_met(cosignatures(note, DOCUMENT.policy.keys))


def main() -> None:
    """Prints a line for each piece of a check."""
    text = trust_vectors.LIST_TEXT
    signed = text + "\n" + "".join(key.line(text) for key in trust_vectors.SIGNERS)
    bench("list, 3 signatures", partial(check_list, signed.encode(), list(DOCUMENT.signers)), 3, text)
    checkpoint = trust_vectors.CHECKPOINT.encode()
    bench(
        "checkpoint, 7 cosignatures", partial(check_checkpoint, checkpoint), 8, trust_vectors.CHECKPOINT_TEXT
    )
    first = partial(documents.check_first, trust_vectors.DOCUMENT.encode(), DOCUMENT.pin)
    bench("trust document, 3 of 5 owners", first, 3, trust_vectors.DOCUMENT_TEXT)
    path = [bytes([level]) * 32 for level in range(LEVELS)]
    leaf = leaf_hash(b"entry")
    root = reduce(node_hash, path, leaf)  # of a full tree, and its first entry
    inclusion = partial(includes, 0, 2**LEVELS, leaf, path, root)
    assert inclusion()
    us = statistics.median(us_each(inclusion) for _ in range(ROUNDS))
    print(f"{f'inclusion proof, {2**LEVELS:,} entries':36} {us:7.1f} us")


if __name__ == "__main__":
    main()
