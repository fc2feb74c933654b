"""Opens the list of a name: from the state on disk, or at first contact from elsewhere. PROTOCOL §10.8.

With a sound state no network is needed. Where only a trust document is here, dropped by an administrator, the
list is fetched, from the bundle beside it or from the places that it names, and that is waited for. So it is
where the list that is here has expired, and its trust document refuses it then.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom

from kcast.client.clusters.cluster import Cluster, ClusterError, facts_of
from kcast.client.events import ListTrouble
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.verdicts import Held, Trouble
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.note import NoteError
from kcast.client.trust.reach import update
from kcast.client.trust.reach.update import Round
from kcast.client.trust.state import places
from kcast.client.trust.state.places import StateError
from kcast.client.trust.state.standing import Standing, refusal, standing_of
from kcast.client.trust.state.store import Store, Unstored

REFRESH_SHARE = 0.75  # of the fresh interval: by then every client that runs has fetched the next list
REFRESH_AGAIN_S = 3600
REFRESH_S = 20.0
_OF_TIMES = (ListFault.CLOCK, ListFault.STALE, ListFault.EXPIRED)  # of which whoever opens the list is told


@dataclass(frozen=True, slots=True)
class Opened:
    """A list in use: what was verified, the cluster to go by at first, and what is to be told of it."""

    store: Store
    standing: Standing
    cluster: Cluster
    troubles: tuple[Trouble, ...] = ()

    def update(self, now_unix_s: int, is_wanted: Callable[[], bool]) -> Round:
        """Fetches what is new, as a `ListWatch` wants it. Raises StateError."""
        return update.run_round(self.store, now_unix_s, SystemRandom(), is_wanted=is_wanted)

    def told(self, now_unix_s: int) -> tuple[ListTrouble, ...]:
        """Returns what is to be told of the list now, for programs without a `ListWatch`, which tells it."""
        kept = facts_of(self.standing.cluster).version
        each_once = {each.fault: each.text for each in (*self.troubles, *self.standing.troubles(now_unix_s))}
        return tuple(
            ListTrouble(self.store.name, fault.value, text, kept) for fault, text in each_once.items()
        )


def open_list(name: str, now_unix_s: int) -> Opened:
    """Returns the list of a name, ready for use.

    Raises ClusterError where the name is not known, where no list can be had, and where the list has expired,
    its trust document refuses it then, and no newer one can be had; StateError where the folder of its state
    cannot be used.
    """
    store = Store(name)
    held = store.load()
    troubles: list[Trouble] = []
    if store.is_damaged():
        rest = "an older one is in use" if held is not None and held.list is not None else "none is left"
        troubles.append(Trouble(ListFault.MALFORMED, f"what is stored in {store.folder} is damaged: {rest}"))
    if held is None or held.list is None:
        held = _first_list(store, held, now_unix_s, troubles)
    standing = standing_of(held)
    error = refusal(standing, now_unix_s)
    if error is not None:  # clients fetch while they run, and with this list none would
        newer, why = _fetched(store, now_unix_s, troubles)
        if newer is None:
            raise ClusterError(f"{error}, and no newer one can be had: {'; '.join(why)}")
        standing = standing_of(newer)
    if (trouble := update.by_hand(standing.document, store.source)) is not None:
        troubles.append(trouble)
    return Opened(store, standing, standing.present(now_unix_s), tuple(troubles))


def refresh(name: str, now_unix_s: int) -> tuple[ListTrouble, ...]:
    """Fetches a newer list, if the stored one is due to be replaced, and waits for it; returns what to tell.

    For programs that end before a client's own fetch would. It is tried once an hour at most, so that
    programs that follow each other are not all held up where there is no network.
    """
    try:
        store = Store(name)
        held = store.load()
        if held is None or held.list is None:
            return ()
        standing = standing_of(held)
        if not standing.is_due(now_unix_s, REFRESH_SHARE) or not store.begin_try(now_unix_s, REFRESH_AGAIN_S):
            return ()
        found = update.run_round(store, now_unix_s, SystemRandom(), round_s=REFRESH_S)
    except StateError:
        return ()  # whoever opens the list is told
    told = [(refused.trouble, refused.kept_in) for refused in found.refused]
    if found.accepted is not None:
        standing = Standing.of(found.accepted)
        told += [(each, "") for each in found.accepted.warnings if each.fault not in _OF_TIMES]
    kept = facts_of(standing.cluster).version
    return tuple(ListTrouble(name, each.fault.value, each.text, kept, where) for each, where in told)


def _first_list(store: Store, held: Held | None, now_unix_s: int, troubles: list[Trouble]) -> Held:
    path = places.dropped(store.name)
    if held is None:
        if path is None:
            raise ClusterError(unknown(store.name))
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
            troubles.append(update.trouble_of(error))
    first, why = _fetched(store, now_unix_s, troubles)
    if first is None:
        raise ClusterError(f"@{store.name}: there is no list of it here yet: {'; '.join(why)}")
    return first


def _fetched(store: Store, now_unix_s: int, troubles: list[Trouble]) -> tuple[Held | None, list[str]]:
    """Fetches the newest list, from a bundle that was dropped here or else from where it lies, and waits for
    it; returns what is held then, or None and why no list can be had."""
    path = places.dropped(store.name)
    bundle = None if path is None else places.bundle_beside(path)
    why: list[str] = []
    for names in ([str(bundle)] if bundle else [], None):
        found = update.run_round(store, now_unix_s, SystemRandom(), names=names)
        if found.accepted is not None:
            troubles += found.accepted.warnings
            return found.accepted.held, why
        why += [*(f"{refused.text} ({refused.fault})" for refused in found.refused), *found.unreachable]
    return None, why


def unknown(name: str) -> str:
    """Returns what to say of a name that is not known here."""
    from kcast.client.errors import did_you_mean  # slow to import, and seldom needed

    how = "type 'kcast servers trust URL PIN', with the URL and the pin that its operators give you"
    known = places.known_names()
    if name in known and places.dropped(name) is None:
        return f"what is stored of @{name} is damaged: {how}"
    return f"@{name} is not known here{did_you_mean(name, known) or ':'} {how}"
