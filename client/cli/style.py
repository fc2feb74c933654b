"""How commands print a message or an entry: as text, in a format, or as JSON."""

from typing import NamedTuple

from kcast.client.cli.format import Format
from kcast.client.cli.text import escaped, text_fields, to_json
from kcast.client.cli.times import utc
from kcast.client.events import Delivery
from kcast.client.history.entries import Entry


class Told(NamedTuple):
    """An entry, and the topic of its log."""

    topic: bytes
    entry: Entry

    def fields(self) -> dict[str, object]:
        """Returns what JSON has of it."""
        names = "publisher", "seq", "id", "parents", "orphan", "sender", "group"
        texts = text_fields("topic", self.topic) | text_fields("payload", self.entry.payload)
        return {"time": utc(self.entry.at_s), **texts, **{name: getattr(self.entry, name) for name in names}}

    def delivery(self) -> Delivery:
        """Returns it as if it had just come."""
        entry, topic = self.entry, self.topic
        of_whom = entry.at_s, entry.sender, entry.group
        return Delivery(topic, entry.payload, "", entry.publisher, entry.seq, {}, *of_whom)


class Style(NamedTuple):
    """How deliveries and entries are printed."""

    as_json: bool
    raw: bool = False
    with_topic: bool = False
    with_time: bool = False
    form: Format | None = None
    end: bytes = b"\n"

    def line(self, item: Delivery | Told, for_terminal: bool) -> bytes:
        """Returns what is printed for one, with its end of line."""
        if self.as_json:
            fields = item.fields() if isinstance(item, Told) else _fields(item)
            return to_json(fields).encode() + b"\n"
        delivery = item.delivery() if isinstance(item, Told) else item
        if self.form is not None:
            return self.form.apply(delivery) + self.end
        head = f"{utc(delivery.received_at_s)}\t" if self.with_time else ""
        head += f"{escaped(delivery.topic)}\t" if self.with_topic else ""
        payload = delivery.payload
        if for_terminal:
            lines = payload.split(b"\n") if self.raw else [payload]
            payload = b"\n".join(map(_for_terminal, lines))
        elif not self.raw:
            payload = payload.replace(b"\n", b"\\n")
        return head.encode() + payload + self.end


def _for_terminal(data: bytes) -> bytes:
    return escaped(data).encode()


def _fields(delivery: Delivery) -> dict[str, object]:
    return {
        "time": utc(delivery.received_at_s),
        **text_fields("topic", delivery.topic),
        **text_fields("payload", delivery.payload),
        "publisher": delivery.publisher,
        "seq": delivery.seq,
        "attributes": dict(delivery.attributes),
        "server": delivery.server,
        "sender": delivery.sender,
        "group": delivery.group,
        "sent_at": None if delivery.sent_at is None else utc(delivery.sent_at),
    }
