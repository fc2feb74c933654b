"""The chances that the pairs of a capture had, summed up for `given_events`.

Sums over messages of products of whole numbers: those of parts of a capture add up to those of the whole.
"""

import numpy as np

from kcast.loadtest.capture.schema import LOST
from kcast.loadtest.results.attributed import Attribution
from kcast.loadtest.results.attribution import Messages
from kcast.loadtest.results.causes import SHORTCOMINGS
from kcast.loadtest.results.given_events import Chances, messages_per_lost_datagram
from kcast.loadtest.results.joins import Ints, expanded, group_sums
from kcast.loadtest.results.tables import Array


def chances_of(found: Attribution) -> list[Chances]:
    """Returns the chances of all these pairs."""
    (low, high), values = chance_sums(found)
    columns = [column.tolist() for column in (low, high, *values)]
    return [Chances(*row) for row in zip(*columns, strict=True)]


def chance_sums(found: Attribution) -> tuple[list[Ints], list[Ints]]:
    """Returns the columns of `Chances`: `low` and `high`, no two rows of which are alike; and the sums.

    Raises OverflowError for an audience that is too large to be added up.
    """
    ones = np.ones(len(found), dtype=np.int64)
    is_fault = np.isin(found.causes, SHORTCOMINGS)
    (messages, chances), (n, x, faults) = group_sums(
        (found.msg_ids, found.chances), (ones, found.delivered, is_fault)
    )
    # Each two classes of a message: rows are in the order of message and chances.
    _, first, sizes = np.unique(messages, return_index=True, return_counts=True)
    after = np.repeat(first + sizes, sizes) - np.arange(len(messages))
    low, beyond = expanded(after)
    high, own = low + beyond, beyond == 0
    if len(n) * int(n.max(initial=0)) ** 3 >= 1 << 63:
        raise OverflowError(f"an audience of {int(n.max())} is more than the analysis can add up")
    values = (n[low] * n[high], n[low] * own, x[low] * own, faults[low] * own, n[low] ** 3 * own)
    return group_sums((chances[low], chances[high]), values)


def bunching(messages: Messages) -> float:
    """Returns `messages_per_lost_datagram` of all these messages, for what was lost by plan."""
    sent, came = messages["pub_tx"], messages["deliver"]
    ways = (
        (sent["injected"], sent["msg_id"] >> 32, sent["server_id"], sent["t_tx_ns"]),
        (came["injected"], came["sub_id"], came["server_id"], came["t_user_ns"]),
    )
    return messages_per_lost_datagram(_lost(fates, keys) for fates, *keys in ways)


def _lost(fates: Array, datagrams: list[Array]) -> tuple[int, int]:
    """The lines that were lost, and the sum over datagrams of the square of their number."""
    is_lost = fates == LOST
    _, (lines,) = group_sums([key[is_lost] for key in datagrams], [np.ones(np.count_nonzero(is_lost))])
    return int(lines.sum()), int((lines**2).sum())
