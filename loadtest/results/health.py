"""What a capture tells of the run itself: rows that were not recorded, overflows, processes that stood still.

`verdicts` judges it.
"""

import numpy as np

from kcast.loadtest.results.attribution import Messages, messages_of
from kcast.loadtest.results.contradictions import Contradictions, contradictions
from kcast.loadtest.results.copy_counts import CopyRows, Readings, copy_rows, miscounts
from kcast.loadtest.results.percentiles import NS_PER_MS
from kcast.loadtest.results.surroundings import Surroundings
from kcast.loadtest.results.tables import Array, Capture, Columns, columns
from kcast.loadtest.results.verdicts import Health


def examine(
    capture: Capture, messages: Messages | None = None, surroundings: Surroundings | None = None
) -> Health:
    """Returns the health that a capture shows; its `messages` and `surroundings`, if these have been read.

    Raises CaptureError.
    """
    publish = columns(capture, "publish", "msg_id", "pub_id", "t_intended_ns")
    window = columns(capture, "window", "pub_id", "t_from_ns", "t_to_ns")
    at = publish["t_intended_ns"]
    span_ns = (int(at.min()), int(at.max())) if len(at) else None
    messages = messages_of(capture) if messages is None else messages
    readings = Readings(capture)
    return examine_around(
        capture,
        contradictions(surroundings or Surroundings(capture), messages),
        readings,
        copy_rows(readings, messages),
        published=published(window, publish),
        span_ns=span_ns,
    )


def examine_around(
    capture: Capture,
    found: Contradictions,
    readings: Readings,
    copies: CopyRows,
    *,
    published: int,
    span_ns: tuple[int, int] | None,
) -> Health:
    """The same from all tables but those of messages, and from what these tell: `found` and `copies`.

    `readings` are of the capture. `published` messages were due in windows; all were due within `span_ns`,
    None if there were none. Raises CaptureError.
    """
    window = columns(capture, "window", "t_from_ns", "t_to_ns", "scheduled")
    spans = [*zip(window["t_from_ns"].tolist(), window["t_to_ns"].tolist(), strict=True)]
    spans += [span_ns] if span_ns else []
    from_ns = min((begin for begin, _ in spans), default=0)
    to_ns = max((end for _, end in spans), default=0) + round(capture.scenario.deadline_s * 1e9)
    process = columns(capture, "process_stat", "process", "t_ns", "lag_max_ns", "rows_lost")
    meanwhile = (process["t_ns"] >= from_ns) & (process["t_ns"] <= to_ns)
    client = columns(
        capture, "client_stat", "client_id", "t_ns", "kernel_drops", "send_errors", "slow_consumer"
    )
    server = columns(capture, "server_stat", "server_id", "t_ns", "kernel_drops")
    clock = columns(capture, "clock", "error_ns")
    seen = columns(capture, "sighting", "what", "name")
    known = columns(capture, "member", "publisher", "pub_id")
    named = np.isin(known["publisher"], seen["name"][seen["what"] == "limited"])
    rows_lost = _risen(process["process"], process["t_ns"], process["rows_lost"])
    tap_lines_lost = int(columns(capture, "server_life", "lost_lines")["lost_lines"].sum())
    return Health(
        scheduled=int(window["scheduled"].sum()),
        published=published,
        rows_lost=rows_lost,
        tap_lines_lost=tap_lines_lost,
        lag_max_ms=int(process["lag_max_ns"][meanwhile].max(initial=0)) / NS_PER_MS,
        clock_error_ms=int(np.abs(clock["error_ns"]).max(initial=0)) / NS_PER_MS,
        client_overflows=_risen(client["client_id"], client["t_ns"], client["kernel_drops"]),
        server_overflows=_risen(server["server_id"], server["t_ns"], server["kernel_drops"]),
        send_errors=_risen(client["client_id"], client["t_ns"], client["send_errors"]),
        slow_consumer=_risen(client["client_id"], client["t_ns"], client["slow_consumer"]),
        servers_lost=_servers_lost(capture),
        limited=int((named & (known["pub_id"] >= 0)).sum()),
        **found._asdict(),
        **miscounts(capture, readings, copies, is_whole=not rows_lost and not tap_lines_lost)._asdict(),
    )


def _servers_lost(capture: Capture) -> tuple[int, ...]:
    """Servers with a life whose tap was cut short though no kill ended that life."""
    outage = columns(capture, "outage", "server_id", "t_down_ns", "kind")
    is_kill = outage["kind"] == "kill"
    kills = np.stack((outage["server_id"][is_kill].astype(np.int64), outage["t_down_ns"][is_kill]))
    life = columns(capture, "server_life", "server_id", "t_from_ns", "ended")
    lost = []
    for server in np.unique(life["server_id"][life["ended"] == 0]).tolist():
        own = life["server_id"] == server
        killed_ns = np.sort(kills[1][kills[0] == server])
        froms_ns, ended = life["t_from_ns"][own], life["ended"][own]
        order = np.argsort(froms_ns)
        # The number of kills before the end of each life; that is before the next life begins.
        until = np.append(np.searchsorted(killed_ns, froms_ns[order][1:]), len(killed_ns))
        if ((np.diff(until, prepend=0) == 0) & (ended[order] == 0)).any():
            lost.append(server)
    return tuple(lost)


def published(window: Columns, publish: Columns) -> int:
    """Returns the number of published messages that were due in a window of their publisher."""
    ids, first = np.unique(publish["msg_id"], return_index=True)
    first = first[ids >= 0]
    pubs, intended = publish["pub_id"][first], publish["t_intended_ns"][first]
    order = np.lexsort((intended, pubs))
    pubs, intended = pubs[order], intended[order]
    total = 0
    for pub, from_ns, to_ns in zip(window["pub_id"], window["t_from_ns"], window["t_to_ns"], strict=True):
        low, high = np.searchsorted(pubs, (pub, pub + 1))
        total += int(np.subtract(*np.searchsorted(intended[low:high], (to_ns, from_ns))))
    return total


def _risen(ids: Array, times: Array, counts: Array) -> int:
    """The sum over ids of how much each counter rose; one that is less than before has restarted at 0."""
    if not len(ids):
        return 0
    _, numbers = np.unique(ids, return_inverse=True)
    order = np.lexsort((counts, times, numbers))
    count, key = counts[order].astype(np.int64), numbers[order]
    rise = np.diff(count, prepend=0)
    is_first = np.diff(key, prepend=-1) != 0
    return int(np.where(is_first | (rise < 0), count, rise).sum())
