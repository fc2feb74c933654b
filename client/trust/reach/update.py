"""Fetches what is new of a signed list, has it judged, and stores it. PROTOCOL §10.8.

It has the network and the disk; `kcast.client.trust.checks.judge` has the rules. The lock is held to store,
not while anything is fetched: a slow server holds up nobody else. Where another process has stored something
meanwhile, all is judged once more, against that.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from random import Random
from time import monotonic

from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.judge import judge
from kcast.client.trust.checks.verdicts import Accepted, Held, Judge, Refused, Trouble, Verdict, answered
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.reach.sources import Source, SourceError, source_of
from kcast.client.trust.state.places import StateError
from kcast.client.trust.state.store import Busy, Store, Unstored

UPDATE_S = 300.0  # all files of one source must have come by then
TRIES_MAX = 5  # each but the first because another process has stored something newer meanwhile

Judging = Callable[[Held, int], Judge]


@dataclass(frozen=True, slots=True)
class Round:
    """What came of asking several sources, one after the other, until one had a list to accept.

    `accepted` is None where none had. `refused` are verdicts on the others, `unreachable` says of each source
    that could not be asked why.
    """

    accepted: Accepted | None
    refused: tuple[Refused, ...] = ()
    unreachable: tuple[str, ...] = ()


class _Overtaken(Exception):
    """Another process has stored something since the judging began."""


def run(
    store: Store,
    source: Source,
    now_unix_s: int,
    *,
    judging: Judging = judge,
    is_wanted: Callable[[], bool] = lambda: True,
    update_s: float = UPDATE_S,
) -> Verdict:
    """Updates what is held of a name from one source; returns the verdict.

    Where the disk takes nothing, what was accepted is held in memory by the Store, with the warning
    `unstored`. Evidence is stored. Once `is_wanted` says no, or the time is over, nothing more is fetched.
    Raises SourceError, and StateError where the name is not known here, or its folder cannot be used.
    """
    deadline = monotonic() + update_s

    def get(path: str, bytes_max: int) -> bytes | None:
        if not is_wanted():
            raise SourceError(f"{source.name}: nobody waits for it any more")
        if monotonic() >= deadline:
            raise SourceError(f"{source.name}: not all of it came in {update_s:g} s")
        return source.get(path, bytes_max)

    for _ in range(TRIES_MAX):
        try:
            return _run_once(store, judging, now_unix_s, get)
        except _Overtaken:
            pass
    raise Busy(f"{store.folder}: other processes change it all the time")


def _run_once(
    store: Store, judging: Judging, now_unix_s: int, get: Callable[[str, int], bytes | None]
) -> Verdict:
    """Updates what is held, unless that changes meanwhile. Raises _Overtaken then, and as `run` does."""
    held = store.load()
    if held is None:
        raise StateError(f"@{store.name} is not known here: type 'kcast servers trust URL PIN'")
    present = held
    unstored: list[Trouble] = []

    @contextmanager
    def undisturbed() -> Iterator[None]:
        with store.locked():
            if store.load() != present:
                raise _Overtaken
            yield

    def keep_trust(data: bytes) -> None:
        nonlocal present
        with undisturbed():
            _try_to_store(lambda: store.keep_trust(data), unstored)
            present = store.load() or present

    verdict = answered(judging(held, now_unix_s), get, keep_trust)
    match verdict:
        case Accepted(accepted):
            with undisturbed():
                _try_to_store(lambda: store.keep(accepted), unstored)
            return replace(verdict, warnings=(*verdict.warnings, *unstored[-1:]))
        case Refused(evidence=files) if files:
            with store.locked():
                return replace(verdict, kept_in=str(store.evidence(files) or ""))
    return verdict


def _try_to_store(act: Callable[[], None], unstored: list[Trouble]) -> None:
    try:
        act()
    except Unstored as error:
        unstored.append(trouble_of(error))


def trouble_of(error: Unstored) -> Trouble:
    """Returns what to tell of a list that cannot be stored, and what that costs."""
    text = f"it cannot be stored ({error}): after a restart, an older list would not be noticed"
    return Trouble(ListFault.UNSTORED, text)


def places_of(store: Store) -> Sequence[str]:
    """Returns where the list of a name lies, as its trust document says; where that does not say it, the
    place where the list was found first. Raises StateError."""
    held = store.load()
    urls = () if held is None else documents.parse(held.trust)[0].urls
    return urls or ((store.source,) if store.source else ())


def by_hand(document: TrustDocument, source: str = "") -> Trouble | None:
    """Returns what to say of a list whose trust document names no place to fetch it from; `source` is where
    it was found first."""
    if document.urls:
        return None
    else_from = f", or are in {source}, where it was found first" if source else ""
    text = f"its trust document names no place to fetch it from: updates come by hand{else_from}"
    return Trouble(ListFault.BY_HAND, text)


def run_round(
    store: Store,
    now_unix_s: int,
    chance: Random,
    *,
    names: Sequence[str] | None = None,
    judging: Judging = judge,
    is_wanted: Callable[[], bool] = lambda: True,
    round_s: float = inf,
) -> Round:
    """Updates from the sources of these names, by default `places_of` the list, in random order, until one
    has a list to accept.

    Each source has `UPDATE_S`, or where that is less, an equal part of what is left of `round_s`: one that is
    slow does not use up the time of the others. Raises StateError.
    """
    if names is None:
        names = places_of(store)
        if not names:
            return Round(None, unreachable=("nothing says where to fetch it from",))
    refused: list[Refused] = []
    unreachable: list[str] = []
    ends_at = monotonic() + round_s
    for asked, name in enumerate(chance.sample(list(names), len(names))):
        began = monotonic()
        update_s = min(UPDATE_S, max(ends_at - began, 0) / (len(names) - asked))
        try:
            source = source_of(name, deadline=began + update_s)
            verdict = run(store, source, now_unix_s, judging=judging, is_wanted=is_wanted, update_s=update_s)
        except SourceError as error:
            unreachable.append(str(error))
            continue
        if isinstance(verdict, Accepted):
            return Round(verdict, tuple(refused), tuple(unreachable))
        refused.append(verdict)
    return Round(None, tuple(refused), tuple(unreachable))
