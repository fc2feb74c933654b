"""loadtest/users/worker.py: in a process of its own, with gevent's patches as under locust."""

import subprocess
import sys

HEAD = r"""
from gevent import monkey

monkey.patch_all()
import gevent
from types import SimpleNamespace
from time import monotonic_ns

from kcast.client.cluster import format_cluster, lab
from kcast.loadtest.scenario import Scenario
from kcast.loadtest.users import clocks, messages
from kcast.loadtest.users.worker import Worker
from kcast.loadtest.users.assignment import Assignment
from kcast.loadtest.users.roster import OPEN, UserIds

SCENARIO = Scenario(
    servers=3, scheme="S", backend="file", outages="exact", down=1, epoch_s=1.0, duration_s=60.0,
    topics=2, topics_per_subscriber=2, rate=200.0, deadline_s=0.2,
)
CLUSTER = lab([("127.0.0.1", 9), ("127.0.0.1", 19), ("127.0.0.1", 29)])


def assignment(clock, t0_ns):
    return Assignment(1, SCENARIO, format_cluster(CLUSTER), False, "", clock, t0_ns)
"""

# A worker elsewhere, in a test in which users come and go; its clock is `SHIFT_S` ahead of the coordinator's.
OTHER_CLOCK = r"""
def coordinator_clock_ns():
    return monotonic_ns() - SHIFT_S * 10**9


def send(kind, data):
    if kind == messages.PING:
        gevent.spawn(answer, data["sent_ns"])
    elif kind == messages.CLAIM:
        worker.receive(messages.IDS, {"test": 1, "token": data["token"], "ids": list(UserIds(0, -1, 0))})


def answer(sent_ns):
    worker.receive(messages.PONG, {"test": 1, "sent_ns": sent_ns, "coordinator_ns": coordinator_clock_ns()})


missed = []
t0_ns = coordinator_clock_ns() - 3 * 10**9
worker = Worker(assignment("of another machine", t0_ns), "worker-0", send, missed.append)
worker.receive(messages.WINDOWS, {"test": 1, "windows": [[0, 0, OPEN]]})
with gevent.Timeout(10):
    user = worker.join("Subscriber")
    worker.ready(user)
    while not missed:
        gevent.sleep(0.05)
now_ns = worker.now_ns()
assert 3e9 < now_ns < 13e9, now_ns
due = worker.schedule.messages(0, now_ns, now_ns + 10**9)
assert [worker.expectations.intended_ns(int(seq)) for seq in due.seq] == due.t_ns.tolist()
assert len(worker.expectations._intended) < 200 * 30
from kcast.loadtest.faults.plan import outages

for outage in outages(SCENARIO):
    middle_ns = worker.clock_ns((outage.from_ns + outage.to_ns) // 2)
    assert user._path._legs._down.down_at(middle_ns) == {outage.server}
worker.leave(user, worker.now_ns())
worker.end()
"""

# Two clients are closed while all are being sampled: one while its figures are read, one before that.
COUNTED_ONCE = r"""
from kcast.loadtest.users.process_stats import ProcessStats


class Client:
    drops, kernel_drops, send_errors = {"slow-consumer": 0}, 1, SimpleNamespace(total=lambda: 0)

    @property
    def counts(self):
        gevent.sleep(0)  # as for the lock of a real one
        return {"copies_received": 10, "deliveries": 5}


users = [SimpleNamespace(client=Client(), ids=UserIds(n, -1, n), is_gone=False) for n in range(3)]
stats = ProcessStats("local", lambda: users, None, lambda: 0)
sampling = gevent.spawn(stats.sample)
gevent.sleep(0)  # it is reading the first one
for user in (users.pop(0), users.pop()):
    user.is_gone = True
    stats.sample_user(user, is_last=True)
sampling.join()
assert (stats.counts["copies"], stats.counts["overflows"]) == (30, 3), stats.counts
"""

# A fixed test is about to begin.
COUNTED_BEFORE = r"""
t0_ns = monotonic_ns() + 10**9
fixed = Assignment(1, SCENARIO, format_cluster(CLUSTER), True, "", clocks.clock_id(), 0)
worker = Worker(fixed, "local", lambda kind, data: None, print)
sampled_ns = []
worker.stats.sample_users = lambda: sampled_ns.append(worker.now_ns())
gevent.sleep(0)
worker.receive(messages.BEGIN, {"test": 1, "t0_ns": t0_ns})
gevent.sleep(0.95)
worker.end()
first_ns, last_ns, *_ = sampled_ns  # a busy machine samples once more
assert last_ns - first_ns >= 5 * 10**8 and last_ns < 0, sampled_ns
"""

# A publisher's number is reused at once, in a process that does not know yet that the first one has left.
NUMBER_AGAIN = r"""
from locust.stats import RequestStats
from kcast.loadtest.users.coordinator import Coordinator

sent = []
coordinator = Coordinator(
    assignment(clocks.clock_id(), monotonic_ns() - 100 * 10**9), RequestStats(),
    send=lambda kind, data, node: sent.append((kind, data, node)), present=lambda: {"here"},
    local_figures=lambda: None, end_locust=print, progress_pipe=None,
)


def receive(message, /, **data):
    coordinator.receive(message, {"test": 1, **data}, "here")


def windows():
    return [window for kind, data, _ in sent if kind == messages.WINDOWS for window in data["windows"]]


receive(messages.CLAIM, kind="Publisher", token=1)
receive(messages.READY, client_id=0)
coordinator._send_windows()
(window,) = windows()
assert window[2] == OPEN
sent.clear()
receive(messages.LEFT, client_id=0, t_ns=window[1] + 5)
receive(messages.CLAIM, kind="Publisher", token=2)
assert [kind for kind, _, _ in sent] == [messages.WINDOWS, messages.IDS], sent
assert windows() == [[0, window[1], window[1] + 5]]
coordinator.end()
"""

# Users are stopped, and the last of them never reports that it left.
ENDED = r"""
from locust.stats import RequestStats
from kcast.loadtest.users.coordinator import Coordinator

coordinator = Coordinator(
    assignment(clocks.clock_id(), monotonic_ns() - 100 * 10**9), RequestStats(),
    send=lambda kind, data, node: None, present=lambda: {"here"},
    local_figures=lambda: None, end_locust=print, progress_pipe=None,
)
for number in range(2):
    coordinator.receive(messages.CLAIM, {"test": 1, "kind": "Publisher", "token": number}, "here")
    coordinator.receive(messages.READY, {"test": 1, "client_id": number}, "here")
gevent.sleep(0.4)
coordinator.stop()
stopped_ns = coordinator.now_ns
coordinator.receive(messages.LEFT, {"test": 1, "client_id": 0, "t_ns": stopped_ns + 10**8}, "here")
gevent.sleep(0.2)
assert not coordinator.is_complete
coordinator.end()
ends = {window.pub_id: window.to_ns for window in coordinator.roster.windows}
assert ends[0] == stopped_ns + 10**8
assert 0 <= stopped_ns - ends[1] < 10**8, ends
"""


PROGRAMS = {
    "a worker elsewhere takes part by the coordinator's clock": f"SHIFT_S = 1000{OTHER_CLOCK}",
    "... which may be ahead, too": f"SHIFT_S = -1000{OTHER_CLOCK}",
    "clients that are closed meanwhile are counted once": COUNTED_ONCE,
    "clients are sampled twice before the load": COUNTED_BEFORE,
    "a user with a reused number knows that its predecessor has left": NUMBER_AGAIN,
    "windows end when users are stopped": ENDED,
}
RUN = """
for name, program in {programs!r}.items():
    print(name, flush=True)
    exec(program, dict(globals()))
"""


def test_workers_and_their_coordinator() -> None:
    """In one process, which takes seconds to import it all; it has told what it does when it fails."""
    subprocess.run((sys.executable, "-c", HEAD + RUN.format(programs=PROGRAMS)), check=True, timeout=120)
