"""How `kcast sub` prints a message: as text, in a format, or as JSON."""

from typing import NamedTuple

from kcast.client.cli.format import Format
from kcast.client.cli.text import escaped, text_fields, to_json
from kcast.client.cli.times import utc
from kcast.client.events import Delivery


class Style(NamedTuple):
    """How deliveries are printed."""

    as_json: bool
    raw: bool
    with_topic: bool
    with_time: bool
    form: Format | None
    end: bytes

    def line(self, delivery: Delivery, for_terminal: bool) -> bytes:
        """Returns what is printed for a delivery, with its end of line."""
        if self.as_json:
            return to_json(_fields(delivery)).encode() + b"\n"
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
