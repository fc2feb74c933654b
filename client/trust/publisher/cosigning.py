"""Asks witnesses to cosign a checkpoint, all at once. PROTOCOL §10.6, C2SP tlog-witness.

Nothing that a witness answers is believed but a cosignature that verifies. One that is down, slow or wrong
costs no more than its own cosignature.
"""

import queue
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Thread
from time import monotonic

from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, cosignatures, read_size
from kcast.client.trust.forms.note import Note, NoteError, Signature, VerifierKey
from kcast.client.trust.reach import web
from kcast.client.trust.witness.witnessing import SIZE_TYPE, Status

DEADLINE_S = 20.0
_ANSWER_BYTES_MAX = 16_384
_LINES_MAX = 16

PathBetween = Callable[[int, int], Iterable[bytes]]
"""Returns the consistency proof from an old size to a new one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What one witness has answered: its cosignatures, or why there is none; and the size of the tree that it
    now holds, where it said so."""

    cosignatures: tuple[Signature, ...] = ()
    why_not: str = ""
    held_size: int | None = None


def collect(
    checkpoint: Note,
    witnesses: Mapping[VerifierKey, str],
    path_between: PathBetween,
    *,
    old_sizes: Mapping[VerifierKey, int] = {},
    deadline_s: float = DEADLINE_S,
) -> dict[VerifierKey, Asked]:
    """Asks each witness, a key with the URL before `/add-checkpoint`; returns what each has answered.

    `checkpoint` is signed by its log. `old_sizes` are the sizes that witnesses held when they were last
    asked: where one is wrong or missing, that costs one more question. Those that have not answered after
    `deadline_s` are given up. `path_between` is called by one thread at a time, the caller's.
    """
    new = Checkpoint.parse(checkpoint.text)
    deadline = monotonic() + deadline_s
    answers: queue.SimpleQueue[tuple[VerifierKey, Asked | int]] = queue.SimpleQueue()
    waiting = dict.fromkeys(witnesses, 2)  # questions left
    found: dict[VerifierKey, Asked] = {}

    def ask(witness: VerifierKey, old_size: int) -> None:
        waiting[witness] -= 1
        path = tuple(path_between(old_size, new.size)) if 0 < old_size < new.size else ()
        body = AddCheckpoint(old_size, path, checkpoint).data

        def act() -> None:
            try:
                answers.put((witness, _answer_of(witness, witnesses[witness], body, deadline, checkpoint)))
            except (web.WebError, NoteError) as error:
                answers.put((witness, Asked(why_not=str(error))))

        Thread(target=act, name="cosigning", daemon=True).start()

    for witness in witnesses:
        ask(witness, min(old_sizes.get(witness, 0), new.size))
    while len(found) < len(witnesses):
        try:
            witness, answer = answers.get(timeout=max(deadline - monotonic(), 0))
        except queue.Empty:
            break
        if isinstance(answer, Asked):
            found[witness] = answer
        elif answer > new.size:
            why = f"it has cosigned {answer} entries already, and the checkpoint has {new.size}"
            found[witness] = Asked(why_not=why, held_size=answer)
        elif waiting[witness]:
            ask(witness, answer)
        else:
            found[witness] = Asked(why_not=f"it now says that it holds {answer} entries", held_size=answer)
    late = Asked(why_not=f"no answer in {deadline_s:g} s")
    return {witness: found.get(witness, late) for witness in witnesses}


def _answer_of(witness: VerifierKey, url: str, body: bytes, deadline: float, checkpoint: Note) -> Asked | int:
    """Returns its cosignatures, or the size that it holds where that is not the one in `body`.

    Raises WebError, where it gives none, and NoteError.
    """
    if not url:
        raise web.WebError("the trust document has no URL for it")
    where = f"{url.rstrip('/')}/add-checkpoint"
    answer = web.ask(
        where, _ANSWER_BYTES_MAX, deadline=deadline, silence_s=max(deadline - monotonic(), 0.001), body=body
    )
    if answer.status == Status.OTHER_SIZE and answer.headers.get_content_type() == SIZE_TYPE:
        return read_size(answer.data.decode("ascii", "replace").removesuffix("\n"))
    if not answer.is_success:
        said = web.short(answer.data.decode(errors="replace")) or answer.reason
        raise web.WebError(f"{where}: HTTP {answer.status}: {said}")
    lines = answer.data.decode(errors="replace").removesuffix("\n").split("\n", _LINES_MAX)[:_LINES_MAX]
    given = tuple(each for each in map(Signature.parse, lines) if each.is_of(witness))
    if not cosignatures(Note(checkpoint.text, given), [witness]):
        raise web.WebError(f"{where}: it gave no cosignature of {witness.name}")
    return Asked(given, held_size=Checkpoint.parse(checkpoint.text).size)
