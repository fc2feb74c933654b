"""Opens the list of a name for use: from the state on disk, or at first contact from elsewhere. PROTOCOL §10.8.

With a sound state no network is needed. Where only a trust document is here, dropped by an administrator, the
list is fetched, from the bundle beside it or from the places that it names, and that is waited for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom

from kcast.client.cluster import Cluster, ClusterError
from kcast.client.trust import document as documents
from kcast.client.trust import places, update
from kcast.client.trust.faults import ListFault
from kcast.client.trust.note import NoteError
from kcast.client.trust.places import StateError
from kcast.client.trust.sources import Source, source_of
from kcast.client.trust.standing import Standing, refusal, standing_of
from kcast.client.trust.store import Store, Unstored
from kcast.client.trust.update import Round
from kcast.client.trust.verdicts import Accepted, Held, Trouble


@dataclass(frozen=True, slots=True)
class Opened:
    """A list in use: what was verified, the cluster to go by at first, and what is to be told of it."""

    store: Store
    standing: Standing
    cluster: Cluster
    troubles: tuple[Trouble, ...] = ()

    def update(self, now_unix_s: int, is_wanted: Callable[[], bool]) -> Round:
        """Fetches what is new, as a `Keeper` wants it. Raises StateError."""
        return update.run_round(self.store, now_unix_s, SystemRandom(), is_wanted=is_wanted)


def open_list(name: str, now_unix_s: int) -> Opened:
    """Returns the list of a name, ready for use.

    Raises ClusterError where the name is not known, where no list can be had, and where the list has expired
    and its trust document refuses it then; StateError where the folder of its state cannot be used.
    """
    store = Store(name)
    held = store.load()
    troubles: list[Trouble] = []
    if store.is_damaged():
        text = f"its state in {store.folder} is damaged; an older one is used" if held else "lost"
        troubles.append(Trouble(ListFault.MALFORMED, text))
    if held is None or held.list is None:
        held = _first_list(store, held, now_unix_s, troubles)
    standing = standing_of(held)
    error = refusal(standing, now_unix_s)
    if error is not None:
        raise error
    return Opened(store, standing, standing.present(now_unix_s), tuple(troubles))


def _first_list(store: Store, held: Held | None, now_unix_s: int, troubles: list[Trouble]) -> Held:
    path = places.dropped(store.name)
    if held is None:
        if path is None:
            raise ClusterError(_unknown(store))
        try:
            held = Held(path.read_bytes())
            documents.check_own(held.trust)
        except OSError as error:
            raise ClusterError(f"{path}: {error.strerror}") from None
        except NoteError as error:
            raise ClusterError(f"{path}: {error}") from None
        try:
            store.begin(held)
        except Unstored as error:
            troubles.append(Trouble(ListFault.UNSTORED, update.told_unstored(error)))
    why = []
    for fetch in _ways(store, path and places.bundle_beside(path), now_unix_s):
        found = fetch()
        if found.accepted is not None:
            troubles += found.accepted.warnings
            return found.accepted.held
        why += [*(refused.text for refused in found.refused), *found.unreachable]
    raise ClusterError(f"@{store.name}: no list could be fetched: {'; '.join(why)}")
