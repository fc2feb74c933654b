"""Loads with real servers of ours: kcast, the forwarder, the bare loops. No test asks how fast they are."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.benchmarks.peers import server_rows, trial
from tests.benchmarks.peers.__main__ import main
from tests.benchmarks.peers.bench import Bench
from tests.benchmarks.peers.client_rows import NATS_PY, ClientRow
from tests.benchmarks.peers.kcast import open_socket
from tests.benchmarks.peers.kinds import BARE, FORWARDER, PYTHON, Kind, kcast
from tests.benchmarks.peers.loaded import LoadedServer
from tests.benchmarks.peers.machine import Cores
from tests.benchmarks.peers.pacing import Schedule
from tests.benchmarks.peers.programs.bare import deal
from tests.benchmarks.peers.results import Run
from tests.benchmarks.peers.session import Poller, Session
from tests.benchmarks.peers.workloads import Ring, Workload
from tests.support.trees import HERE

CORES = tuple(sorted(os.sched_getaffinity(0)))
KCAST = kcast(HERE, PYTHON)
GRACE_S = 20.0  # so that no test fails on a busy machine; a trial ends when all has come


@pytest.fixture
def poller() -> Iterator[Poller]:
    poller = Poller()
    yield poller
    poller.close()


def test_copies_are_dealt_out_evenly() -> None:
    for copies in range(40):
        for subscribers in range(1, 12):
            dealt = deal(copies, subscribers)
            assert sum(dealt) == copies
            assert len(dealt) == min(copies, subscribers)
            assert not dealt or max(dealt) - min(dealt) <= 1
    assert deal(5, 0) == []


@pytest.mark.world
@pytest.mark.parametrize(
    "workload", [Workload(1, 1, 1), Workload(20, 10, 5), Workload(40, 10, 1, idle_count=30)], ids=repr
)
@pytest.mark.parametrize("kind", [KCAST, BARE[0]], ids=lambda kind: kind.name)
def test_each_subscriber_gets_its_copies(kind: Kind, workload: Workload, poller: Poller) -> None:
    with LoadedServer(kind, workload, CORES, poller, 0.0005, grace_s=GRACE_S) as server:
        found = server.trial(2000, 0.1)
    assert found.due == 200 * workload.fan_out
    assert found.copies == found.due
    assert found.server_us
    assert len(found.latencies_us) == found.copies  # at such a rate all are sampled
    assert min(found.latencies_us) >= 0


@pytest.mark.world
def test_what_others_send_to_a_port_of_loopback_does_not_reach_a_subscriber() -> None:
    with open_socket() as ours, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        ours.settimeout(5)
        host, port = ours.getsockname()
        other.sendto(b"%~ locust".ljust(64, b"\n"), ("127.0.0.1", port))
        other.sendto(b"ours", (host, port))
        assert ours.recv(2048) == b"ours"


@pytest.mark.world
@pytest.mark.parametrize("publishers", [1, 7])
@pytest.mark.parametrize("kind", [KCAST, FORWARDER], ids=lambda kind: kind.name)
def test_each_message_has_a_datagram_of_its_own(kind: Kind, publishers: int, poller: Poller) -> None:
    workload = Workload(16, 16, 1, single_publishers=publishers)
    with LoadedServer(kind, workload, CORES, poller, 0.0005, grace_s=GRACE_S) as server:
        assert server.trial(500, 0.2).copies == 100


@pytest.mark.world
def test_a_quiet_topic_has_latencies_of_its_own(poller: Poller) -> None:
    with LoadedServer(
        KCAST, Workload(20, 10, 5), CORES, poller, 0.0005, has_quiet_topic=True, grace_s=GRACE_S
    ) as server:
        found = server.trial(2000, 0.2)
    assert found.copies == 400 * 5
    assert found.quiet_us


@pytest.mark.world
def test_the_servers_of_a_host_share_the_topics(poller: Poller) -> None:
    two = kcast(HERE, "two", "--workers=2", server_count=2)
    with LoadedServer(two, Workload(20, 10, 5), CORES, poller, 0.0005, grace_s=GRACE_S) as server:
        found = server.trial(2000, 0.1)
    assert found.copies == found.due == 200 * 5


class Deaf(Session):
    """Takes all that it is given, and nothing arrives."""

    def send(self, until: int, due_us: object) -> None:
        self.position = until

    def settle(self) -> bool:
        return True


def test_what_does_not_come_is_lost_and_has_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "QUIET_S", 0.01)
    with ExitStack() as stack:
        poller = Poller()
        stack.callback(poller.close)
        session = Deaf(Ring(Workload(1, 1, 1), lambda topic, payload: topic + payload))
        found = trial.run([(session, Schedule(1000, 0.05), 3)], poller, [], Random(1), grace_s=0.01)
    assert (found.due, found.delivered, found.copies) == (150, 0, 0)
    assert found.share_delivered == 0
    assert found.server_us is found.load_us is None
    assert not session.broken


@pytest.mark.world
def test_a_client_row_without_nats_py_names_it_and_measures_the_others(
    poller: Poller,
) -> None:
    said: list[str] = []
    bench = Bench(Cores(0, CORES), poller, said.append, 1, 0.1, 0.1, 0.0005, 1000)
    bench.skipped[NATS_PY] = "it was left out"
    found = ClientRow("c", "A client", HERE, "k=1 publish=1 subscribe=1", 1).measure(bench)
    assert found.skipped == {NATS_PY: "it was left out"}
    confirmed = found.subjects[f"{PYTHON}, confirm"].loads["saturated"][0]
    assert confirmed["share"] == 1.0
    assert confirmed["unconfirmed"] == 0
    paced = found.subjects[f"{PYTHON}, no confirm"].loads["2000"][0]
    assert paced["share"] == 1.0
    assert paced["p50_us"]


@pytest.mark.world
def test_the_command_keeps_what_it_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_rows, "SEARCHES", 2)  # the second begins at what the first has found
    file, page = tmp_path / "found.json", tmp_path / "page.md"
    page.write_text("<!-- measured: single -->\n<!-- measured until here -->\n")
    main(["--only", "single", "--rounds", "1", "--seconds", "0.1", "--json", str(file), "--write", str(page)])
    run = Run.from_json(json.loads(file.read_text()))
    assert set(run.rows["single"].subjects) >= {PYTHON, "forwarder"}
    assert run.rows["single"].unit_per_s
    assert "| forwarder |" in page.read_text()
    assert "single: One message a datagram" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "nothing"], "there is no row nothing: --list names them"),
        (["--beside", "0" * 40], "is not in this clone"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], words: str) -> None:
    with pytest.raises(SystemExit, match=words):
        main(arguments)


@pytest.mark.parametrize("arguments", [["--write", "page.md"], ["--rounds", "0"], ["--seconds", "0"]])
def test_options_that_make_no_sense_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "error:" in capsys.readouterr().err


def test_figures_of_another_machine_are_not_mixed(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    file.write_text(json.dumps(Run({"processor": "another"}).to_json()))
    with pytest.raises(SystemExit, match="on another machine"):
        main(["--only", "single", "--json", str(file)])
