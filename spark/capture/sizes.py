"""How large the cells of captures are, by what their files' footers and their plans tell."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from kcast.loadtest.results.attribution import MESSAGE_COLUMNS
from kcast.loadtest.scenario import Scenario


class CellSize(NamedTuple):
    """The size of a cell: `rows` of its tables of messages, `messages_each` of a publisher, and `pairs`.

    The last two are about right: publishers have equally many messages, and topics equally many subscribers.
    """

    rows: int
    messages_each: int
    pairs: int

    @classmethod
    def of(cls, scenario: Scenario, rows: Mapping[str, int]) -> Self:
        """Returns the size of a scenario, from the numbers of rows of its tables."""
        messages = rows.get("publish", 0)
        listening = scenario.subscribing_users * scenario.topics_per_subscriber
        return cls(
            sum(rows.get(name, 0) for name in MESSAGE_COLUMNS),
            -(-messages // max(1, scenario.publishing_users)),
            -(-messages * listening // max(1, scenario.topics)),
        )
