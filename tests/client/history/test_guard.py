"""client/history/guard.py: what is an entry, and what is dropped, and why."""

from kcast.client.events import Drop
from kcast.client.history.ids import Stamp, attributes_of, id_of
from kcast.client.messages.envelope import Envelope, format_envelope
from kcast.client.messages.guard_and_writer import TAKEN
from tests.support.log_lab import LogLab, Participant

CHAT = b"chat"


def take(ann: Participant, message: bytes) -> object:
    """What a guard makes of a message that comes live."""
    unix_s = ann.lab.now + ann.clock_offset_s
    claim = ann.guard.glance(CHAT, message, unix_s)
    return claim if isinstance(claim, Drop) else ann.guard.judge(CHAT, claim, unix_s)


def test_what_is_no_entry_is_dropped_and_why() -> None:
    lab = LogLab()
    ann = lab.join()
    lab.run(1)
    now_us = int((lab.now + ann.clock_offset_s) * 1e6)

    def entry(after_s: float, payload: bytes = b"x", parents: tuple[bytes, ...] = (), seq: int = 1) -> bytes:
        stamp = Stamp(now_us + int(after_s * 1e6), parents)
        return format_envelope(Envelope("author", seq, payload, attributes_of(stamp)))

    later = id_of(now_us + 10**7, CHAT, b"")
    for message, verdict in (
        (entry(0), TAKEN),
        (entry(0), TAKEN),  # again
        (entry(59), TAKEN),
        (entry(61), Drop.WRONG_CLOCK),
        (entry(-86_000), TAKEN),
        (entry(-87_000), Drop.WRONG_CLOCK),
        (entry(0, b"y", (later,)), Drop.WRONG_CLOCK),  # its parent is not before it
        (entry(0, b"x" * 1100), Drop.NOT_KEPT),  # it fits on the topic, and into no mailbox
        (b"%@author.7 plain", Drop.NOT_KEPT),
        (b"raw", Drop.NOT_KEPT),
        (b"%@author.7;c=zVOQzhc_s-1 x", Drop.WRONG_CLOCK),
        (b"%@author.0 x", Drop.MALFORMED_MESSAGE),
        (entry(0).replace(b";c=", b";Q=1;c="), Drop.NOT_UNDERSTOOD),
        (entry(0, b"other"), TAKEN),  # the same number, and another message: both are kept
    ):
        assert take(ann, message) is verdict, message
    lab.run(1)
    assert sorted(row.payload for row in ann.entries()) == [b"other", b"x", b"x", b"x"]
