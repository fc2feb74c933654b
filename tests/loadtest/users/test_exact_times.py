"""loadtest/users/exact_times.py: in a process of its own, since locust patches the one that imports it."""

import subprocess
import sys

PROGRAM = r"""
import csv, io, json, math, random
from types import SimpleNamespace
from kcast.loadtest.users import exact_times
from locust import stats
from locust.env import Environment

# To three figures, from the smallest to the largest, and the same in every process.
rng = random.Random(5)
for _ in range(2_000):
    ms = 10 ** rng.uniform(-4, 6)
    kept = exact_times.bucket(ms)
    assert abs(kept - ms) <= ms * 0.005001, (ms, kept)
    assert kept == float(f"{ms:.2e}") or abs(kept - ms) <= ms * 0.0050001, (ms, kept)
assert exact_times.bucket(0) == 0 and exact_times.bucket(-0.01234) == -0.0123
assert len({exact_times.bucket(10 ** rng.uniform(-2, 3)) for _ in range(20_000)}) <= 900 * 5 + 1

before = stats.StatsEntry(stats.RequestStats(), "message", "DELIVER")
before.log(0.25, 1)
assert list(before.response_times) == [0]  # what locust does by itself, and the reason for all this

exact_times.apply()
exact_times.apply()

# Two workers count, as they do in their own processes; their master adds up what they send.
master = Environment(user_classes=[])
master.runner = SimpleNamespace(user_count=0, exceptions={}, stats=master.stats)
stats.setup_distributed_stats_event_listeners(master.events, master.stats)
times = [rng.uniform(0.05, 0.95) for _ in range(4000)]
for part in (times[::2], times[1::2]):
    worker = Environment(user_classes=[])
    stats.setup_distributed_stats_event_listeners(worker.events, worker.stats)
    for ms in part:
        worker.stats.log_request("DELIVER", "message", ms, 100)
    worker.stats.log_request("MISS", "message", None, 0)
    data = {}
    worker.events.report_to_master.fire(client_id="w", data=data)
    master.events.worker_report.fire(client_id="w", data=json.loads(json.dumps(data), object_hook=lambda d: {
        (float(k) if k.replace(".", "", 1).isdigit() else k): v for k, v in d.items()}))
times.sort()
median, p99 = times[2000], times[3960]
entry = master.stats.get("message", "DELIVER")

def near(value, true):
    assert abs(float(value) - true) < 0.01 * true + 0.001, (value, true)

near(entry.median_response_time, median)
near(entry.get_response_time_percentile(0.99), p99)

# The console.
row = entry.to_string(current=False).split("|")
near(row[1].split()[1], times[0]); near(row[1].split()[2], times[-1]); near(row[1].split()[3], median)
columns = entry.percentile().split()
near(columns[2], median); near(columns[2 + stats.PERCENTILES_TO_REPORT.index(0.99)], p99)
def bars(line):
    return [at for at, char in enumerate(line) if char == "|"]

head, _, *rows = stats.get_stats_summary(master.stats, False)
assert {tuple(bars(row)) for row in rows if set(row) != set("-|")} == {tuple(bars(head))}
head, _, *rows = stats.get_percentile_stats_summary(master.stats)[1:]
assert {len(row) for row in rows if set(row) != set("-|")} <= {len(head), len(head) + 2}

# CSV.
out = io.StringIO()
stats.StatsCSV(master, stats.PERCENTILES_TO_REPORT).requests_csv(csv.writer(out))
rows = {row["Type"]: row for row in csv.DictReader(io.StringIO(out.getvalue()))}
near(rows["DELIVER"]["50%"], median); near(rows["DELIVER"]["99%"], p99)
near(rows["DELIVER"]["Median Response Time"], median); near(rows["DELIVER"]["Min Response Time"], times[0])

# The web UI and the HTML report.
told = entry.to_dict()
near(told["median_response_time"], median); near(told["response_time_percentile_0.99"], p99)
near(told["min_response_time"], times[0]); near(told["max_response_time"], times[-1])
assert master.stats.get("message", "MISS").to_dict()["min_response_time"] == 0

shown = [exact_times.readable(ms) for ms in (0, 0.1234, 9.876, 12.344, 123.44, 12345.6, -0.5)]
assert shown == ["0.000", "0.123", "9.876", "12.34", "123.4", "12346", "-0.500"], shown
print("well")
"""


def test_times_below_a_millisecond_are_right_wherever_locust_shows_them() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.stdout == "well\n", done.stderr
