"""The lines to publish at one server: those that wait there, and how they leave. Sans-IO.

PROTOCOL §4.2, §6.3, §7.2. A line leaves *vouched for*, with a cookie and for a receipt, or *bare* under a
publish lease, with a ping among or behind the lines. Lines that stay together are a *parcel*. A parcel that
was not answered is not sent here again: the core may draw another server for it. One that was refused because
of its cookie gets a second chance, and so does one that waits for an answer when a cookie like its own is
refused; one whose datagram was too large gets as many as it takes. Lines of a batch that were refused because
more was published than the server takes (`rate`) are sent again, slower; a single line is `refused`.

No more leaves at a time than the server's `Window` takes.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from kcast.client.events import Outcome
from kcast.client.session.requests import VOUCH_BYTES_MAX, Cookie, Kind, Parcel, Requests
from kcast.pubsub import wire
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, LINES_PER_DATAGRAM_MAX

WINDOW_BYTES = 65_536  # fits a buffer of 208 KiB, Linux' default, three times
WAIT_S = 0.01  # after which nothing counts as on its way any more; so a far server gets 6 MB/s
WAIT_S_MAX = 1.0  # ... where answers come later and later, since the server has more to do than it can
PAUSE_S = 0.02  # after a refusal for the rate: in it comes what a few datagrams need; longer ...
PAUSE_S_MAX = 0.5  # ... the longer nothing was taken
PATIENCE_S = 30.0  # for which a server may refuse all that is sent again

PING_INTERVAL_S = 1.0
PING_BYTES = WINDOW_BYTES // 2  # of bare lines, after which there is another ping, so that the window opens
_PONG_BYTES = len("%: 11-of-nonce 1000000 drain=1\n")  # a ping's datagram must be no shorter than its answer


class Settled(NamedTuple):
    """What became of parcels at this server.

    `audience` is the one that their receipt told, if it did; `reason` that of their refusal, "" for all else.
    """

    parcels: Collection[Parcel]
    outcome: Outcome
    audience: int | None = None
    reason: str = ""


class Outbox:
    """The parcels for one server; at most `parcels_max` of them wait.

    `go_on_at` is when those that wait for room in the `window` may leave at the latest; infinite where none
    does.
    """

    def __init__(self, requests: Requests, parcels_max: int) -> None:
        self.lease_until = -inf  # of the publish lease
        self.window = Window()
        self.go_on_at = inf
        self._parcels_max = parcels_max
        self._requests = requests
        self._queue: deque[Parcel] = deque()
        self._stuck: deque[Parcel] = deque()  # before the queue: they need a cookie, and may not go bare
        self._again: list[Parcel] = []  # to be sent again, before the queue
        self._settled: list[Settled] = []
        self._refused_at = inf  # first, since the last receipt ...
        self._refused_last = -inf  # ... and with no longer pause than patience lasts
        self._pinged_at = -inf
        self._pinged_bytes = 0  # that had left by then

    def __len__(self) -> int:
        return len(self._queue) + len(self._stuck) + len(self._again)

    def put(self, parcel: Parcel) -> bool:
        """Sends a parcel with the next datagrams; returns False where too many wait already."""
        if len(self._queue) + len(self._stuck) + len(self._again) >= self._parcels_max:
            return False
        self._queue.append(parcel)
        return True

    def take_settled(self) -> list[Settled]:
        """Returns what became of parcels since the last call."""
        settled, self._settled = self._settled, []
        return settled

    def settle(
        self,
        parcels: Collection[Parcel],
        outcome: Outcome,
        audience: int | None = None,
        reason: str = "",
    ) -> None:
        """Notes what became of these parcels."""
        if parcels:
            self._refused_at = inf if outcome is Outcome.RECEIPT else self._refused_at
            self._settled.append(Settled(parcels, outcome, audience, reason))

    def send_again(self, parcels: Collection[Parcel]) -> None:
        """Sends parcels again that the server could not carry out."""
        self._again += parcels

    def refused(self, parcels: Collection[Parcel], reason: str, now: float) -> None:
        """Takes a refusal. If the server takes no more now, lines of batches go again, slower, with those
        that were sent beside them, unless it took nothing for a while."""
        if now > self._refused_last + PATIENCE_S:
            self._refused_at = now
        self._refused_at, self._refused_last = min(self._refused_at, now), now
        is_patient = reason == "rate" and now < self._refused_at + PATIENCE_S
        if is_patient and any(parcel.numbers for parcel in parcels):
            self.window.refused(now, min(PAUSE_S + (now - self._refused_at) / 4, PAUSE_S_MAX))
            self.send_again(parcels)
        else:
            self.settle(parcels, Outcome.REFUSED, reason=reason)

    def try_again(self, parcels: Collection[Parcel]) -> None:
        """Sends parcels again that the server did not carry out, as often as each may be sent."""
        for parcel in parcels:
            parcel.tries_left -= 1
        self.settle([parcel for parcel in parcels if parcel.tries_left < 0], Outcome.NO_ANSWER)
        self._again += [parcel for parcel in parcels if parcel.tries_left >= 0]

    def wait_again(self) -> None:
        """Takes one try from each parcel, since the cookie that all wait for was asked for in vain."""
        self.try_again(self._take_all())

    def give_up(self) -> None:
        """Gives up all parcels, since there is no way to send them."""
        self.settle(self._take_all(), Outcome.NO_ANSWER)

    def _take_all(self) -> list[Parcel]:
        waiting = [*self._again, *self._stuck, *self._queue]
        self._again, self._stuck, self._queue = [], deque(), deque()
        return waiting

    def datagrams_to_send(
        self, now: float, cookie: Cookie | None, lines_max: int, *, may_go_bare: bool
    ) -> list[tuple[bytes, int]]:
        """Returns what can leave now: buffers, each with the size in bytes of the datagrams in it.

        `cookie` is one that serves to publish; without it, parcels wait unless they may go bare. `lines_max`
        counts all lines of a datagram.
        """
        self.go_on_at = inf
        if self._again:
            # Those of refused datagrams go back in order, sorted once for all of them.
            self._queue.extendleft(sorted(self._again, key=_order, reverse=True))
            self._again = []
        bare, vouched = self._take(cookie is not None, may_go_bare, now)
        sending = self._bare(bare, lines_max, now) if bare else []
        if cookie is not None and vouched:
            sending.append(_joined(list(self._vouched(vouched, cookie, lines_max, now))))
        if self.go_on_at < inf:
            self.go_on_at = self.window.opens_at
        return sending

    def _take(self, has_cookie: bool, may_go_bare: bool, now: float) -> tuple[list[Parcel], list[Parcel]]:
        """Takes what leaves now out of the queue: bare, and vouched for. Looks at nothing twice that has to
        wait for the same thing, since this is called for each message that is published meanwhile."""
        bare: list[Parcel] = []
        vouched: list[Parcel] = []
        queue, stuck = self._queue, self._stuck
        if has_cookie and stuck:
            queue.extendleft(reversed(stuck))
            stuck.clear()
        if not has_cookie and not may_go_bare:
            return bare, vouched
        room_bytes = self.window.room_bytes(now)
        while queue:
            if room_bytes <= 0:
                self.go_on_at = now
                break
            parcel = queue.popleft()
            if may_go_bare and not parcel.confirm:
                bare.append(parcel)
            elif has_cookie:
                vouched.append(parcel)
            else:
                stuck.append(parcel)
                continue
            room_bytes -= len(parcel.text)
        return bare, vouched

    def _bare(self, parcels: list[Parcel], lines_max: int, now: float) -> list[tuple[bytes, int]]:
        self.settle(parcels, Outcome.SENT)
        texts = [
            b"".join([parcel.text for parcel in group])
            for group in _grouped(parcels, DATAGRAM_BYTES_MAX, lines_max)
        ]
        mark = self.window.sent(sum(map(len, texts)), now)
        if now < self._pinged_at + PING_INTERVAL_S and mark < self._pinged_bytes + PING_BYTES:
            return [_joined(texts)]
        self._pinged_at, self._pinged_bytes = now, mark
        request = self._requests.open(Kind.PING, now)
        request.mark = mark
        ping = wire.format_line(wire.Ping(request.nonce))
        if len(texts) == 1 and len(ping) + len(texts[0]) <= DATAGRAM_BYTES_MAX and len(parcels) < lines_max:
            return [_joined([wire.pad(ping + texts[0], _PONG_BYTES)])]
        # By itself: servers take a burst of nothing but messages in one go.
        return [_joined(texts), _joined([wire.pad(ping, _PONG_BYTES)])]

    def _vouched(self, parcels: list[Parcel], cookie: Cookie, lines_max: int, now: float) -> Iterator[bytes]:
        for group in _grouped(parcels, DATAGRAM_BYTES_MAX - VOUCH_BYTES_MAX, lines_max - 1):
            request = self._requests.open(Kind.PUBLISH, now, cookie=cookie, parcels=group)
            vouch = wire.Vouch(request.nonce, cookie.text, None)
            datagram = wire.request_datagram(vouch, [parcel.text for parcel in group])
            request.mark = self.window.sent(len(datagram), now)
            yield datagram


class Window:
    """What is on its way to one server, so that bursts do not overrun buffers. `sent_bytes` counts all that
    was ever sent there.

    A burst that is longer than the receive buffer of a server is lost there, in part, and nobody is told. So
    a client sends a window's worth, and goes on when the server answers to some of it: by a receipt, or to a
    ping behind lines that need none. A server that is far away, or whose answer is lost, holds the rest up
    for a moment only; one whose answers come later than before gets no more than it works off. If it refuses
    some, half as much leaves at a time, after a pause, and more again with each answer.
    """

    def __init__(self) -> None:
        self.sent_bytes = 0
        self._taken_bytes = 0
        self._size_bytes = WINDOW_BYTES
        self._sent_at = self._closed_until = -inf
        self._fastest_s = inf  # of all answers
        self._wait_s = WAIT_S

    def room_bytes(self, now: float) -> int:
        """Returns how many bytes may leave now; at most those of one datagram less, where any may."""
        if now < self._closed_until:
            return 0
        if now >= self._sent_at + self._wait_s:
            self._taken_bytes = self.sent_bytes
        return self._size_bytes - (self.sent_bytes - self._taken_bytes)

    @property
    def opens_at(self) -> float:
        """When the wait is over, if no answer comes before."""
        return max(self._sent_at + self._wait_s, self._closed_until)

    def sent(self, size_bytes: int, now: float) -> int:
        """Notes what leaves; returns the mark of it, for `answered`."""
        self.sent_bytes += size_bytes
        self._sent_at = now
        return self.sent_bytes

    def answered(self, mark: int, took_s: float) -> None:
        """Takes it that the server has taken all up to a mark, since it has answered to what left then."""
        self._taken_bytes = max(self._taken_bytes, mark)
        self._fastest_s = min(self._fastest_s, took_s)
        self._wait_s = min(WAIT_S + 2 * (took_s - self._fastest_s), WAIT_S_MAX)
        self._size_bytes = min(self._size_bytes + DATAGRAM_BYTES_MAX, WINDOW_BYTES)

    def refused(self, now: float, pause_s: float) -> None:
        """Takes it that the server takes less than was sent."""
        self._size_bytes = max(self._size_bytes // 2, DATAGRAM_BYTES_MAX)
        self._closed_until = now + pause_s


def _order(parcel: Parcel) -> tuple[int, int]:
    return parcel.handle, parcel.numbers[0] if parcel.numbers else 0


def _grouped(parcels: Iterable[Parcel], size_bytes_max: int, lines_max: int) -> Iterator[list[Parcel]]:
    """Yields the parcels of each datagram, in order. Those with too many lines are cut."""
    if lines_max < LINES_PER_DATAGRAM_MAX - 1:
        parcels = [piece for parcel in parcels for piece in parcel.pieces(lines_max)]
    group: list[Parcel] = []
    size_bytes = line_count = 0
    for parcel in parcels:
        lines = len(parcel.numbers) or 1
        size_bytes += len(parcel.text)
        line_count += lines
        if size_bytes > size_bytes_max or line_count > lines_max:
            yield group
            group, size_bytes, line_count = [], len(parcel.text), lines
        group.append(parcel)
    yield group


def _joined(several: Sequence[bytes]) -> tuple[bytes, int]:
    """Returns datagrams in one buffer, and their size in bytes: all but the last are padded to the same size,
    so that the kernel can cut them (UDP_SEGMENT)."""
    if len(several) == 1:
        return several[0], len(several[0])
    size_bytes = max(map(len, several))
    return b"".join([*[wire.pad(datagram, size_bytes) for datagram in several[:-1]], several[-1]]), size_bytes
