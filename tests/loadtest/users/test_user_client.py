"""loadtest/users/user_client.py: a user's client, on legs that turn bad when the user begins."""

from random import Random

from kcast.client.cluster import lab
from kcast.loadtest.faults.plan import DownTimes, Outage
from kcast.loadtest.scenario import Scenario
from kcast.loadtest.users.roster import UserIds
from kcast.loadtest.users.user_client import UserClient, _Path, server_numbers
from kcast.pubsub.endpoint import Address, Burst, Transmit

SERVERS: list[Address] = [("127.0.0.1", 9001 + number) for number in range(10)]
CLUSTER = lab(SERVERS)
SCENARIO = Scenario(servers=10, seed=5, known=0.4)


class Core:
    """Sends one datagram with every flush, and keeps what it receives."""

    def __init__(self) -> None:
        self.received: list[Burst] = []

    def receive(self, burst: Burst, now: float) -> None:
        self.received.append(burst)

    def handle_timeout(self, now: float) -> None:
        pass

    def next_timeout(self) -> float | None:
        return None

    def flush(self, now: float) -> list[Transmit]:
        return [Transmit(b"x", 1, (SERVERS[0],))]


def passed(path: _Path, core: Core, now: float) -> tuple[bool, bool]:
    """Whether a datagram comes through, in and out."""
    path.receive(Burst(b"y", 1, SERVERS[0]), now)
    path.handle_timeout(now)
    out = bool(core.received)
    core.received.clear()
    return bool(path.flush(now)), out


def test_legs_are_good_until_the_user_begins() -> None:
    core = Core()
    path = _Path(core, server_numbers(CLUSTER), None)
    assert passed(path, core, 1.0) == (True, True)
    path.begin(Scenario(loss_in=1.0), None, Random(0))
    assert passed(path, core, 2.0) == (False, True)
    path.begin(Scenario(loss_out=1.0), None, Random(0))
    assert passed(path, core, 3.0) == (True, False)


def test_servers_are_down_by_the_clock_of_this_process() -> None:
    core = Core()
    path = _Path(core, server_numbers(CLUSTER), None)
    path.begin(Scenario(), DownTimes([Outage(0, 0, 0, 10**9)], t0_ns=5 * 10**9), Random(0))
    assert [passed(path, core, now) for now in (4.9, 5.0, 5.9, 6.0)] == [
        (True, True),
        (False, False),
        (False, False),
        (True, True),
    ]


def test_a_client_knows_servers_by_its_number_and_has_a_name_of_its_own() -> None:
    users = [UserClient(SCENARIO, CLUSTER, UserIds(number, number, -1)) for number in (0, 0, 1)]
    try:
        first, again, other = users
        assert first.known == again.known != other.known
        assert len(first.known) == 4
        assert [server.addresses[0] for server in first.client.cluster.servers] == [
            SERVERS[index] for index in first.known
        ]
        assert len({user.publisher for user in users}) == 3
        assert len({user.client.local_port for user in users}) == 3
    finally:
        for user in users:
            user.close()
            user.close()


def test_scenarios_of_one_seed_lose_other_datagrams_and_a_repeated_one_the_same() -> None:
    def passing(scenario: Scenario, client_id: int = 0) -> list[bool]:
        core = Core()
        user = UserClient(scenario, CLUSTER, UserIds(client_id, client_id, -1))
        try:
            assert user._path is not None
            user._path._core = core
            user.begin(None)
            user.client.close()  # its thread would flush, too
            return [bool(user._path.flush(float(now))) for now in range(400)]
        finally:
            user.close()

    first = SCENARIO.with_(name="5-1-5", loss_in=0.1)
    lost = [at for at, passed in enumerate(passing(first)) if not passed]
    assert 20 < len(lost) < 70
    assert [at for at, passed in enumerate(passing(first)) if not passed] == lost
    for other in (passing(first.with_(name="5-3-5")), passing(first.with_(seed=6)), passing(first, 1)):
        shared = sum(not other[at] for at in lost)
        assert shared < 15  # a tenth of them, by chance


def test_servers_have_their_numbers_by_all_addresses() -> None:
    assert server_numbers(CLUSTER) == {address: number for number, address in enumerate(SERVERS)}
