"""One user's client of the cluster, with the test's faults and recorder between client and socket."""

from collections.abc import Mapping
from random import Random, SystemRandom
from time import monotonic, sleep

from kcast.client.blocking import Client
from kcast.client.cluster import Cluster
from kcast.client.driving.blocking_service import Members
from kcast.client.messages.envelope import new_publisher
from kcast.loadtest.capture.recorder import ClientRecorder, Recorder
from kcast.loadtest.faults.impairment import Impairment, legs
from kcast.loadtest.faults.plan import DownTimes, known_servers, view_of
from kcast.loadtest.scenario import Scenario
from kcast.loadtest.users.expectations import Received
from kcast.loadtest.users.roster import UserIds
from kcast.pubsub.endpoint import Address, Endpoint

FAREWELL_S_MAX = 0.1


class UserClient:
    """The client of one user, which knows only the servers that this user may know. Call `close` when done.

    `topics` are those that it subscribes to; `received` is None if there are none, and until the test begins.
    Legs have no faults until `begin`, so that leases stand and servers know the publisher by then. All that
    is random follows from the scenario's seed and name, and the user's number: so scenarios of one seed,
    which have their outages in common, do not lose the same datagrams as well. Raises OSError.
    """

    def __init__(
        self,
        scenario: Scenario,
        cluster: Cluster,
        ids: UserIds,
        recorder: Recorder | None = None,
        topics: tuple[int, ...] = (),
    ) -> None:
        self.ids = ids
        self.topics = topics
        self.received: Received | None = None
        self.is_gone = False
        self.members: Members | None = None
        self.known = known_servers(scenario, ids.client_id)
        # New in each test: lines of an earlier test must not be taken for copies.
        self.publisher = new_publisher(SystemRandom())
        self.recorder: ClientRecorder | None = None
        if recorder is not None:
            self.recorder = recorder.client(pub_id=ids.pub_id, sub_id=ids.sub_id)
        self._scenario = scenario
        self._servers = server_numbers(cluster)
        self._path: _Path | None = None
        self.client = Client(
            view_of(cluster, self.known),
            avoid_dead=scenario.avoid_dead,
            publisher=self.publisher,
            rng=_stream(scenario, "client", ids),
            path=self._make_path,
            renewals_per_ttl=scenario.renewals,
            kernel_times=recorder is not None,
        ).open()

    def begin(self, down: DownTimes | None, away: DownTimes | None = None) -> None:
        """Applies the scenario's faults from now on; `down` tells which servers are isolated when, `away`
        when this user is."""
        assert self._path is not None
        self._path.begin(self._scenario, down, _stream(self._scenario, "legs", self.ids), away)

    def close(self) -> None:
        """Closes the client. Datagrams that the impairment still holds are lost."""
        if self.members is not None:
            self.members.close()
            sleep(min(2 * self._scenario.delay_ms / 1000, FAREWELL_S_MAX))  # what the path holds is lost
        self.client.close()
        if self._path is not None:
            self._path.close()
            self._path = None
        if self.recorder is not None:
            self.recorder.close()

    def _make_path(self, core: Endpoint) -> Endpoint:
        self._path = _Path(core, self._servers, self.recorder)
        return self._path


class _Path:
    """An Endpoint whose legs have no faults until `begin`. It costs nothing: its methods are theirs."""

    def __init__(
        self, core: Endpoint, servers: Mapping[Address, int], observer: ClientRecorder | None
    ) -> None:
        self._core, self._servers, self._observer = core, servers, observer
        self._take(Impairment(core, servers=servers, rng=Random(0), observer=observer))

    def _take(self, legs_: Impairment) -> None:
        self._legs = legs_
        self.receive = legs_.receive
        self.handle_timeout = legs_.handle_timeout
        self.next_timeout = legs_.next_timeout
        self.flush = legs_.flush

    def begin(
        self, scenario: Scenario, down: DownTimes | None, rng: Random, away: DownTimes | None = None
    ) -> None:
        leg_in, leg_out = legs(scenario)
        self._take(
            Impairment(
                self._core,
                legs_in=leg_in,
                legs_out=leg_out,
                down=down,
                are_mute=scenario.by == "mute",
                away=away,
                servers=self._servers,
                rng=rng,
                observer=self._observer,
            )
        )

    def close(self) -> None:
        self._legs.close(monotonic())


def _stream(scenario: Scenario, what: str, ids: UserIds) -> Random:
    return Random(f"{scenario.seed}/{scenario.name}/{what}/{ids.client_id}")


def server_numbers(cluster: Cluster) -> dict[Address, int]:
    """Returns the number of each server by each of its addresses."""
    return {address: number for number, server in enumerate(cluster.servers) for address in server.addresses}
