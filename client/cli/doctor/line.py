"""A UDP socket of a check's own, used from within an event loop with one server."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from kcast.client.cli.trial import Trial
from kcast.pubsub import clock
from kcast.pubsub.endpoint import Address, Transmit, datagrams
from kcast.pubsub.udp import UdpPort, open_socket


class Line:
    """Use it with `with`. `is_closed` tells that the network says that nobody listens at the port.

    Raises OSError where there is no socket for the address's family.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_closed = False
        host = "::" if ":" in address[0] else "0.0.0.0"
        self._port = UdpPort(open_socket(host, 0, report_unreachable=True))
        self._readable = asyncio.Event()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._port.fileno(), self._readable.set)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._port.fileno())
        self._port.close()

    @property
    def send_error(self) -> str:
        """The name of the error of the first datagram that was not sent; nothing if all were."""
        # That nobody listens is told by an earlier datagram's answer.
        return next((name for name in self._port.send_errors if name != "ECONNREFUSED"), "")

    @property
    def network_error(self) -> str:
        """The name of the error that the network sent back instead of an answer: that of an unreachable host,
        and not that nobody listens, nor that a datagram is too long."""
        others = ("ECONNREFUSED", "EMSGSIZE")
        return next((name for name in self._port.receive_errors if name not in others), "")

    @property
    def is_refused(self) -> bool:
        """Whether system or network say that nothing gets through."""
        return self.is_closed or bool(self.send_error or self.network_error)

    def send(self, data: bytes, segment_bytes: int | None = None) -> None:
        """Sends a datagram, or several of this size."""
        self._port.send([Transmit(data, segment_bytes or len(data), (self.address,))])

    async def heard(self, until: float) -> list[tuple[bytes, Address]]:
        """Returns what has come, with its source: at once when something has, else at `until`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - clock.now())):
                await self._readable.wait()
        self._readable.clear()
        found = [
            (datagram, burst.source)
            for burst in self._port.receive()
            for datagram in datagrams(burst.data, burst.segment_bytes)
        ]
        self.is_closed |= self.address in self._port.unreachable()
        return found


async def converse(line: Line, trial: Trial, until: float, is_over: Callable[[], bool]) -> None:
    """Lets a trial and the server talk, until it is over or the time has come."""
    while not is_over() and clock.now() < until:
        await _turn(line, trial, until)


async def converse_in_steps(line: Line, trial: Trial, step_s: float, is_over: Callable[[], bool]) -> None:
    """Lets a trial and the server talk, until it is over, or no step of the trial was done for `step_s`."""
    progress, until = trial.progress, clock.now() + step_s
    while not is_over() and clock.now() < until:
        await _turn(line, trial, until)
        if trial.progress > progress:
            progress, until = trial.progress, clock.now() + step_s


async def _turn(line: Line, trial: Trial, until: float) -> None:
    for data, segment_bytes in trial.datagrams_to_send(clock.now()):
        line.send(data, segment_bytes)
    trial.work(clock.now())
    for datagram, source in await line.heard(min(until, trial.next_timeout())):
        if source == line.address:
            trial.take(datagram, clock.now())
    trial.look(clock.now())
    await asyncio.sleep(0)  # other servers are examined meanwhile
