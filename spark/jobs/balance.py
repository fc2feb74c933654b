"""What each server did, and sums over topics from which the spread under random placement follows."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from kcast.loadtest.capture.schema import DUPLICATE, OPENED, STANDING
from kcast.loadtest.results.tables import Capture, columns
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, rows_of

RECEIVED = Kind(50, ("server",), ("lines",))
FORWARDED = Kind(51, ("server",), ("copies",))
MESSAGES = Kind(52, ("topic",), ("messages",))


def count(part: Part) -> Iterator[Counts]:
    """All kinds of a part."""
    rx, deliver, publish = (part.messages[name] for name in ("server_rx", "deliver", "publish"))
    yield rows_of(RECEIVED, [rx["server_id"][rx["msg_id"] >= 0]])
    # The extra copies are the network's doing, not the server's.
    is_copy = (deliver["injected"] != DUPLICATE) & (deliver["server_id"] >= 0)
    yield rows_of(FORWARDED, [deliver["server_id"][is_copy]])
    yield rows_of(MESSAGES, [publish["topic_id"][publish["msg_id"] >= 0]])


def servers(merged: Merged) -> Iterator[Row]:
    """A row for each server of which the capture tells anything.

    `received`: lines of messages taken in; `forwarded`: copies sent; `leases`: by topic and subscriber;
    `lived`: 1 if its tap has a life of it, else 0; `down_ns`: time down during the load, of `span_ns` that
    this lasted; None where no window tells how long.
    """
    side = merged.around.side
    received = {row["server"]: row["lines"] for row in merged.rows(RECEIVED)}
    forwarded = {row["server"]: row["copies"] for row in merged.rows(FORWARDED)}
    lived = set(columns(side, "server_life", "server_id")["server_id"].tolist())
    leases = _leases(side)
    window = columns(side, "window", "t_from_ns", "t_to_ns")
    span = None
    if len(window["t_from_ns"]):
        span = int(window["t_from_ns"].min()), int(window["t_to_ns"].max())
    down_ns = _down_ns(side, *span) if span else Counter()
    for server in sorted({*received, *forwarded, *leases, *lived, *down_ns}):
        yield {
            "cell": merged.around.cell,
            "server_id": server,
            "received": received.get(server, 0),
            "forwarded": forwarded.get(server, 0),
            "leases": leases[server],
            "lived": int(server in lived),
            "down_ns": down_ns[server],
            "span_ns": span[1] - span[0] if span else None,
        }


def _leases(side: Capture) -> Counter[int]:
    """The number of leases of each server, by topic and subscriber."""
    lease = columns(side, "lease", "server_id", "topic_id", "sub_id", "change")
    stands = np.isin(lease["change"], (OPENED, STANDING)) & (lease["sub_id"] >= 0) & (lease["topic_id"] >= 0)
    held = np.stack([lease[name][stands] for name in ("server_id", "topic_id", "sub_id")])
    return Counter(np.unique(held, axis=1)[0].tolist())


def _down_ns(side: Capture, begin_ns: int, end_ns: int) -> Counter[int]:
    """How long each server was down in a time. One that is halted takes in later what is sent to it
    meanwhile, and a mute one does at once: they were not down."""
    outage = columns(side, "outage", "server_id", "t_down_ns", "t_up_ns", "kind")
    ends: dict[tuple[int, int], int] = {}
    for server, down_ns, up_ns, kind in zip(*(outage[name].tolist() for name in outage), strict=True):
        if kind not in ("stall", "mute"):
            ends[server, down_ns] = max(up_ns, ends.get((server, down_ns), up_ns))
    total: Counter[int] = Counter()
    for (server, down_ns), up_ns in ends.items():
        total[server] += max(0, min(up_ns, end_ns) - max(down_ns, begin_ns))
    return total


def topics(merged: Merged) -> Iterator[Row]:
    """The number of `topics`, and sums over these of products of n (the messages of a topic) and s (its
    subscribers): `nns` is the sum of n n s, and so on."""
    intent = columns(merged.around.side, "intent", "topic_id", "sub_id")
    subscribed = np.unique(np.stack((intent["topic_id"], intent["sub_id"])), axis=1)[0]
    subscribers = Counter(subscribed.tolist())
    messages = {row["topic"]: row["messages"] for row in merged.rows(MESSAGES)}
    every = [(messages.get(topic, 0), subscribers[topic]) for topic in {*messages, *subscribers}]
    if every:
        yield {
            "cell": merged.around.cell,
            "topics": len(every),
            "n": sum(n for n, _ in every),
            "s": sum(s for _, s in every),
            "nn": sum(n * n for n, _ in every),
            "ss": sum(s * s for _, s in every),
            "ns": sum(n * s for n, s in every),
            "nns": sum(n * n * s for n, s in every),
            "nss": sum(n * s * s for n, s in every),
            "nnss": sum(n * n * s * s for n, s in every),
        }


JOB = Job("balance", (RECEIVED, FORWARDED, MESSAGES), count, {"servers": servers, "topics": topics})
