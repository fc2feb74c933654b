"""A load test in one locust process, from beginning to end: what it reports, and what it captures.

Longer ones are in tests/processes/test_locust.py.
"""

from pathlib import Path

import pytest

from kcast.loadtest.scenario import Scenario
from kcast.loadtest.users.schedule import Schedule
from tests.support.cluster_of_processes import ClusterOfProcesses
from tests.support.locust_runs import Locust, captured, fitting, pairs

pytestmark = pytest.mark.load

SCENARIO = Scenario(
    name="tiny",
    seed=4,
    scheme="CH",
    k=2,
    publishers=2,
    subscribers=4,
    mixed=1,
    topics=6,
    topics_per_subscriber=3,
    rate=40.0,
    duration_s=1.0,
    deadline_s=1.0,
    loss_out=0.5,
)


def test_a_scenario_ends_by_itself_and_captures_what_it_tells(tmp_path: Path) -> None:
    with ClusterOfProcesses(tmp_path, 2) as servers:
        scenario, cluster = fitting(SCENARIO, servers.cluster)
        with Locust(tmp_path, cluster) as locust:
            locust.start_fixed(scenario, "--capture", str(tmp_path / "capture"))
            told = locust.follow()
            assert locust.end() == 0, locust.log
    assert told["phase"] == "done"
    phases = [each["phase"] for each in locust.progress]
    assert sorted(set(phases), key=phases.index)[-4:] == ["waiting", "running", "settling", "done"]
    assert all(each["users"] == each["ready"] == 7 for each in locust.progress if each["phase"] == "running")

    capture = captured(tmp_path / "capture")
    assert capture.status == "complete"
    found = pairs(capture)
    schedule = Schedule(scenario)
    published = {row["msg_id"]: row for row in capture.read("publish").to_pylist()}
    assert len(published) == sum(schedule.count(pub_id, 0, 10**9) for pub_id in range(3))
    assert len(published) == told["published"] == sum(capture.read("window")["scheduled"].to_pylist())
    # Half of all copies are lost: a quarter of the pairs, where both are.
    assert told["delivered"] == len(found.delivered)
    assert told["missed"] == len(found.expected) - len(found.delivered)
    assert 0.6 < len(found.delivered) / len(found.expected) < 0.9
    assert all(row["digest"] for row in published.values())
    members = {row["client_id"]: (row["pub_id"], row["sub_id"]) for row in capture.read("member").to_pylist()}
    assert members == {0: (0, -1), 1: (1, -1), 2: (-1, 0), 3: (-1, 1), 4: (-1, 2), 5: (-1, 3), 6: (2, 4)}
