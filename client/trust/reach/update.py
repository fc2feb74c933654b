"""Fetches what is new of a signed list, has it judged, and stores it. PROTOCOL §10.8.

It has the network, the disk and the lock; `kcast.client.trust.checks.judge` has the rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import monotonic

from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.judge import judge
from kcast.client.trust.checks.verdicts import Accepted, Held, Judge, Refused, Trouble, Verdict, answered
from kcast.client.trust.forms import document as documents
from kcast.client.trust.reach.sources import BundleSource, Source, SourceError, source_of
from kcast.client.trust.state.places import StateError
from kcast.client.trust.state.store import Store, Unstored

HANDED_ON_BYTES_MAX = 16 * 1024 * 1024
UPDATE_S = 300.0  # all files of an update must have come by then; meanwhile other processes wait

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
    bundle: bytes | None = None  # of the log as it was accepted, to hand on, if the source has one


def run(
    store: Store,
    source: Source,
    now_unix_s: int,
    *,
    judging: Judging = judge,
    is_wanted: Callable[[], bool] = lambda: True,
    update_s: float = UPDATE_S,
) -> Verdict:
    """Updates what is held of a name from one source, under the lock; returns the verdict.

    Where the disk takes nothing, what was accepted is held in memory by the Store, with the warning
    `unstored`. Evidence is stored. Once `is_wanted` says no, or the time is over, nothing more is fetched.
    Raises SourceError, and StateError where the name is not known here, or its folder cannot be used.
    """
    deadline = monotonic() + update_s
    with store.locked():
        held = store.load()
        if held is None:
            raise StateError(f"@{store.name} is not known here: type 'kcast servers trust URL PIN'")
        unstored: list[Trouble] = []

        def get(path: str, bytes_max: int) -> bytes | None:
            if not is_wanted():
                raise SourceError(f"{source.name}: nobody waits for it any more")
            if monotonic() >= deadline:
                raise SourceError(f"{source.name}: not all of it came in {update_s:g} s")
            return source.get(path, bytes_max)

        def keep_trust(data: bytes) -> None:
            _try_to_store(lambda: store.keep_trust(data), unstored)

        verdict = answered(judging(held, now_unix_s), get, keep_trust)
        match verdict:
            case Accepted(held):
                _try_to_store(lambda: store.keep(held), unstored)
                return replace(verdict, warnings=(*verdict.warnings, *unstored[-1:]))
            case Refused(evidence=files) if files:
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


def run_round(
    store: Store,
    now_unix_s: int,
    chance: Random,
    *,
    names: Sequence[str] | None = None,
    judging: Judging = judge,
    is_wanted: Callable[[], bool] = lambda: True,
    update_s: float = UPDATE_S,
) -> Round:
    """Updates from the sources of these names, by default `places_of` the list, in random order, until one
    has a list to accept. Raises StateError."""
    if names is None:
        names = places_of(store)
        if not names:
            return Round(None, unreachable=("nothing says where to fetch it from",))
    refused: list[Refused] = []
    unreachable: list[str] = []
    for name in chance.sample(list(names), len(names)):
        try:
            source = source_of(name)
            verdict = run(store, source, now_unix_s, judging=judging, is_wanted=is_wanted, update_s=update_s)
        except SourceError as error:
            unreachable.append(str(error))
            continue
        if isinstance(verdict, Accepted):
            return Round(verdict, tuple(refused), tuple(unreachable), _bundle_of(name))
        refused.append(verdict)
    return Round(None, tuple(refused), tuple(unreachable))


def run_on_bundle(
    store: Store, bundle: bytes, now_unix_s: int, *, is_wanted: Callable[[], bool] = lambda: True
) -> Round:
    """Updates from a bundle that others have sent. Raises StateError."""
    try:
        verdict = run(store, BundleSource(bundle, "other clients"), now_unix_s, is_wanted=is_wanted)
    except SourceError as error:
        return Round(None, unreachable=(str(error),))
    if isinstance(verdict, Accepted):
        return Round(verdict, bundle=bundle)
    return Round(None, (verdict,))


def _bundle_of(name: str) -> bytes | None:
    try:
        data = source_of(name).get("bundle", HANDED_ON_BYTES_MAX)
    except SourceError:
        return None
    return None if data is None or len(data) > HANDED_ON_BYTES_MAX else data
