"""What was sent: messages, sendings to servers, and renewals of leases. `attribution` counts what arrived."""

from collections.abc import Iterator

import numpy as np

from kcast.loadtest.capture.schema import DUPLICATE
from kcast.loadtest.results.tables import columns
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, single

SENT = Kind(60, (), ("messages", "message_bytes", "sendings"))


def count(part: Part) -> Iterator[Counts]:
    """The kind SENT of a part. Its `least` and `most` are of the times of messages."""
    publish, sent = part.messages["publish"], part.messages["pub_tx"]
    # An extra copy is the network's doing, not the client's.
    sendings = int((sent["injected"] != DUPLICATE).sum())
    at = publish["t_intended_ns"]
    bounds = {"least": int(at.min()), "most": int(at.max())} if len(at) else {}
    yield single(SENT, len(at), int(publish["size_bytes"].sum()), sendings, **bounds)


def totals(merged: Merged) -> Iterator[Row]:
    """A row: `messages` published; `message_bytes`, of their lines; `sendings` of them to servers;
    `renewals`, lines that ask for a lease or renew it while the load lasts; its bounds, `from_ns` and
    `to_ns`.
    """
    around = merged.around
    window = columns(around.side, "window", "t_from_ns", "t_to_ns")
    asked = columns(around.side, "subscribe", "injected", "t_tx_ns")
    bounds = [bound for bound in (merged.least, merged.most) if bound is not None]
    froms, tos = ([*window[name].tolist(), *bounds] for name in ("t_from_ns", "t_to_ns"))
    from_ns, to_ns = min(froms, default=None), max(tos, default=None)
    at = asked["t_tx_ns"][asked["injected"] != DUPLICATE]
    in_load = (at >= around.t0_ns) & (at < (to_ns or 0))
    for row in merged.rows(SENT):
        renewals = around.side.renewals + int(np.count_nonzero(in_load))
        yield row | {"renewals": renewals, "from_ns": from_ns, "to_ns": to_ns}


JOB = Job("cost", (SENT,), count, {"cost": totals})
