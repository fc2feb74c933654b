"""Serves one server's metrics to Prometheus over HTTP, in its own threads. Imported for `--metrics` only.

A scrape reads the counters of the core and of the sockets; the server does nothing for it. Counters are
copied in single steps of the interpreter, so no lock is needed, and a scrape holds up the server only for the
millisecond in which it runs. No label has values that clients choose, such as topics or addresses.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from threading import Thread
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import MetricsHandler
from prometheus_client.registry import Collector

from kcast.pubsub.drops import HARMLESS, Drop
from kcast.pubsub.endpoint import Address
from kcast.pubsub.head_file import HeadFile
from kcast.pubsub.http import BoundedHttpServer
from kcast.pubsub.log import Losses
from kcast.pubsub.server import Server
from kcast.pubsub.udp import UdpPort

if TYPE_CHECKING:
    from kcast.pubsub.tap_parts import FairTap

REQUEST_TIMEOUT_S = 10.0
# At a time; one more ends an older one. So stuck scrapers do not use up threads or keep others out. Answering
# takes a millisecond, so those that can be answered are.
REQUESTS_MAX = 8

_NEVER_S = 3600.0  # how often the accepting thread wakes up to see whether it should stop: it never should

_REFUSALS = ("topic", "full", "address", "prefix", "topics", "work", "drain", "rate", "size")  # PROTOCOL §5.8

# Name, name in `Server.counts`, help.
_COUNTS = (
    ("received_datagrams", "datagrams_received", "Datagrams received."),
    ("received_bytes", "bytes_received", "Bytes of UDP payload received."),
    ("messages", "messages_received", "Published lines that were admitted."),
    ("copies", "copies_sent", "Copies of messages handed to the network."),
    ("leases_opened", "leases_opened", "Leases opened."),
    ("leases_renewed", "leases_renewed", "Leases renewed."),
    ("leases_expired", "leases_expired", "Leases that were not renewed in time."),
    ("leases_evicted", "leases_evicted", "Leases pushed out of a full table."),
    ("cookies_issued", "cookies_issued", "Cookies sent to addresses that had shown no good one."),
    ("answers", "answers_sent", "Answers sent, of all kinds."),
    # In this order: the core adds to what was received first, so what was sent is never ahead in a scrape.
    ("unproven_sent_bytes", "unproven_bytes_sent", "Bytes of answers to unproven addresses."),
    (
        "unproven_received_bytes",
        "unproven_bytes_received",
        "Bytes of the requests that those answers were to.",
    ),
)


class ServerCollector(Collector):
    """Reads one server's counters and gauges at each scrape."""

    def __init__(
        self,
        server: Server,
        ports: Sequence[UdpPort],
        tap: "FairTap | None" = None,
        head_file: HeadFile | None = None,
    ) -> None:
        self._server = server
        self._ports = ports
        self._tap = tap
        self._head_file = head_file

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics. Any thread may call it."""
        server, losses = self._server, Losses.of(self._server, self._ports)
        counts = dict(server.counts)
        for name, key, text in _COUNTS:
            yield CounterMetricFamily(f"kcast_{name}", text, counts.get(key, 0))
        yield GaugeMetricFamily("kcast_leases", "Leases in the table.", len(server.leases))
        yield GaugeMetricFamily(
            "kcast_topics", "Topics that have a lease on them.", server.leases.topic_count
        )
        yield GaugeMetricFamily(
            "kcast_publish_leases", "Addresses that may publish bare lines.", len(server.publish_leases)
        )
        for name, value in asdict(server.limits).items():
            name = name.replace("_per_s", "_per_second")
            yield GaugeMetricFamily(f"kcast_{name}_limit", "What the server allows; 0 is no limit.", value)
        text = "Requests refused, in whole or in part, by reason."
        yield _by_label("kcast_refusals", text, "reason", losses.refusals, _REFUSALS)
        harmless = ", ".join(HARMLESS)
        text = f"Datagrams or lines that had no effect, by reason; these lose nothing: {harmless}."
        yield _by_label("kcast_drops", text, "reason", losses.drops, tuple(Drop))
        yield _by_label(
            "kcast_send_errors", "Datagrams that were not sent, by error.", "errno", losses.send_errors
        )
        yield _by_label(
            "kcast_receive_errors", "Failed receive calls, by error.", "errno", losses.receive_errors
        )
        yield CounterMetricFamily(
            "kcast_receive_overflows",
            "Times that the kernel dropped what arrived because the receive buffer was full.",
            losses.overflows,
        )
        yield GaugeMetricFamily(
            "kcast_receive_buffer_bytes",
            "Size of the smallest receive buffer.",
            min(port.receive_buffer_bytes for port in self._ports),
        )
        yield GaugeMetricFamily("kcast_ttl_seconds", "How long a lease lives at most.", server.ttl_s)
        yield GaugeMetricFamily("kcast_work_bits", "Least price of a new lease.", server.work_bits)
        yield GaugeMetricFamily("kcast_draining", "1 while the server is about to end.", server.is_draining)
        if self._tap is not None:
            yield CounterMetricFamily(
                "kcast_tap_records_dropped", "Records that are missing from --tap.", self._tap.records_dropped
            )
        if self._head_file is not None:
            yield CounterMetricFamily(
                "kcast_head_failed_looks",
                "Looks at the file of --head that found no head.",
                self._head_file.failed_looks,
            )
        build = GaugeMetricFamily("kcast_build_info", "1; its label tells the version.", labels=("version",))
        build.add_metric((version("kcast"),), 1)
        yield build


def _by_label(
    name: str, text: str, label: str, counts: Mapping[str, int], always: Sequence[str] = ()
) -> CounterMetricFamily:
    """Returns a counter with one label. Values in `always` are there from the beginning, as 0."""
    family = CounterMetricFamily(name, text, labels=(label,))
    for value in sorted({*counts, *always}):
        family.add_metric((value,), counts.get(value, 0))
    return family


# --- Over HTTP ---------------------------------------------------------------------------------------


class _Handler(MetricsHandler):
    timeout = REQUEST_TIMEOUT_S  # for every read and write


def serve_metrics(collector: Collector, address: Address) -> Address:
    """Serves the metrics, and those of the process, until the process ends. Returns the bound address.

    Raises ListenError if the address cannot be served on.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    server = BoundedHttpServer(
        address, _Handler.factory(registry), connections_max=REQUESTS_MAX, option="--metrics"
    )
    Thread(target=server.serve_forever, args=(_NEVER_S,), name="metrics", daemon=True).start()
    return server.address
