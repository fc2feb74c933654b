"""The beginning of a list: its first trust document, and the list to be published as version 1. Sans-IO.

PROTOCOL §10.4, §10.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from kcast.client.clusters.cluster import Cluster, ListFacts, ServerEntry, hosts_of
from kcast.client.trust.checks.list_checks import hosts_by_prefix
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import VerifierKey
from kcast.client.trust.forms.quorum import NONE, Group, Policy, Witness
from kcast.client.trust.publisher.editing import EditError, Lifetime, min_servers
from kcast.hashring.policy import Policy as Spread

GROUP = "q"  # the name of the group of all witnesses
CHURN_PERCENT = 25
FREE_HOSTS = 4  # so many may come or go at once, however few there are


@dataclass(frozen=True, slots=True)
class Terms:
    """What a trust document is to say. None leaves it as it is, or takes what suits the servers."""

    signers: tuple[VerifierKey, ...] | None = None
    signer_threshold: int | None = None
    owners: tuple[VerifierKey, ...] | None = None
    owner_threshold: int | None = None
    witnesses: tuple[tuple[str, Witness], ...] | None = None
    quorum: int | None = None
    urls: tuple[str, ...] | None = None
    log: VerifierKey | None = None
    except_version: int | None = None
    lists_from: int | None = None


def first_document(name: str, terms: Terms, servers: Sequence[ServerEntry]) -> TrustDocument:
    """Returns version 1 of a trust document for a list with these servers.

    Where the terms do not say it, more than half of the signers and of the owners are needed, and two thirds
    of the witnesses. Raises EditError.
    """
    assert terms.signers and terms.log is not None
    hosts = len(hosts_of(servers))
    document = TrustDocument(
        name=name,
        version=1,
        signers=terms.signers,
        signer_threshold=_majority(len(terms.signers)),
        owner_threshold=_majority(len(terms.owners or terms.signers)),
        policy=_policy(terms.log, (), None),
        churn_percent=max(CHURN_PERCENT, min(100, -(-100 * FREE_HOSTS // hosts))),
        hosts_per_prefix=hosts_per_prefix(servers),
        floor=max(1, hosts // 2),
    )
    return changed(document, terms)


def changed(document: TrustDocument, terms: Terms) -> TrustDocument:
    """Returns the trust document with other terms, still of the same version. Raises EditError."""
    signers = document.signers if terms.signers is None else terms.signers
    own_owners = document.own_owners if terms.owners is None else terms.owners
    owners = own_owners or signers
    log = terms.log or document.policy.log
    policy = replace(document.policy, log=log)
    if terms.witnesses is not None or terms.quorum is not None:
        witnesses = tuple(policy.witnesses.items()) if terms.witnesses is None else terms.witnesses
        policy = _policy(log, witnesses, _quorum(len(witnesses), terms.quorum, document.policy))
    return replace(
        document,
        signers=signers,
        signer_threshold=_threshold(
            "signers", len(signers), terms.signer_threshold, document.signer_threshold
        ),
        own_owners=own_owners,
        owner_threshold=_threshold("owners", len(owners), terms.owner_threshold, document.owner_threshold),
        policy=policy,
        except_version=_excepted(document, terms),
        lists_from=terms.lists_from or document.lists_from,
        urls=terms.urls or document.urls,
    )


def first_list(name: str, start: Cluster, life: Lifetime, now_unix_s: int) -> Cluster:
    """Returns a list as it is before it is published: version 1, with what an unsigned list says."""
    facts = ListFacts(
        version=1,
        trust=1,
        valid_after_s=now_unix_s,
        fresh_until_s=now_unix_s + life.fresh_s,
        valid_until_s=now_unix_s + life.valid_s,
        min_servers=min_servers(start.servers),
    )
    return replace(start, name=name, signed=facts, path=None)


def spread_for(servers: Sequence[ServerEntry]) -> Spread:
    """Returns the default policy; with fewer hosts than it wants, one of as many: most get each message, and
    subscribers hold leases at all."""
    hosts = len(hosts_of(servers))
    return Spread() if hosts >= Spread().k else Spread(hosts, hosts // 2 + 1, hosts)


def hosts_per_prefix(servers: Sequence[ServerEntry]) -> int:
    """Returns the most hosts that a list with these servers should have of one IPv4 /24 or IPv6 /48: as many
    as it has now; 0, any number, where one has an address that is not of the public Internet."""
    if not all(ip_address(host).is_global for server in servers for host, _ in server.addresses):
        return 0
    return max(hosts_by_prefix(servers).values())


def _majority(count: int) -> int:
    return count // 2 + 1


def _policy(log: VerifierKey, witnesses: Sequence[tuple[str, Witness]], quorum: int | None) -> Policy:
    count = len(witnesses)
    if not count:
        if quorum:
            raise EditError(f"a quorum of {quorum} needs witnesses: --witness 'NAME VKEY URL' names one")
        return Policy(log, {}, {}, NONE)
    needed = _two_thirds(count) if quorum is None else quorum
    if not 0 <= needed <= count:
        raise EditError(f"--quorum {needed}: the number of witnesses is {count}: name more by --witness")
    if not needed:
        return Policy(log, dict(witnesses), {}, NONE)
    group = Group(needed, tuple(name for name, _ in witnesses))
    return Policy(log, dict(witnesses), {GROUP: group}, GROUP)


def _quorum(count: int, given: int | None, former: Policy) -> int | None:
    """Returns how many of `count` witnesses are needed: where that is not given, as many as before, and two
    thirds of them unless before it was set to fewer."""
    if given is not None or not former.witnesses:
        return given
    kept = min(former.needed, count)
    return kept if former.needed < _two_thirds(len(former.witnesses)) else max(kept, _two_thirds(count))


def _two_thirds(count: int) -> int:
    return -(-2 * count // 3)


def _excepted(document: TrustDocument, terms: Terms) -> int | None:
    """Returns the version that may change more: the one before, unless versions count anew, and another list
    would have it."""
    if terms.lists_from not in (None, document.lists_from):
        return terms.except_version
    return terms.except_version or document.except_version


def _threshold(who: str, count: int, given: int | None, former: int) -> int:
    if given is None:
        return min(former, count)
    if not 1 <= given <= count:
        raise EditError(f"--{who}-needed {given}: give a number from 1 to {count}, the number of {who}")
    return given
