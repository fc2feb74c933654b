"""`kcast servers publish`: publishes what a work file has become."""

import sys
from pathlib import Path
from time import time

import click

from kcast.client.cli.common import count_of, errors_as_lines, say
from kcast.client.cli.servers.edits import file_argument
from kcast.client.cli.servers.keyring import Keyring
from kcast.client.cli.servers.published import state_of_log, tell_pin, trust_own
from kcast.client.cli.text import escaped, tell
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import facts_of
from kcast.client.trust.checks.list_checks import duration
from kcast.client.trust.publisher.drafts import at_hand
from kcast.client.trust.publisher.editing import DAY_S, Lifetime, lifetime
from kcast.client.trust.publisher.publishing import Publication, publish
from kcast.client.trust.publisher.workplace import Workplace
from kcast.client.trust.reach.update import by_hand
from kcast.client.trust.state.passphrase import PASSPHRASE_VARIABLE

_DAYS = click.IntRange(1, 3650)


@click.command("publish")
@file_argument
@click.option(
    "--now",
    "is_at_once",
    is_flag=True,
    help="Have the list hold at once, though some messages may be missed until all clients have it.",
)
@click.option("--fresh-days", type=_DAYS, metavar="N", help="Clients should have a newer list after N days.")
@click.option("--valid-days", type=_DAYS, metavar="N", help="The list expires after N days.")
def command(file: Path, is_at_once: bool, fresh_days: int | None, valid_days: int | None) -> None:
    """Publish the list in FILE, or, where it has not changed, renew it for another while.

    The list is judged as clients will judge it, signed with your keys, put into the log, and shown to the
    witnesses. Only if enough of these cosign is anything written for people to fetch. A new trust document
    beside FILE is published with it.

    Where the change is so large that clients with the list before may miss each other, it holds only after a
    while in which all learn of it. With --now it holds at once.

    \b
    Example:
      kcast servers publish lab.cluster
    """
    with errors_as_lines("servers publish"):
        place = Workplace(file)
        now = int(time())
        life = _life(file, fresh_days, valid_days)
        ring = Keyring()
        published = publish(place, ring, state_of_log, now, is_at_once=is_at_once, life=life)
        _tell(place, published, ring, now)
        trust_own(place, now)


def _life(file: Path, fresh_days: int | None, valid_days: int | None) -> Lifetime | None:
    if fresh_days is None and valid_days is None:
        return None
    before = lifetime(facts_of(clusters.load(file)))
    return Lifetime(
        before.fresh_s if fresh_days is None else fresh_days * DAY_S,
        before.valid_s if valid_days is None else valid_days * DAY_S,
    )


def _tell(place: Workplace, published: Publication, ring: Keyring, now_unix_s: int) -> None:
    cluster, difference = published.list.cluster, published.list.difference
    facts = facts_of(cluster)
    text = f"version {facts.version} of {cluster.name} is published"
    if published.is_renewal:
        text += ", renewed"
    elif difference is not None:
        text += f": {count_of(len(difference.added), 'host')} added, {len(difference.removed)} removed"
        if difference.changed:
            text += f", {len(difference.changed)} changed"
    tell(text)
    if published.has_new_document:
        tell(f"version {published.document.version} of its trust document is published with it")
    if facts.valid_after_s > now_unix_s:
        wait = duration(facts.valid_after_s - now_unix_s)
        tell(f"it holds in {wait}, when all have learned of it: so no message is missed")
    if published.document.policy.witnesses:
        tell(f"cosigned by {', '.join(published.cosigned) or 'nobody'}")
    for name, why in published.missing.items():
        say("servers publish", f"{name} has not cosigned: {why}")
    if (trouble := by_hand(published.document)) is not None:
        say("servers publish", f"{trouble.text}; 'kcast servers rotate --url URL' names one")
    if difference is None and published.document.version == 1:  # later ones have another pin
        tell_pin(place, published.document)
    fresh = f"it is fresh for {duration(facts.fresh_until_s - now_unix_s)}"
    needed = published.document.signer_threshold
    if len(at_hand(published.document.signers, ring)) < needed:
        tell(f"{fresh}: have it signed and published again by then, since it takes {needed} signers")
        return
    where = f", where {PASSPHRASE_VARIABLE} is set" if ring.has_passphrase else ""
    tell(f"{fresh}; this line of a crontab renews it{where}:")
    every = max(1, (facts.fresh_until_s - facts.valid_after_s) // (2 * 86_400))
    kcast = Path(sys.argv[0]).absolute() if sys.argv[0].endswith("kcast") else "kcast"
    tell(f"  17 4 */{every} * * {escaped(str(kcast))} servers publish {escaped(str(place.file.absolute()))}")
