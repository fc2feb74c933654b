"""loadtest/users/worker.py: in a process of its own, with gevent's patches as under locust."""

import subprocess
import sys

import pytest

HEAD = r"""
from gevent import monkey

monkey.patch_all()
import gevent
from types import SimpleNamespace
from time import monotonic_ns

from kcast.client.cluster import format_cluster, lab
from kcast.loadtest.scenario import Scenario
from kcast.loadtest.users import clocks, messages
from kcast.loadtest.users.worker import Crew
from kcast.loadtest.users.assignment import Order
from kcast.loadtest.users.roster import OPEN, Place

SCENARIO = Scenario(
    servers=3, scheme="S", backend="file", outages="exact", down=1, epoch_s=1.0, duration_s=60.0,
    topics=2, topics_per_subscriber=2, rate=200.0, deadline_s=0.2,
)
CLUSTER = lab([("127.0.0.1", 9), ("127.0.0.1", 19), ("127.0.0.1", 29)])


def order(clock, t0_ns):
    return Order(1, SCENARIO, format_cluster(CLUSTER), False, "", clock, t0_ns)
"""

# A worker elsewhere, in a test in which users come and go; its clock is `SHIFT_S` ahead of the leader's.
OTHER_CLOCK = r"""
def leader_ns():
    return monotonic_ns() - SHIFT_S * 10**9


def send(word, data):
    if word == messages.PING:
        gevent.spawn(answer, data["sent_ns"])
    elif word == messages.CLAIM:
        crew.hear(messages.PLACE, {"test": 1, "token": data["token"], "place": list(Place(0, -1, 0))})


def answer(sent_ns):
    crew.hear(messages.PONG, {"test": 1, "sent_ns": sent_ns, "there_ns": leader_ns()})


missed = []
t0_ns = leader_ns() - 3 * 10**9
crew = Crew(order("of another machine", t0_ns), "worker-0", send, missed.append)
crew.hear(messages.WINDOWS, {"test": 1, "windows": [[0, 0, OPEN]]})
with gevent.Timeout(10):
    seat = crew.join("Subscriber")
    crew.ready(seat)
    while not missed:
        gevent.sleep(0.05)
now_ns = crew.now_ns()
assert 3e9 < now_ns < 13e9, now_ns
due = crew.schedule.messages(0, now_ns, now_ns + 10**9)
assert [crew.board.intended_ns(int(seq)) for seq in due.seq] == due.t_ns.tolist()
assert len(crew.board._intended) < 200 * 30
from kcast.loadtest.faults.plan import outages

for outage in outages(SCENARIO):
    middle_ns = crew.clock_ns((outage.from_ns + outage.to_ns) // 2)
    assert seat.contact._path._legs._down.down_at(middle_ns) == {outage.server}
crew.leave(seat, crew.now_ns())
crew.end()
"""

# One client is closed while the second's figures of all are looked at.
COUNTED_ONCE = r"""
from kcast.loadtest.users.process_stats import Vitals


def contact(client_id):
    client = SimpleNamespace(
        counts={"copies_received": 10, "deliveries": 5}, drops={"slow-consumer": 0}, kernel_drops=1,
        send_errors=SimpleNamespace(total=lambda: 0),
    )
    return SimpleNamespace(client=client, place=Place(client_id, -1, client_id), is_leaving=False)


contacts = [contact(number) for number in range(3)]
vitals = Vitals("local", lambda: contacts, None, lambda: 0)
noting = gevent.spawn(vitals.note)
gevent.sleep(0)  # it has looked at the first one
last = contacts.pop()
vitals.look_at(last, is_last=True)
noting.join()
assert (vitals.counts["copies"], vitals.counts["overflows"]) == (30, 3), vitals.counts
"""

# A publisher's number is another's at once, in a process that has not heard that the first one is gone.
NUMBER_AGAIN = r"""
from locust.stats import RequestStats
from kcast.loadtest.users.coordinator import Leader

said = []
leader = Leader(
    order(clocks.clock_id(), monotonic_ns() - 100 * 10**9), RequestStats(),
    send=lambda word, data, node: said.append((word, data, node)), present=lambda: {"here"},
    figures_here=lambda: None, end_locust=print, leash=None,
)


def hear(word, **data):
    leader.hear(word, {"test": 1, **data}, "here")


def windows():
    return [window for word, data, _ in said if word == messages.WINDOWS for window in data["windows"]]


hear(messages.CLAIM, kind="Publisher", token=1)
hear(messages.READY, client_id=0)
leader._tell_windows()
(window,) = windows()
assert window[2] == OPEN
said.clear()
hear(messages.LEFT, client_id=0, t_ns=window[1] + 5)
hear(messages.CLAIM, kind="Publisher", token=2)
assert [word for word, _, _ in said] == [messages.WINDOWS, messages.PLACE], said
assert windows() == [[0, window[1], window[1] + 5]]
leader.end()
"""

# Users are told to end, and the last of them is not heard of any more.
ENDED = r"""
from locust.stats import RequestStats
from kcast.loadtest.users.coordinator import Leader

leader = Leader(
    order(clocks.clock_id(), monotonic_ns() - 100 * 10**9), RequestStats(),
    send=lambda word, data, node: None, present=lambda: {"here"},
    figures_here=lambda: None, end_locust=print, leash=None,
)
for number in range(2):
    leader.hear(messages.CLAIM, {"test": 1, "kind": "Publisher", "token": number}, "here")
    leader.hear(messages.READY, {"test": 1, "client_id": number}, "here")
gevent.sleep(0.4)
leader.stop()
stopped_ns = leader.now_ns
leader.hear(messages.LEFT, {"test": 1, "client_id": 0, "t_ns": stopped_ns + 10**8}, "here")
gevent.sleep(0.2)
assert not leader.has_heard_all
leader.end()
ends = {window.pub_id: window.to_ns for window in leader.roster.windows}
assert ends[0] == stopped_ns + 10**8
assert 0 <= stopped_ns - ends[1] < 10**8, ends
"""


def run(program: str) -> None:
    subprocess.run((sys.executable, "-c", HEAD + program), check=True, timeout=60)


@pytest.mark.parametrize("shift_s", [-1000, 1000])
def test_a_worker_elsewhere_takes_part_by_the_leaders_clock(shift_s: int) -> None:
    run(f"SHIFT_S = {shift_s}\n{OTHER_CLOCK}")


def test_a_client_that_is_closed_meanwhile_is_counted_once() -> None:
    run(COUNTED_ONCE)


def test_who_gets_a_number_knows_that_the_one_before_is_gone() -> None:
    run(NUMBER_AGAIN)


def test_windows_end_when_users_are_told_to() -> None:
    run(ENDED)
