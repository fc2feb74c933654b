"""`kcast servers init`: begins a signed list of servers."""

import secrets
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from time import time
from typing import Any

import click

from kcast.client.cli.common import FILE, count_of, errors_as_lines, say, value_option
from kcast.client.cli.servers.keyring import Keyring
from kcast.client.cli.servers.published import state_of_log, tell_pin, trust_own
from kcast.client.cli.servers.terms import read_terms, terms_options
from kcast.client.cli.text import escaped, tell
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import Cluster, is_list_name
from kcast.client.trust.forms.note import Note
from kcast.client.trust.publisher.drafts import Incomplete
from kcast.client.trust.publisher.editing import DAY_S, ArgumentError, EditError, Lifetime, entries
from kcast.client.trust.publisher.founding import Terms, first_document, first_list, spread_for
from kcast.client.trust.publisher.publishing import publish
from kcast.client.trust.publisher.workplace import Workplace, write_note
from kcast.client.trust.state import keys

_SALT_BYTES = 16


@click.command("init")
@click.argument("name")
@click.argument("addresses", metavar="[ADDRESS]...", nargs=-1)
@value_option(
    "--from source",
    FILE,
    "Take the servers, the policy and the salt of this unsigned cluster file.",
    unit="FILE",
)
@value_option(
    "--key role",
    str,
    "Only make a key of yours, such as signer-1 or owner-0, and print its public key for whoever begins "
    "the list.",
    unit="ROLE",
)
@value_option(
    "--fresh-days", click.IntRange(1, 3650), "Clients should have a newer list after so many days.", 7, "N"
)
@value_option("--valid-days", click.IntRange(1, 3650), "A list has expired after so many days.", 90, "N")
@click.option(
    "--passphrase", "is_encrypted", is_flag=True, help="Encrypt the keys that are made, with a passphrase."
)
@terms_options
def command(
    name: str,
    addresses: tuple[str, ...],
    source: Path | None,
    role: str | None,
    fresh_days: int,
    valid_days: int,
    is_encrypted: bool,
    **options: Any,
) -> None:
    """Begin a signed list of servers: make keys, a trust document, a log, and version 1 of the list.

    NAME is 1 to 64 of a-z, 0-9, '.', '/' and '-', for people a URL without its scheme. An ADDRESS is IP:PORT
    or [IPv6]:PORT, or both with a comma between them. The files are put into the current folder.

    Keys of yours are made in the folder kcast/keys of $XDG_CONFIG_HOME, by default ~/.config.

    \b
    Examples:
      kcast servers init example.org/lab 192.0.2.7:7400 192.0.2.8:7400
      kcast servers init example.org/lab --from lab.cluster
      kcast servers init example.org/lab --key signer-1
    """
    if role is not None and (addresses or source):
        raise click.UsageError("--key only makes a key: give no servers beside it.")
    if role is None and bool(addresses) == bool(source):
        raise click.UsageError("give the servers: either ADDRESS..., or --from FILE.")
    with errors_as_lines("servers init"):
        _require_name(name)
        ring = Keyring(is_encrypted=is_encrypted)
        if role is not None:
            _make_key(f"{name}/{role}", ring)
            return
        place = _new_place(name)
        if (signed := state_of_log(f"{name}/log")).exists():
            raise EditError(
                f"{name} was begun already: go to its folder, or give another name ({signed} is what its log "
                "has signed last)"
            )
        life = Lifetime(fresh_days * DAY_S, valid_days * DAY_S)
        servers = _from_file(source) if source else _from_addresses(addresses)
        _begin(place, name, servers, read_terms(options), life, ring)


def _require_name(name: str) -> None:
    if not is_list_name(name):
        raise ArgumentError(
            f"{name!r} cannot be the name of a list: give 1 to 64 of a-z, 0-9, '.', '/' and '-', such as "
            "example.org/lab"
        )


def _make_key(name: str, ring: Keyring) -> None:
    key = ring.make(path := keys.path_of(name), name)
    say("servers init", f"made a key ({path}, readable by you alone: back it up); its public key is:")
    tell(str(key.verifier))


def _new_place(name: str) -> Workplace:
    place = Workplace(Path(f"{name.rpartition('/')[2]}.cluster"))
    for path in (place.file, place.trust_file, place.served, place.database):
        if path.exists():
            raise EditError(f"{path} is there already: go to another folder, or move it away")
    return place


def _from_addresses(addresses: tuple[str, ...]) -> Cluster:
    servers, is_lab = entries(addresses)
    salt = secrets.token_bytes(_SALT_BYTES)
    return Cluster(servers, spread_for(servers), salt=salt, is_lab=is_lab)


def _from_file(file: Path) -> Cluster:
    """Returns what an unsigned cluster file says. Raises KcastError where no list can say it."""
    cluster = clusters.load(file)
    if cluster.is_signed:
        raise EditError(f"{file}: it is a signed list already")
    if cluster.has_names:
        raise EditError(
            f"{file}: it has 'names', which are looked up anew by each client: a signed list has addresses"
        )
    return cluster


def _begin(place: Workplace, name: str, start: Cluster, terms: Terms, life: Lifetime, ring: Keyring) -> None:
    now = int(time())
    try:
        signer, log = ring.own(f"{name}/signer-0"), ring.own(f"{name}/log")
        terms = replace(terms, signers=(signer.verifier, *(terms.signers or ())), log=log.verifier)
        document = first_document(name, terms, start.servers)
        write_note(place.trust_file, Note(document.text))
        write_note(place.file, Note(clusters.format_cluster(first_list(name, start, life, now))))
        publish(place, ring, state_of_log, now)
    except BaseException as error:
        if isinstance(error, Incomplete) or state_of_log(f"{name}/log").exists():
            _tell_made(ring)  # 'publish' goes on from here
            tell(f"made {place.trust_file.name} and {place.file.name}, which wait to be published")
        else:
            for path in (place.file, place.trust_file, place.database):
                path.unlink(missing_ok=True)
            rmtree(place.served, ignore_errors=True)
            ring.remove_made()
        raise
    _tell_made(ring)
    trust_own(place, now)
    tell(f"made a log ({place.served.name}/) and {place.file.name}, version 1")
    tell_pin(place, document)


def _tell_made(ring: Keyring) -> None:
    if ring.made:
        files = " and ".join(path.name for path in ring.made)
        tell(
            f"made {count_of(len(ring.made), 'key')} in {escaped(str(ring.made[0].parent))}:\n"
            f"  {escaped(files)}\n  readable by you alone: back them up"
        )
