"""`kcast analyse RUN --why MESSAGE`: what became of one message. Without Spark: it takes a second or two."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kcast.client.cli.text import escaped, table, tell, to_json
from kcast.loadtest.capture.folder import ScenarioFolder, open_run
from kcast.loadtest.capture.manifest import CaptureError
from kcast.loadtest.charts.words import count, listed, milliseconds, number
from kcast.loadtest.results.message import (
    AtServer,
    AtSubscriber,
    Message,
    has_message,
    known_messages,
    message,
)
from kcast.loadtest.scenario import ScenarioError, select
from kcast.spark.session.local_files import is_name, is_on_this_machine, shown

_NUMBER_BITS = 32


def why(run: str, wanted: int, only: Sequence[str], *, as_json: bool) -> None:
    """Prints what became of a message. Raises CaptureError, and OSError."""
    if not is_on_this_machine(run, os.environ):
        raise CaptureError(f"{run}: --why reads captures on this machine only: copy the run here")
    found = message(_scenario(run, wanted, only), wanted)
    if as_json:
        tell(to_json({"type": "message", **found.as_json()}))
    else:
        tell("\n".join(map(escaped, lines(found))))


def _scenario(run: str, wanted: int, only: Sequence[str]) -> ScenarioFolder:
    """The one scenario that has the message. Raises CaptureError."""
    whole = open_run(Path(run if is_name(run) else shown(run)))
    try:
        names = {scenario.name for scenario in select(whole.planned, only)}
    except ScenarioError as error:
        raise CaptureError(str(error)) from None
    chosen = [folder for folder in whole.scenarios if folder.scenario.name in names]
    complete = [folder for folder in chosen if folder.status == "complete"]
    if not complete:
        told = listed([f"{folder.scenario.name} is {folder.status}" for folder in chosen]) or "none was begun"
        raise CaptureError(f"{whole.path}: --why takes a scenario that is complete: {told}")
    having = [folder for folder in complete if has_message(folder, wanted)]
    given = f"{wanted >> _NUMBER_BITS}:{wanted & (1 << _NUMBER_BITS) - 1}"
    if not having:
        known = "; ".join(known_messages(folder) for folder in complete[:3])
        raise CaptureError(f"{whole.path}: no message {given}: {known}")
    if len(having) > 1:
        others = listed([folder.scenario.name for folder in having], 8)
        raise CaptureError(f"message {given} is in {others}: choose one with --only")
    return having[0]


def lines(found: Message) -> Iterator[str]:
    """What became of a message, for people."""
    yield (
        f"message {found.publisher}:{found.number} of {found.scenario} (msg_id {found.msg_id}), on topic "
        f"{found.topic}, {count(found.size_bytes, 'byte')}"
    )
    yield (
        f"due {number(found.due_s, 4)} s after the load began, and given to the client "
        f"{milliseconds(found.given_ms)} later. All times below are since it was due."
    )
    yield ""
    if found.servers:
        of_servers = ("server", "sent", "its datagram", "taken in", "what stopped it there")
        yield from table(of_servers, [row for server in found.servers for row in _server(server)], left=5)
    else:
        yield "It was sent to no server."
    yield ""
    reached = sum(subscriber.latency_ms is not None for subscriber in found.subscribers)
    if not found.subscribers:
        yield "No subscriber was to have it."
        return
    yield f"It reached {reached} of {count(len(found.subscribers), 'subscriber')}:"
    yield ""
    of_subscribers = ("subscriber", "after", "copies", "why not")
    yield from table(of_subscribers, [_subscriber(one) for one in found.subscribers], left=4)


def _server(of: AtServer) -> Iterator[tuple[str, ...]]:
    """A row for each time that the message was sent to a server."""
    taken = "-" if of.taken_ms is None else milliseconds(of.taken_ms)
    if of.taken_ms is None and of.cause is None:
        taken = "yes, as its copies show" if of.is_copied else "yes, but its tap lacks it"
    stopped = f"{of.cause}: {of.meaning}" if of.cause else ""
    for place, (at_ms, fate) in enumerate(of.sent or ((None, "none on record"),)):
        sent = "-" if at_ms is None else milliseconds(at_ms)
        yield (of.name, sent, fate, taken, stopped) if not place else ("", sent, fate, "", "")


def _subscriber(of: AtSubscriber) -> tuple[str, ...]:
    copies = [
        f"{server} {milliseconds(at_ms)}" + ("" if fate == "passed" else f" ({fate})")
        for server, at_ms, fate in of.copies
    ]
    after = "missed" if of.latency_ms is None else milliseconds(of.latency_ms)
    reason = f"{of.cause}: {of.meaning}" if of.latency_ms is None else ""
    return str(of.subscriber), after, listed(copies, 6) or "none", reason
