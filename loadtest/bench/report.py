"""What `kcast bench` prints: what it does, and at its end figures in tables or as JSON, with what to know of
them."""

from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version

from kcast.client.cli.text import paragraph, table
from kcast.loadtest.bench.counts import Figures
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.worker import TOO_FAST
from kcast.loadtest.charts.words import percent_digits, significant

NAME = "bench"
LATE_SHARE_MAX = 0.5  # of the latency, at the 99th percentile of both
CPU_NS_MIN = 100_000_000  # the system counts it in hundredths of a second: less says nothing of a message

_HEADS = ("", "messages", "seconds", "messages/s", "MB/s", "CPU us/message")
_PERCENTILES = ("p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms")
_LEGS = {"behind": "to its publishing", "until_receipt": "to its last receipt", "latency": "to its delivery"}
_LABEL_CHARS = len("duplicates  ")
_ADVICE = {
    TOO_FAST: "give a lower --rate, or raise --publish-rate, --copy-rate and --egress-rate of kcast serve",
    "drain": "the servers are about to stop",
}


def counted(number: int, noun: str) -> str:
    """Returns `1 message`, `20,000 messages`."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def described(plan: BenchPlan) -> str:
    """Returns what a benchmark does, in one line."""
    topics = counted(plan.topics, "topic") + f" ({plan.topic}" + ("/0, ...)" if plan.topics > 1 else ")")
    subscribers = counted(plan.subscribers, "subscriber")
    if not plan.publishes:
        return f"{subscribers}, {topics}"
    who = counted(plan.publishers, "publisher") + (f", {subscribers}" if plan.subscribes else "")
    what = "messages" if plan.count is None else counted(plan.count, "message")
    receipts = "" if plan.confirm else ", without receipts"
    how = "as fast as receipts come" if plan.confirm else "as fast as they leave"
    if plan.rate is not None:
        how = f"{plan.rate:,g} a second"
    if plan.duration_s is not None:
        how += f", for {plan.duration_s:g} s" + (" at most" if plan.count is not None else "")
    return f"{who}, {topics}: {what} of {plan.size_bytes} bytes{receipts}, {how}"


def as_json(plan: BenchPlan, result: Figures) -> Figures:
    """Returns all figures as one object. Its keys are stable; later versions may add some."""
    settings = asdict(plan)
    command = settings.pop("kind")
    return {"type": "result", "command": command, "kcast": version("kcast"), "settings": settings, **result}


def as_text(plan: BenchPlan, result: Figures) -> Iterator[str]:
    """Yields lines for people."""
    sides = [(name, result[name]) for name in ("published", "delivered") if result[name]]
    yield from table(_HEADS, [_row(name, side) for name, side in sides])
    yield ""
    for label, text in _facts(plan, result, max(side["seconds"] for _, side in sides)):
        yield from paragraph(text, label.ljust(_LABEL_CHARS))
    legs = [(name, side[leg]) for _, side in sides for leg, name in _LEGS.items() if leg in side]
    names = [each.replace(" ", "_").replace(".", "") for each in _PERCENTILES]
    if rows := [(name, *(significant(leg[each]) for each in names)) for name, leg in legs if leg["count"]]:
        yield ""
        head = "since it was published" if plan.rate is None else "since it was due"
        yield from table((head, *_PERCENTILES), rows)


def _row(name: str, side: Figures) -> tuple[str, ...]:
    bytes_per_s = side["messages_per_s"] * side["bytes"] / side["messages"] if side["messages"] else 0.0
    return (
        *(name, f"{side['messages']:,}", f"{side['seconds']:.2f}", f"{side['messages_per_s']:,.0f}"),
        *(f"{bytes_per_s / 1e6:.2f}", significant(side["cpu_us"])),
    )


# --- Facts -------------------------------------------------------------------------------------------


def _facts(plan: BenchPlan, result: Figures, seconds: float) -> Iterator[tuple[str, str]]:
    published, servers = result["published"], result["own_servers"]
    if published:
        yield "receipts", _receipts(plan, published)
    if result["delivered"]:
        yield "lost", _lost(result["delivered"])
        yield "duplicates", _duplicates(result["policy"], result["delivered"])
    if servers:
        yield "servers", _cpu(servers["cpu_ns"], seconds, published["messages"])


def _receipts(plan: BenchPlan, published: Figures) -> str:
    with_receipt = published["with_receipt"]
    words = [f"not asked for; {published['sent']:,} sent"]
    if not plan.confirm and with_receipt:
        words.append(f"{with_receipt:,} had one all the same")
    if plan.confirm:
        words = [f"{with_receipt:,} of {counted(published['attempted'], 'message')}"]
        if heard := [servers for servers in published["receipts"] if servers]:
            least, most = min(heard), max(heard)
            servers = counted(most, "server") if least == most else f"{least} to {most} servers"
            words[0] += f", from {servers} each"
    if published["no_answer"]:
        words.append(f"{published['no_answer']:,} without an answer")
    if published["refused"]:
        words.append(f"{published['refused']:,} refused ({', '.join(published['reasons'])})")
    if published["queue_full"]:
        words.append(f"{published['queue_full']:,} not sent, since too many waited for a cookie")
    return "; ".join(words)


def _lost(delivered: Figures) -> str:
    lost, expected = delivered["lost"], delivered["expected"]
    if not lost:
        between = "none between the first and the last message of each publisher"
        return between if expected is None else f"none of {expected:,}"
    if expected is None:
        share = percent_digits(lost / (delivered["messages"] + lost))
        return f"{lost:,} between others of the same publisher ({share} %)"
    return f"{lost:,} of {expected:,} ({percent_digits(lost / expected)} %)"


def _duplicates(policy: str, delivered: Figures) -> str:
    twice = f"{counted(delivered['twice'], 'message')} delivered twice" if delivered["twice"] else ""
    if not delivered["duplicates"]:
        return twice or "none came"
    copies = f"{delivered['copies_each']:.2f} copies of each message came, as policy {policy} has it"
    return f"{copies}; {twice or 'no message was delivered twice'}"


def _cpu(cpu_ns: int, seconds: float, messages: int) -> str:
    words = [f"{cpu_ns / 1e9:.2f} s of CPU time"]
    if cpu_ns < CPU_NS_MIN:
        return f"{words[0]}, too little to say more of it"
    if seconds:
        words.append(f"{cpu_ns / 1e9 / seconds:.2f} of a core")
    if messages:
        words.append(f"{significant(cpu_ns / 1000 / messages)} us for each message")
    return ", ".join(words)


# --- Notes -------------------------------------------------------------------------------------------


def notes(plan: BenchPlan, result: Figures) -> Iterator[str]:
    """Yields what is to be known of the figures, and what to do about it."""
    published, delivered = result["published"], result["delivered"]
    if published:
        for reason, count in published["reasons"].items():
            advice = f": {_ADVICE[reason]}" if reason in _ADVICE else ""
            yield f"{counted(count, 'refusal')} for the reason '{reason}'{advice}"
        slowest_ms = delivered["latency"]["p99_ms"] if delivered else 0.0
        if published["behind"]["p99_ms"] > LATE_SHARE_MAX * slowest_ms > 0:
            yield (
                "messages were published late, so the latencies tell more of this machine than of servers: "
                "give a lower --rate"
            )
    if delivered:
        if delivered["kernel_drops"] or delivered["slow_consumer"]:
            unread = counted(delivered["kernel_drops"], "datagram")
            unread += f" and {counted(delivered['slow_consumer'], 'message')}"
            yield f"{unread} came and were not read in time: give a lower --rate, or fewer --subscribers"
        elif delivered["lost"] and published and not plan.confirm:
            yield "without receipts nobody tells what servers refuse: compare with --confirm"
        if delivered["foreign"]:
            others = counted(delivered["foreign"], "message")
            yield f"{others} of other publishers came on the same topics, not counted: give another TOPIC"


def failure(plan: BenchPlan, result: Figures) -> str:
    """Returns why the benchmark has failed; "" where it has not."""
    published, delivered = result["published"], result["delivered"]
    if published and published["are_servers_lost"]:
        return f"no server answers any more: it ended after {counted(published['attempted'], 'message')}"
    if published and not published["with_receipt"] + published["sent"]:
        return "no message had a receipt"
    if delivered and not delivered["messages"]:
        return "no message came"
    wanted = plan.count * plan.subscribers if plan.kind == "sub" and plan.count is not None else 0
    if delivered and delivered["messages"] < wanted:
        return f"{delivered['messages']:,} of {counted(wanted, 'message')} came"
    return ""
