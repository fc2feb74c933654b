"""What `init` and `publish` share: publishing with this user's keys, this user's own trust, and the pin."""

from pathlib import Path

from kcast.client.cli.text import escaped, tell
from kcast.client.trust.checks.verdicts import Held
from kcast.client.trust.forms.document import TrustDocument, parse
from kcast.client.trust.publisher.workplace import Workplace
from kcast.client.trust.reach import update
from kcast.client.trust.reach.sources import FolderSource
from kcast.client.trust.state import keys
from kcast.client.trust.state.places import is_known
from kcast.client.trust.state.store import Store


def state_of_log(name: str) -> Path:
    """Returns where the last signed checkpoint of a log is kept: beside the log's key."""
    return keys.path_of(name).with_suffix(".checkpoint")


def trust_own(place: Workplace, now_unix_s: int) -> None:
    """Makes this user trust the list that he has published. Raises KcastError."""
    first = place.trust_documents()[0]
    store = Store(parse(first)[0].name)
    if not is_known(store.name):
        store.begin(Held(first))
        store.remember_source(str(place.served.absolute()))
    update.run(store, FolderSource(place.served), now_unix_s)


def tell_pin(place: Workplace, document: TrustDocument) -> None:
    """Says what to serve, and what to give to people, of a list that begins with this trust document."""
    where = document.urls[0] if document.urls else "https://HOST/PATH"
    tell(
        f"serve {place.served.name}/ with any web server, and give people:\n"
        f"  kcast servers trust {escaped(where)} {document.pin}"
    )
    if not document.policy.needed:
        tell(
            "without witnesses, whoever steals these keys can show different people different\nlists; "
            "'kcast servers witness --help' says what helps"
        )
