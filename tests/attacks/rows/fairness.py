"""One party that costs much, and what the others get: dead neighbours, many ports, a narrow uplink."""

import subprocess
import sys
import time
from collections.abc import Iterator

from kcast.pubsub.endpoint import format_address
from tests.attacks.figures import Figure, at_least, at_most, median, told
from tests.attacks.lab import Enter, Lab, Served, Skipped, unentered
from tests.attacks.ports import TOPIC
from tests.attacks.row import Row
from tests.support import dead_neighbours
from tests.support.namespaces import Namespace, why_not

PORTS = 20_000
SUBSCRIBERS = 12_000
PORTS_PER_PROCESS = 4_000
PORT_COPIES_PER_S_MIN = 50_000
UPLINK_BITS_PER_S = 100_000_000
UPLINK_SHARE_MIN = 50  # percent of it that is in use while it is attacked


def need_namespaces() -> None:
    """Raises Skipped where no network namespaces can be made."""
    if reason := why_not():
        raise Skipped(reason)


def _dead_neighbours(lab: Lab, version: int) -> Iterator[Figure]:
    need_namespaces()
    outcome = dead_neighbours.measure(
        version,
        measured_s=10.0 if lab.is_full else 4.0,
        program=lab.tree.serve(),
        environment=lab.tree.environment,
        folder=lab.tree.folder,
    )
    yield at_least("living", 100 * outcome.share, 99.9, "%")
    yield told("receipts", outcome.receipts)


def dead_neighbours_v4(lab: Lab) -> Iterator[Figure]:
    """100 subscribers, each with an IPv4 address, vanish from the server's link."""
    return _dead_neighbours(lab, 4)


def dead_neighbours_v6(lab: Lab) -> Iterator[Figure]:
    """One IPv6 host with 100 addresses vanishes from the server's link."""
    return _dead_neighbours(lab, 6)


def _ports(
    lab: Lab,
    server: Served,
    source: str,
    count: int,
    enter: Enter,
    **more: float,
) -> list["subprocess.Popen[bytes]"]:
    """Starts processes that hold leases of so many ports; the first of them publishes later."""
    processes = []
    for start in range(0, count, PORTS_PER_PROCESS):
        options = [f"--{name}={value}" for name, value in more.items()] if not start else []
        ports = min(PORTS_PER_PROCESS, count - start)
        processes.append(
            lab.start(
                sys.executable,
                "-m",
                "tests.attacks.ports",
                format_address(server.address),
                f"--source={source}",
                f"--ports={ports}",
                *options,
                stdin=subprocess.PIPE,
                enter=enter,
            )
        )
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError("the attacker got no leases")
    return processes


def _begin(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def many_ports(lab: Lab) -> Iterator[Figure]:
    """One IP has leases of 20,000 ports, and publishes 20 tiny messages a second to all of them."""
    times, seconds = (5, 4.0) if lab.is_full else (7, 1.0)
    server = lab.serve("--leases-per-prefix", str(PORTS + 10))
    attackers = _ports(lab, server, "127.9.9.9", PORTS, unentered, rate=20, seconds=seconds)
    yield at_least("leases", server.metrics()["kcast_leases"], PORTS)
    before = server.metrics()["kcast_copies_total"]
    honest = lab.honest(server.address, times * (2 * seconds + 0.5) + 1, rate=200)
    time.sleep(0.5)
    starts = []
    for _ in range(times):
        time.sleep(seconds)
        starts.append(time.monotonic())
        _begin(attackers[0])
        time.sleep(seconds + 0.5)
    result = honest.result()
    copies = (server.metrics()["kcast_copies_total"] - before - len(result.sent)) / (times * seconds)
    yield at_least("copies that the attacker caused", copies, PORT_COPIES_PER_S_MIN, "/s")
    quiet = [result.within(at - seconds, at).p50_ms for at in starts]
    attacked = [result.within(at, at + seconds).p50_ms for at in starts]
    yield told("p50 in quiet", median(quiet), "ms")
    yield told("p50 under attack", median(attacked), "ms")
    ratios = [under / without for under, without in zip(attacked, quiet, strict=True)]
    yield at_most(f"p50 against quiet, median of {times}", median(ratios), 2, "times")
    delivered = [result.within(at, at + seconds).delivered_percent for at in starts]
    yield at_least("delivered", min(delivered), 99.9, "%")


def many_subscribers(lab: Lab) -> Iterator[Figure]:
    """One IP takes 12,000 leases on a topic of others, and does nothing else."""
    seconds = 15.0 if lab.is_full else 6.0
    server = lab.serve("--leases-per-prefix", str(PORTS), "--ttl", "120")
    _ports(lab, server, "127.9.9.9", SUBSCRIBERS, unentered)
    leases = server.metrics()["kcast_leases"]
    yield at_least("leases", leases, SUBSCRIBERS)
    sent = [server.metrics()["kcast_copies_total"], *_unsent(server)]
    result = lab.honest(server.address, seconds, rate=100, topic=TOPIC.decode()).result()
    copies = sum([server.metrics()["kcast_copies_total"], *_unsent(server)]) - sum(sent)
    yield at_least("copies that they would get", copies / seconds, 50 * SUBSCRIBERS, "/s")
    yield at_least("delivered", result.delivered_percent, 99.9, "%")
    yield told("p50", result.p50_ms, "ms")


def _unsent(server: Served) -> list[float]:
    return [server.dropped(reason) for reason in ("credit", "crowd", "egress-rate")]


def uplink(lab: Lab) -> Iterator[Figure]:
    """60 messages of 1200 bytes a second go to 4,000 leases of one party, by 100 Mbit/s with 1 s of queue."""
    need_namespaces()
    seconds = 15.0 if lab.is_full else 6.0
    enter = lab.stack.enter_context
    serving, router, clients = (enter(Namespace()) for _ in range(3))
    serving.link("up", router, "down")
    router.link("out", clients, "in")
    serving.add("up", "10.8.0.1/24")
    router.add("down", "10.8.0.254/24")
    router.add("out", "10.8.3.254/24", "10.8.2.254/24")
    clients.add("in", "10.8.3.1/24", "10.8.2.1/24")
    router.set("net/ipv4/ip_forward", 1)
    serving.run("ip", "route", "add", "default", "via", "10.8.0.254")
    clients.run("ip", "route", "add", "default", "via", "10.8.3.254")
    try:
        # A burst as long as the longest run of segments, which is cut only where a limit is lower than it.
        shape = f"tc qdisc add dev out root tbf rate {UPLINK_BITS_PER_S} burst 128kb latency 1s"
        router.run(*shape.split())
    except AssertionError as error:
        raise Skipped(f"this kernel has no token bucket filter: {error}") from None
    options = ["--ttl", "60"]
    if lab.tree.has_option("--uplink"):
        options += ["--uplink", "95M"]
    server = lab.serve(*options, host="10.8.0.1", enter=serving.call, has_metrics=False)
    attackers = _ports(lab, server, "10.8.2.1", 4_000, clients.call, rate=60, bytes=1200, seconds=seconds + 2)
    honest = lab.honest(server.address, seconds + 1.5, rate=100, enter=clients.call)
    _begin(attackers[0])
    began = time.monotonic()
    time.sleep(1)
    sent_bytes, at = _sent_bytes(router, "out"), time.monotonic()
    time.sleep(seconds - 2)
    sent_bytes, at = _sent_bytes(router, "out") - sent_bytes, time.monotonic() - at
    yield at_least("of the link in use", 100 * 8 * sent_bytes / at / UPLINK_BITS_PER_S, UPLINK_SHARE_MIN, "%")
    result = honest.result().within(began + 1, began + seconds)
    yield at_least("delivered", result.delivered_percent, 95, "%")
    yield told("p50", result.p50_ms, "ms")


def _sent_bytes(namespace: Namespace, device: str) -> int:
    """Returns what a device has sent so far; see proc_net(5)."""
    for line in namespace.run("cat", "/proc/net/dev").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == device:
            return int(numbers.split()[8])
    raise ValueError(device)


ROWS = (
    Row("dead-neighbours-v4", "99.9 %", dead_neighbours_v4, in_short=False),
    Row("dead-neighbours-v6", "99.9 %", dead_neighbours_v6),
    Row("many-ports", "p50 at most doubled; 99.9 %", many_ports),
    Row("many-subscribers", "99.9 %", many_subscribers, in_short=False),
    Row("uplink", "95 %", uplink),
)
