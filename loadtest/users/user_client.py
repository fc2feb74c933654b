"""One user's client of the cluster, and what a test puts between the two: bad legs, outages, a recorder."""

from collections.abc import Mapping
from random import Random, SystemRandom
from time import monotonic

from kcast.client.blocking import Client
from kcast.client.cluster import Cluster
from kcast.client.envelope import new_publisher
from kcast.loadtest.capture.recorder import ClientRecorder, Recorder
from kcast.loadtest.faults.impairment import Impairment, legs
from kcast.loadtest.faults.plan import DownTimes, known_servers, view_of
from kcast.loadtest.scenario import Scenario
from kcast.loadtest.users.roster import Place
from kcast.pubsub.endpoint import Address, Endpoint


class Contact:
    """A client that knows what this user may know; `close` it.

    All legs are good until `begin`, so that leases stand, and servers know publishers, when the user begins.
    What is left to chance follows from the scenario's seed and the user's number. Raises OSError.
    """

    def __init__(
        self, scenario: Scenario, cluster: Cluster, place: Place, recorder: Recorder | None = None
    ) -> None:
        self.place = place
        self.is_leaving = False  # its last figures have been taken down
        self.known = known_servers(scenario, place.client_id)
        # Fresh in each test: lines of another one must not pass for copies.
        self.publisher = new_publisher(SystemRandom())
        self.recorder: ClientRecorder | None = None
        if recorder is not None:
            self.recorder = recorder.client(pub_id=place.pub_id, sub_id=place.sub_id)
        self._scenario = scenario
        self._servers = server_numbers(cluster)
        self._path: _Path | None = None
        self.client = Client(
            view_of(cluster, self.known),
            avoid_dead=scenario.avoid_dead,
            publisher=self.publisher,
            rng=Random(f"{scenario.seed}/client/{place.client_id}"),
            path=self._make_path,
            renewals_per_ttl=scenario.renewals,
            kernel_times=recorder is not None,
        ).open()

    def begin(self, down: DownTimes | None) -> None:
        """From now on legs are as bad as the scenario has it, and servers down at times."""
        assert self._path is not None
        self._path.begin(self._scenario, down, f"{self._scenario.seed}/legs/{self.place.client_id}")

    def close(self) -> None:
        """Closes the client. What was still held on the way is lost."""
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
    """An Endpoint with good legs, and later bad ones. It costs nothing: it has its legs' methods."""

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

    def begin(self, scenario: Scenario, down: DownTimes | None, seed: str) -> None:
        way_in, way_out = legs(scenario)
        self._take(
            Impairment(
                self._core,
                legs_in=way_in,
                legs_out=way_out,
                down=down,
                servers=self._servers,
                rng=Random(seed),
                observer=self._observer,
            )
        )

    def close(self) -> None:
        self._legs.close(monotonic())


def server_numbers(cluster: Cluster) -> dict[Address, int]:
    """The number of each server, by every address of it."""
    return {address: number for number, server in enumerate(cluster.servers) for address in server.addresses}
