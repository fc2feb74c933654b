"""What the Clients of `kcast.client.aio` and `kcast.client.blocking` have in common: options and figures."""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Never, TypeVar

from kcast.client.clusters.cluster import Cluster
from kcast.client.clusters.facts import ListState
from kcast.client.core import COUNTS
from kcast.client.driving.arguments import refuse_unknown
from kcast.client.driving.engine import Engine, Wrap
from kcast.client.driving.reprs import described, of_client
from kcast.client.events import Drop, Outcome
from kcast.pubsub.limits import RENEWALS_PER_TTL

if TYPE_CHECKING:  # what is only imported once it is used; the libraries of some are those of an extra
    from kcast.client.driving.mailboxes import Mailboxes
    from kcast.client.sealed.keys import Identity
    from kcast.client.sealed.membership import Group

Figure = TypeVar("Figure")


class ClientBase(ABC):
    """A client's engine, and what can be read from it."""

    _usage: ClassVar[str]  # how a client is opened, for errors

    def __init__(
        self,
        cluster: Cluster | str | Path | None = None,
        *,
        avoid_dead: bool = True,
        publisher: str | None = None,
        rng: random.Random | None = None,
        path: Wrap | None = None,
        renewals_per_ttl: float = RENEWALS_PER_TTL,
        kernel_times: bool = False,
        identity: "Identity | str | Path | None" = None,
        group: "Group | str | Path | None" = None,
        **unknown: Never,
    ) -> None:
        """Prepares a client; it opens its socket, and sends, only once it is entered.

        - `cluster`: the path of a cluster file, `@NAME` of a signed list that is trusted here (`kcast servers
          trust`), the name of a context (`kcast context`), or a Cluster. By default what the environment
          variable KCAST_CLUSTER names, else the context in use. A str that contains `/` or `.`, or exists, is
          a path, and so is every Path. A file that changes is adopted within a minute (`ClusterChanged`), a
          newer signed list after it has been checked (`ListChanged`).
        - `avoid_dead`: whether servers that seem dead are avoided; True by default. A publish then prefers
          those believed alive, and goes to another one when a server does not answer; a subscription leaves
          servers that are lost or about to stop. With False each stays with the servers drawn for it.
        - `publisher`: the name that this client's messages carry, 1 to 43 of A-Z, a-z, 0-9, '-' and '_'. By
          default a new random one, which is best. A name is that of one client (PROTOCOL §9.1): another one
          within two minutes numbers its messages anew, and subscribers take them for copies of earlier ones.
        - `rng`: the source of randomness; by default the system's (`random.SystemRandom`).
        - `path`: what stands between socket and client, for tests that lose, delay or record datagrams: a
          function that takes the client's core and returns the `kcast.pubsub.endpoint.Endpoint` that all
          datagrams and timeouts go through instead. By default nothing.
        - `renewals_per_ttl`: number of times a lease is renewed while it lasts, 1 or more; 3 by default. The
          fewer, the more likely a lost datagram costs a lease.
        - `kernel_times`: whether `path` sees when the kernel received each datagram (Linux); False by
          default.
        - `identity`: the key that signs what is published, unless a call says `sign=False`: an `Identity`
          (`kcast.client.sealed.keys`), or a key's name or file as `kcast key` takes it. By default nothing is
          signed.
        - `group`: the group for which what is published is sealed, and whose messages subscriptions take,
          unless a call says `seal=False`: a `Group` (`kcast.client.sealed.groups.load`), its name, or its
          file. By default none.

        Raises ClusterError where the cluster file cannot be used, or nothing names one; ValueError where
        `publisher` or `renewals_per_ttl` is out of range, or `publisher` is given beside `identity` or
        `group`; KcastError where key or group cannot be used; TypeError where an argument is of a wrong type.
        """
        refuse_unknown(unknown, "Client", ClientBase.__init__.__kwdefaults__)
        self._engine = Engine(
            cluster,
            usage=self._usage,
            avoid_dead=avoid_dead,
            publisher=publisher,
            rng=rng,
            path=path,
            renewals_per_ttl=renewals_per_ttl,
            kernel_times=kernel_times,
            identity=identity,
            group=group,
        )
        self.core = self._engine.core
        self._prepare()

    def __repr__(self) -> str:
        return described(self, lambda: of_client(self._engine))

    @cached_property
    def _mailboxes(self) -> "Mailboxes":
        from kcast.client.driving.mailboxes import Mailboxes

        return Mailboxes(self._engine)

    @abstractmethod
    def _prepare(self) -> None:
        """Sets up what the driver keeps."""

    @abstractmethod
    def _read(self, read: Callable[[], Figure]) -> Figure:
        """Reads from the engine while nobody changes it."""

    @property
    def cluster(self) -> Cluster:
        """The cluster that the client goes by. It is another one after each `ClusterChanged`."""
        return self._engine.cluster

    def list_state(self) -> ListState | None:
        """Returns what is known of the signed list that the client goes by; None with an unsigned file."""
        return self._read(self._engine.list_state)

    @property
    def drops(self) -> Counter[Drop]:
        """Number of datagrams or lines that arrived and were discarded until now, by reason (`Drop`).

        Duplicates, the expected copies by a topic's other servers, are no drops: see `counts`.
        """
        return self._read(lambda: Counter(self._engine.core.drops))

    @property
    def counts(self) -> Counter[str]:
        """Numbers until now: `datagrams_received`; `copies_received` (lines with a message); `deliveries`
        (first copies, handed to the application); `duplicates` (later copies of delivered messages);
        `published` (messages whose outcome is known)."""
        return self._read(lambda: Counter(self._engine.core.counts))

    def counters(self) -> dict[str, Any]:
        """Returns all figures of the moment, as JSON takes them, for logs and monitoring.

        The numbers of `counts`, and `kernel_drops`; `queued`, `leases` and `leases_wanted` of all
        subscriptions; by name, `outcomes` of publishes at each server (`Outcome`), `drops` (`Drop`) and
        `send_errors`; and `servers`, the numbers of them that are `alive`, `suspected` and `lost`. Names that
        are known beforehand are there with 0, too.
        """
        return self._read(self._figures)

    def _figures(self) -> dict[str, Any]:
        core, subscribed = self.core, self._engine.recipients.subscribed()
        states = Counter(core.server_states().values())
        return {
            **{name: core.counts[name] for name in COUNTS},
            "kernel_drops": self._engine.kernel_drops,
            "queued": sum(len(inbox.items) for inbox in {inbox.target for inbox in subscribed}),
            "leases": sum(inbox.leases[0] for inbox in subscribed),
            "leases_wanted": sum(inbox.leases[1] for inbox in subscribed),
            "outcomes": {outcome.value: core.outcomes[outcome] for outcome in Outcome},
            "drops": {reason.value: core.drops[reason] for reason in Drop},
            "send_errors": dict(self._engine.send_errors),
            "servers": {state: states[state] for state in ("alive", "suspected", "lost")},
        }

    @property
    def kernel_drops(self) -> int:
        """Number of datagrams that the kernel dropped because this process did not read them in time."""
        return self._read(lambda: self._engine.kernel_drops)

    @property
    def send_errors(self) -> Counter[str]:
        """Number of datagrams that could not be sent until now, by the name of the error (as in `errno`)."""
        return self._read(lambda: Counter(self._engine.send_errors))

    @property
    def server_states(self) -> dict[str, str]:
        """`alive`, `suspected` or `lost` for each server that this client has dealings with, by `IP:port`."""
        return self._read(self._engine.core.server_states)

    def _asked_at(self) -> dict[str, tuple[str, ...]]:
        """Returns the addresses at which each server may be asked, by name."""
        return self._read(self._engine.core.sessions.asked_at)

    @property
    def local_port(self) -> int:
        """The UDP port of the client's socket; 0 until it is open."""
        return self._engine.local_port
