"""What `kcast bench` prints at its end: figures in tables or as JSON, and what is to be known of them."""

from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from kcast.client.cli.text import paragraph, table
from kcast.loadtest.bench.figures import Delivered, Published, ServerFigures
from kcast.loadtest.bench.plan import TOO_FAST, BenchPlan
from kcast.loadtest.bench.run import BenchResult, Target
from kcast.loadtest.bench.view import counted
from kcast.loadtest.charts.words import percent_digits, significant
from kcast.loadtest.results.percentiles import Percentiles

LATE_SHARE_MAX = 0.5  # of the latency, at the 99th percentile of both
CPU_NS_MIN = 100_000_000  # the system counts it in hundredths of a second: less says nothing of a message

_HEADS = ("", "messages", "seconds", "messages/s", "MB/s", "CPU us/message")
_HEADS_EACH = ("slowest/s", "mean/s", "fastest/s")
_PERCENTILES = ("p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms")
_LABEL_CHARS = len("duplicates  ")
_ADVICE = {
    TOO_FAST: "give a lower --rate, or raise --publish-rate, --copy-rate and --egress-rate of kcast serve",
    "drain": "the servers are about to stop",
}


def as_json(plan: BenchPlan, target: Target, result: BenchResult) -> dict[str, Any]:
    """Returns all figures as one object. Its keys are stable; later versions may add some."""
    settings = plan.as_json()
    return {
        "type": "result",
        "command": settings.pop("kind"),
        "kcast": version("kcast"),
        "policy": str(target.policy),
        "servers": target.servers,
        "own_servers": None if result.servers is None else asdict(result.servers),
        "interrupted": result.is_interrupted,
        "settings": settings,
        "published": None if result.published is None else asdict(result.published),
        "delivered": None if result.delivered is None else asdict(result.delivered),
    }


def as_text(plan: BenchPlan, target: Target, result: BenchResult) -> Iterator[str]:
    """Yields lines for people."""
    sides = [(name, side) for name, side in _sides(result) if side is not None]
    is_several = any(side.clients > 1 for _, side in sides)
    heads = (*_HEADS, *_HEADS_EACH) if is_several else _HEADS
    yield from table(heads, [_row(name, side, is_several) for name, side in sides])
    yield ""
    for label, text in _facts(plan, target, result):
        yield from paragraph(text, label.ljust(_LABEL_CHARS))
    latencies = list(_latencies(result))
    if latencies:
        yield ""
        head = "since it was published" if plan.rate is None else "since it was due"
        yield from table((head, *_PERCENTILES), latencies)


def _sides(result: BenchResult) -> tuple[tuple[str, Published | None], tuple[str, Delivered | None]]:
    return ("published", result.published), ("delivered", result.delivered)


def _row(name: str, side: Published | Delivered, is_several: bool) -> tuple[str, ...]:
    rates = side.rates
    bytes_per_s = rates.all * side.bytes / side.messages if side.messages else 0.0
    cells = (
        *(name, f"{side.messages:,}", f"{side.seconds:.2f}", f"{rates.all:,.0f}"),
        *(f"{bytes_per_s / 1e6:.2f}", significant(side.cpu_us)),
    )
    if not is_several:
        return cells
    return *cells, *(f"{rate:,.0f}" for rate in (rates.least, rates.mean, rates.greatest))


# --- Facts -------------------------------------------------------------------------------------------


def _facts(plan: BenchPlan, target: Target, result: BenchResult) -> Iterator[tuple[str, str]]:
    if result.published is not None:
        yield "receipts", _receipts(plan, result.published)
    if result.delivered is not None:
        yield "lost", _lost(result.delivered)
        yield "duplicates", _duplicates(target, result.delivered)
    if result.servers is not None:
        yield "servers", _cpu(result, result.servers)
        if result.servers.drops:
            drops = ", ".join(f"{name} {count:,}" for name, count in result.servers.drops.items())
            yield "", f"dropped: {drops} (docs/operations.md, Reasons)"


def _receipts(plan: BenchPlan, published: Published) -> str:
    words = [f"not asked for; {published.sent:,} sent"]
    if not plan.confirm and published.with_receipt:
        words.append(f"{published.with_receipt:,} had one all the same")
    if plan.confirm:
        words = [f"{published.with_receipt:,} of {counted(published.attempted, 'message')}"]
        heard = [servers for servers in published.receipts if servers]
        if heard:
            least, most = min(heard), max(heard)
            words[0] += (
                f", from {counted(most, 'server') if least == most else f'{least} to {most} servers'} each"
            )
    if published.no_answer:
        words.append(f"{published.no_answer:,} without an answer")
    if published.refused:
        words.append(f"{published.refused:,} refused ({', '.join(published.reasons)})")
    if published.queue_full:
        words.append(f"{published.queue_full:,} not sent, since too many waited for a cookie")
    return "; ".join(words)


def _lost(delivered: Delivered) -> str:
    if delivered.expected is None:
        if not delivered.lost:
            return "none between the first and the last message of each publisher"
        share = delivered.lost / (delivered.messages + delivered.lost)
        return f"{delivered.lost:,} between others of the same publisher ({percent_digits(share)} %)"
    if not delivered.lost:
        return f"none of {delivered.expected:,}"
    share = delivered.lost / delivered.expected
    return f"{delivered.lost:,} of {delivered.expected:,} ({percent_digits(share)} %)"


def _duplicates(target: Target, delivered: Delivered) -> str:
    twice = f"{counted(delivered.twice, 'message')} delivered twice" if delivered.twice else ""
    if not delivered.duplicates:
        return twice or "none came"
    copies = f"{delivered.copies_each:.2f} copies of each message came, as policy {target.policy} has it"
    return f"{copies}; {twice or 'no message was delivered twice'}"


def _cpu(result: BenchResult, servers: ServerFigures) -> str:
    seconds = max(side.seconds for _, side in _sides(result) if side is not None)
    words = [f"{servers.cpu_ns / 1e9:.2f} s of CPU time"]
    if servers.cpu_ns < CPU_NS_MIN:
        return f"{words[0]}, too little to say more of it"
    if seconds:
        words.append(f"{servers.cpu_ns / 1e9 / seconds:.2f} of a core")
    if servers.copies:
        words.append(f"{significant(servers.cpu_ns / 1000 / servers.copies)} us for each copy")
    elif result.published is not None and result.published.messages:
        words.append(f"{significant(servers.cpu_ns / 1000 / result.published.messages)} us for each message")
    return ", ".join(words)


def _latencies(result: BenchResult) -> Iterator[tuple[str, ...]]:
    published, delivered = result.published, result.delivered
    if published is not None:
        yield from _percentiles("to its publishing", published.behind)
        yield from _percentiles("to its last receipt", published.until_receipt)
    if delivered is not None:
        yield from _percentiles("to its delivery", delivered.latency)


def _percentiles(name: str, times: Percentiles) -> Iterator[tuple[str, ...]]:
    if times.count:
        figures = (times.p50_ms, times.p90_ms, times.p99_ms, times.p999_ms, times.max_ms)
        yield name, *map(significant, figures)


# --- Notes -------------------------------------------------------------------------------------------


def notes(plan: BenchPlan, result: BenchResult) -> Iterator[str]:
    """Yields what is to be known of the figures, and what to do about it."""
    published, delivered = result.published, result.delivered
    if published is not None:
        for reason, count in published.reasons.items():
            advice = f": {_ADVICE[reason]}" if reason in _ADVICE else ""
            yield f"{counted(count, 'refusal')} for the reason '{reason}'{advice}"
        slowest_ms = 0.0 if delivered is None else delivered.latency.p99_ms
        if published.behind.p99_ms > LATE_SHARE_MAX * slowest_ms > 0:
            yield (
                "messages were published late, so the latencies tell more of this machine than of servers: "
                "give a lower --rate"
            )
    if delivered is not None:
        if delivered.kernel_drops or delivered.slow_consumer:
            unread = counted(delivered.kernel_drops, "datagram")
            unread += f" and {counted(delivered.slow_consumer, 'message')}"
            yield f"{unread} came and were not read in time: give a lower --rate, or fewer --subscribers"
        elif delivered.lost and published is not None and not plan.confirm:
            yield "without receipts nobody tells what servers refuse: compare with --confirm"
        if delivered.foreign:
            others = counted(delivered.foreign, "message")
            yield f"{others} of other publishers came on the same topics, not counted: give another TOPIC"
