"""The numbers of a publisher's messages: one sequence for each topic. Sans-IO. PROTOCOL §9.1.

Only a number of topics is remembered. A topic that was forgotten must not begin at 1 again, since subscribers
would take that for old messages. It continues above all numbers that were ever forgotten, with a jump that
subscribers take for a new start and not for a gap (§9.4).
"""

from collections import OrderedDict

from kcast.client.messages.sequence import JUMP_MAX

TOPICS_MAX = 65_536


class Numbering:
    """The last number used on each topic; the topics used longest ago are forgotten first."""

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max = topics_max
        self._last: OrderedDict[bytes, int] = OrderedDict()
        self._forgotten = 0  # the highest number of any topic that was forgotten

    def __len__(self) -> int:
        return len(self._last)

    def next(self, topic: bytes) -> int:
        """Returns the number for the topic's next message. It counts as used only after `use`."""
        last = self._last.get(topic)
        if last is not None:
            return last + 1
        return self._forgotten + JUMP_MAX + 1 if self._forgotten else 1

    def use(self, topic: bytes, seq: int) -> None:
        """Notes the topic's last number."""
        self._last[topic] = seq
        self._last.move_to_end(topic)
        if len(self._last) > self._topics_max:
            self._forgotten = max(self._forgotten, self._last.popitem(last=False)[1])
