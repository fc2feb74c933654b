"""Makes lines of messages that are to be signed, or sealed. Sans-IO. PROTOCOL §9.6, §9.7.

Signed messages are numbered among all that their process publishes on the topic. Sealed ones have a
publisher's name of their own in each epoch of a group: nothing else links epochs, and numbers begin at 1, as
the nonces of a new key may.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kcast.client.errors import MessageTooLarge
from kcast.client.messages.lines import SEQ_MAX, Publisher, names_senders
from kcast.client.messages.sequence import Numbering
from kcast.client.sealed.frame import Frame
from kcast.client.sealed.membership import Group, GroupError
from kcast.client.sealed.sealing import Epoch, Sealer
from kcast.client.sealed.signing import SIGNATURE_CHARS, Signer
from kcast.client.sealed.topics import hash_of, hidden, parse_certified
from kcast.pubsub.wire import TopicError, encode_topic

NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})

Entropy = Callable[[int], bytes]
"""Returns as many bytes as asked for, which nobody can guess."""


def require_own_topic(name: bytes, signer: Signer, senders: frozenset[bytes]) -> None:
    """Sees that a topic that names its senders (`~`) names this one. Raises TopicError."""
    if not names_senders(name):
        return
    named = parse_certified(name)
    if named in (hash_of([signer.key]), hash_of(senders | {signer.key})):
        return
    raise TopicError(
        f"the topic names the keys of its senders (~), and they are not the key {signer.key_text} alone: "
        "nothing was sent. Use the topic that 'kcast key show' prints, or name all (--from, senders=)"
    )


class SignedWriter:
    """Signs messages with one key. `publisher` returns who they are from; `senders` are all keys that a
    topic's name may stand for, with this one among them."""

    is_once = False

    def __init__(
        self, publisher: Callable[[], Publisher], signer: Signer, senders: frozenset[bytes] = frozenset()
    ) -> None:
        self._publisher = publisher
        self._signer = signer
        self._senders = senders

    def place(self, name: bytes, unix_s: float) -> bytes:
        """Returns the topic itself. Raises TopicError where its name stands for other keys."""
        require_own_topic(name, self._signer, self._senders)
        return name

    def lines(
        self,
        wire_topic: bytes,
        payloads: Sequence[bytes],
        unix_s: float,
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
        spare_bytes: int = 0,
    ) -> tuple[int, Sequence[bytes]]:
        """Returns the number of the first of some messages, and their lines, with some attributes, each of
        which leaves room for some bytes more. Raises MessageTooLarge."""
        told = {**attributes, "t": str(int(unix_s * 1000))}
        spare_bytes += SIGNATURE_CHARS
        first, lines = self._publisher().lines_with(wire_topic, payloads, told, spare_bytes)
        return first, [self._signer.sign(line) for line in lines]


class _Process:
    """What one process is in an epoch: its name, its numbers, and what seals for it."""

    def __init__(self, epoch: Epoch, name: str, secret: bytes) -> None:
        self.numbering = Numbering()
        self.sealer = Sealer(epoch, name, secret)
        self.dummies: dict[bytes, int] = {}  # that it has sent on each topic that has had cover traffic


class SealedWriter:
    """Seals messages for a group, signed inside by a key of its senders.

    `group` returns the group as it is by now. `entropy` must be the system's, but in simulations. With
    `has_plain_topics` topics travel under their own names.
    """

    is_once = False

    def __init__(
        self,
        group: Callable[[], Group],
        entropy: Entropy,
        new_name: Callable[[], str],
        signer: Signer,
        *,
        has_plain_topics: bool = False,
        senders: frozenset[bytes] = frozenset(),
    ) -> None:
        self._group = group
        self._entropy = entropy
        self._new_name = new_name
        self._signer = signer
        self.has_plain_topics = has_plain_topics
        self._senders = senders
        self._processes: dict[int, _Process] = {}

    @property
    def group_name(self) -> str:
        """The name of the group."""
        return self._group().name

    def renew(self) -> None:
        """Takes new names and secrets, as a forked process must."""
        self._processes.clear()

    def place(self, name: bytes, unix_s: float) -> bytes:
        """Returns the topic that stands for a topic now. Raises GroupError where the group takes nothing
        from us now, and TopicError where the topic's name stands for other keys."""
        epoch = self._epoch(unix_s)
        require_own_topic(name, self._signer, self._senders)
        return name if self.has_plain_topics else hidden(epoch.topic_secret, name)

    def lines(
        self,
        wire_topic: bytes,
        payloads: Sequence[bytes],
        unix_s: float,
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
        spare_bytes: int = 0,
    ) -> tuple[int, Sequence[bytes]]:
        """Returns the number of the first of some messages, and their lines, with some attributes in clear,
        each of which leaves room for some bytes more. Raises MessageTooLarge."""
        told = "".join(f";{name}={value}" for name, value in attributes.items()).encode("ascii")
        process = self._process(unix_s)
        first, sealer = process.numbering.next(wire_topic), process.sealer
        made: list[tuple[int, Frame]] = []
        try:
            for seq, payload in enumerate(payloads, first):
                made.append((seq, self._frame(process, wire_topic, seq, payload, unix_s)))
                sealer.require_room(wire_topic, *made[-1], taken_bytes=len(told) + spare_bytes)
        except MessageTooLarge as error:
            which = f"payload {len(made) - 1} (from 0), so none was published: " if len(payloads) > 1 else ""
            raise MessageTooLarge(f"{which}{error}") from None
        if made:
            # Numbers are nonces: they are used up first, so that whatever ends this, none is used again.
            process.numbering.use(wire_topic, first + len(made) - 1)
        return first, [sealer.seal(wire_topic, *each, self._signer, told=told) for each in made]

    def cover_line(
        self, wire_topic: bytes, payload: bytes, unix_s: float, pad_to: int, *, is_dummy: bool
    ) -> tuple[int, bytes]:
        """Returns the number and the line of a message of cover traffic, whose frame has the size `pad_to`.

        A dummy takes a number as a message does, and is not counted.
        """
        process = self._process(unix_s)
        seq = process.numbering.next(wire_topic)
        dummies = process.dummies.get(wire_topic, 0) + is_dummy
        frame = Frame(payload, int(unix_s * 1000), count=seq - dummies, is_cover=is_dummy)
        line = process.sealer.line(wire_topic, seq, frame, self._signer, pad_to)
        process.numbering.use(wire_topic, seq)
        process.dummies[wire_topic] = dummies
        return seq, line

    def cover_room(self, name: bytes, unix_s: float) -> int:
        """Returns how many bytes fit into each line of cover traffic on a topic, whatever its number."""
        wire_topic = encode_topic(self.place(name, unix_s))
        sealer = self._process(unix_s).sealer
        return sealer.room(wire_topic, SEQ_MAX, has_count=True)

    def _frame(self, process: _Process, wire_topic: bytes, seq: int, payload: bytes, unix_s: float) -> Frame:
        frame = Frame(payload, int(unix_s * 1000))
        if wire_topic in process.dummies:  # since which numbers and counts differ
            frame = frame._replace(count=seq - process.dummies[wire_topic])
        return frame

    def _process(self, unix_s: float) -> _Process:
        epoch = self._epoch(unix_s)
        process = self._processes.get(epoch.number)
        if process is None:
            held = {each.number for each in self._group().epochs}
            self._processes = {number: kept for number, kept in self._processes.items() if number in held}
            process = _Process(epoch, self._new_name(), self._entropy(32))
            self._processes[epoch.number] = process
        return process

    def _epoch(self, unix_s: float) -> Epoch:
        group = self._group()
        epoch = group.writing(unix_s)
        if epoch is None:
            raise GroupError(
                f"group {group.name}: none of its epochs whose keys you have holds now: nothing was sent. "
                f"Get a newer file from its owner, who makes one by 'kcast group renew {group.name}'"
            )
        if self._signer.key not in epoch.senders:
            raise GroupError(
                f"group {group.name} takes only messages of its senders, and {self._signer.key_text} is none "
                f"of them: nothing was sent. Its owner makes one a sender by 'kcast group add {group.name} "
                "WORD --sender'"
            )
        return epoch
