"""Runs one server as a process: puts core, sockets, log, metrics and tap together."""

import gc
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from kcast.pubsub.cookie import SECRET_BYTES
from kcast.pubsub.driver import Ending, require_files, run
from kcast.pubsub.endpoint import Address, Tap, format_address
from kcast.pubsub.flood import FloodGuard
from kcast.pubsub.head_file import HeadFile
from kcast.pubsub.kernel import warn_of_kernel
from kcast.pubsub.limits import (
    DRAIN_MARGIN_S,
    RENEWAL_INTERVAL_S_MAX,
    RENEWALS_PER_TTL,
    VERSION_CHARS_MAX,
    Limits,
)
from kcast.pubsub.listen import ListenError, is_local, is_one_of_several, is_wildcard, own_addresses
from kcast.pubsub.log import REPORT_INTERVAL_S, Log, Losses, Report, listed, steps, without_steps
from kcast.pubsub.native import BEST, DESCRIPTION
from kcast.pubsub.networks import Networks
from kcast.pubsub.router import PYTHON, Router
from kcast.pubsub.server import Server
from kcast.pubsub.sockets import uses_linux
from kcast.pubsub.udp import UdpPort

if TYPE_CHECKING:
    from kcast.pubsub.tap_parts import FairTap

EXIT_FAILURE = 1
COLLECTION_THRESHOLDS = 10_000, 5, 1_000_000  # new objects, and collections of the younger generations


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The settings of one server. `open_to` is "" (nobody), "local" or "anyone".

    With `head_file`, `head` is what that file had in it at the start.
    """

    ttl_s: int
    table: str
    limits: Limits
    work_bits: int
    head: str
    head_file: str | None
    tells_audience: bool
    open_to: str
    exempts_loopback: bool
    is_native: bool
    receive_buffer_bytes: int
    metrics: Address | None
    tap: str | None
    tap_bytes: int


def router_of(settings: ServeSettings) -> Router:
    """Returns the router that such a server has."""
    return BEST if settings.is_native else PYTHON


def routing_of(settings: ServeSettings) -> str:
    """Returns in which code these servers route, and why it is not native."""
    return DESCRIPTION if settings.is_native else "routing in Python, as --no-native says"


def warn(settings: ServeSettings, servers: Sequence[Sequence[UdpPort]], log: Log) -> None:
    """Warns of what these settings mean on this machine."""
    if settings.open_to == "anyone":
        log.warning("open", "open to any address: anyone can make this server flood others")
    elif settings.open_to:
        log.warning("open", "open to loopback and private addresses: anyone there can subscribe others")
    if any(is_wildcard(port.address) and is_one_of_several(port.address) for port in servers[0]):
        log.warning(
            "wildcard",
            "serving on several addresses: answers leave from the one that the system picks, and clients "
            "drop those from another than they asked: give --host the one that clients are told",
        )
    warn_of_kernel(settings.receive_buffer_bytes, [port for ports in servers for port in ports], log)


def serve(
    settings: ServeSettings,
    ports: Sequence[UdpPort],
    log: Log,
    *,
    on_ready: Callable[[], None],
    lifeline: int | None = None,
) -> int:
    """Runs the server until a signal ends it; returns the exit code.

    `on_ready` and `lifeline` are as in `driver.run`.
    """
    addresses = [port.address for port in ports]
    outlets = [port.open_outlets() for port in ports]
    if uses_linux() and not all(outlets):
        log.warning(
            "senders",
            "answers and copies leave by one socket, since no others could be opened: subscribers that "
            "vanish cost the others copies; allow more open files, or use a later kernel",
        )
    require_files(ports[0])
    with ExitStack() as stack:
        tap = None
        if settings.tap is not None:
            try:
                tap = stack.enter_context(open_tap(settings, settings.tap, addresses, log))
            except OSError as error:
                log.error("tap", f"--tap: {settings.tap}: {error.strerror or error}")
                return EXIT_FAILURE
            except ValueError as error:
                log.error("tap", f"--tap: {error}")
                return EXIT_FAILURE
        server = make_server(settings, addresses, tap)
        head_file = None
        if settings.head_file is not None:
            head_file = HeadFile(settings.head_file, settings.head, server.set_head, log)
            stack.callback(head_file.close)
            head_file.watch()
        if settings.metrics is not None:
            from kcast.pubsub.metrics import ServerCollector, serve_metrics

            try:
                where = serve_metrics(ServerCollector(server, ports, tap, head_file), settings.metrics)
            except ListenError as error:
                log.error("metrics", str(error))
                return EXIT_FAILURE
            url = f"http://{format_address(where)}/metrics"
            log.info("metrics", f"metrics on {url}", url=url)
        guard = FloodGuard(
            server,
            ports,
            SystemRandom(),
            passes_loopback=settings.exempts_loopback,
            tell=lambda text: log.warning("flood", text),
        )
        stack.enter_context(rare_collections())
        ending = run(
            server,
            ports,
            on_ready=on_ready,
            on_drain=lambda: _say_draining(settings, server, log),
            on_suspension=partial(_say_suspended, server, log),
            report=Report(log, lambda: Losses.of(server, ports)),
            report_interval_s=REPORT_INTERVAL_S,
            guard=guard,
            lifeline=lifeline,
        )
        _say_ended(ending, server, ports, log)
        return EXIT_FAILURE if ending is Ending.ORPHANED else 0


@contextmanager
def rare_collections() -> Iterator[None]:
    """Keeps Python's collector of cyclic garbage from looking at all objects.

    With 100,000 leases that takes up to 80 ms, in which the server is deaf. Its core leaves no such garbage.
    What the event loop and the metrics leave is young, and is found all the same.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def make_server(settings: ServeSettings, addresses: Sequence[Address], tap: Tap | None) -> Server:
    """Makes the core, with a new secret. `addresses` are those that its sockets are bound to."""
    return Server(
        secret=secrets.token_bytes(SECRET_BYTES),
        ttl_s=settings.ttl_s,
        table=settings.table,
        limits=settings.limits,
        work_bits=settings.work_bits,
        head=settings.head,
        version=version("kcast")[:VERSION_CHARS_MAX],
        tells_audience=settings.tells_audience,
        own_addresses=own_addresses(addresses),
        open_to={"": None, "local": is_local, "anyone": _anyone}[settings.open_to],
        exempts_loopback=settings.exempts_loopback,
        router=router_of(settings),
        tap=tap,
    )


def open_tap(settings: ServeSettings, path: str, addresses: Sequence[Address], log: Log) -> "FairTap":
    """Opens the tap for one life of a server. Raises OSError or ValueError if it cannot be written."""
    from kcast.pubsub.tap_parts import FairTap

    return FairTap(
        Path(path),
        boot_id=secrets.token_bytes(8),
        addresses=addresses,
        networks=Networks(exempts_loopback=settings.exempts_loopback),
        size_bytes_max=settings.tap_bytes,
        on_failure=lambda file, reason: log.warning(
            "tap", f"--tap: {file}: {reason}; nothing more is recorded there"
        ),
    )


def _anyone(_: Address) -> bool:
    return True


def _say_draining(settings: ServeSettings, server: Server, log: Log) -> None:
    limit_s = min(settings.ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX) + DRAIN_MARGIN_S
    leases = len(server.leases)
    log.info(
        "drain",
        f"draining for {limit_s:.0f} s at most, {leases} {'lease' if leases == 1 else 'leases'} left; a "
        "second signal ends it at once",
        limit_s=round(limit_s, 3),
        leases=leases,
    )


def _say_suspended(server: Server, log: Log, suspended_s: float) -> Callable[[], None]:
    """Returns what tells of a suspension once the leases that have ended meanwhile are gone."""
    before = server.counts["leases_expired"]

    def say() -> None:
        ended = server.counts["leases_expired"] - before
        log.warning(
            "suspended",
            f"the machine was suspended for {suspended_s:.0f} s; {ended} "
            f"{'lease' if ended == 1 else 'leases'} ended meanwhile",
            suspended_s=round(suspended_s, 3),
            leases_ended=ended,
        )

    return say


def _say_ended(ending: Ending, server: Server, ports: Sequence[UdpPort], log: Log) -> None:
    if ending is Ending.ORPHANED:
        log.error("orphan", "the process that started this server is gone")
    losses = Losses.of(server, ports)
    drops, harmless = losses.drops_and_harmless()
    drops.update({f"send-{name}": count for name, count in losses.send_errors.items()})
    drops["receive-buffer"] = losses.overflows
    copies, messages = server.counts["copies_sent"], server.counts["messages_received"]
    unwanted = "".join(f", {name}: {count}" for name, count in harmless.items())
    dropped, refused = listed(without_steps(drops)) or "none", listed(without_steps(losses.refusals))
    parts = [f"messages: {messages}, copies sent: {copies}{unwanted}", f"drops: {dropped}"]
    parts += [f"refusals: {refused}"] if refused else []
    log.info(
        "end",
        "; ".join([*parts, *steps(losses.refusals)]),
        ending=ending.name.lower(),
        copies=copies,
        messages=messages,
        harmless=harmless,
        drops=+drops,
        refusals=losses.refusals,
        leases=len(server.leases),
    )
