"""The host of a lab: runs many servers on one event loop, and does to them what its owner asks.

    python -m kcast.loadtest.clusters.lab_host

The same loop reads standard input, so a request is carried out between two turns of servers.
"""

import asyncio
import gc
import os
from contextlib import ExitStack
from typing import BinaryIO

import uvloop

from kcast.loadtest.clusters.host_common import (
    Flags,
    Host,
    HostedServer,
    HostOptions,
    Refused,
    ServerState,
    allow_files,
    answer,
    say_cut_off,
    take_replies_output,
    write_all,
)
from kcast.pubsub.driver import Driver
from kcast.pubsub.listen import ListenError
from kcast.pubsub.log import Log, Losses, Report
from kcast.pubsub.process import make_server, open_tap, warn

_FILES_PER_SERVER = 3  # at most two sockets, and a tap


class _LabServer(HostedServer):
    """One server of the lab."""

    def __init__(self, index: int, options: HostOptions, flags: Flags) -> None:
        super().__init__(index)
        self.log = Log(label=self.key)
        self._options = options
        self._flags = flags
        self._driver: Driver | None = None
        self._parts = ExitStack()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts a life. Raises Refused."""
        settings = self._options.settings(self.index, self.lives + 1)
        with ExitStack() as parts:
            try:
                ports = self._options.open_sockets(self.index, self.port, self._flags)
                for port in ports:
                    parts.enter_context(port)
                parts.callback(say_cut_off, ports, self.log)
                addresses = [port.address for port in ports]
                self.port = addresses[0][1]
                tap = None
                if settings.tap is not None:
                    tap = open_tap(settings, settings.tap, addresses, self.log)
                    parts.enter_context(tap)
            except (ListenError, ValueError) as error:
                raise self.failure(str(error)) from None
            if not self.index and not self.lives:
                warn(settings, [ports], self.log)
            core = make_server(settings, addresses, tap)
            report = Report(self.log, lambda: Losses.of(core, ports))
            self._driver = Driver(core, ports, loop, report=report)
            self._driver.start()
            parts.callback(self._driver.stop)
            self._parts = parts.pop_all()
        self.process_id = os.getpid()
        self.lives += 1

    def end(self) -> None:
        """Ends it, after writing its tap to the end."""
        self.process_id = self._driver = None
        self.is_stalled = False
        self._parts.close()

    def stall(self) -> None:
        if self._driver is not None and not self.is_stalled:
            self.is_stalled = True
            self._driver.stop()

    def resume(self) -> None:
        if self._driver is not None and self.is_stalled:
            self.is_stalled = False
            self._driver.start()


class _LabHost(Host[_LabServer]):
    """Carries out the owner's requests."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._is_begun = False

    def open(self, count: int, options: list[str], tap_dir: str | None) -> None:
        parsed = HostOptions.of(count, options, tap_dir)
        if parsed.given.metrics is not None or parsed.given.log != "text":
            raise Refused("the servers' options: a lab has neither --metrics nor --log json")
        allow_files(count * _FILES_PER_SERVER)
        self.flags = bytearray(count)
        self.servers = [_LabServer(index, parsed, self.flags) for index in range(count)]

    def start(self, servers: list[int], timeout_s: float) -> list[ServerState]:
        starting = [index for index in servers if not self.servers[index].is_running]
        try:
            for index in starting:
                self.servers[index].start(self._loop)
        except BaseException:
            self.kill(starting)
            raise
        if not self._is_begun:
            self._is_begun = True
            gc.collect()
            gc.freeze()  # otherwise each collection would walk through what all servers have
        return self.states()

    def kill(self, servers: list[int]) -> list[ServerState]:
        for index in servers:
            self.servers[index].end()
        return self.states()

    def stop(self, servers: list[int]) -> list[ServerState]:
        return self.kill(servers)


async def _serve(replies: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    host = _LabHost(loop)
    heard = bytearray()

    def on_readable() -> None:
        read = os.read(0, 65_536)
        heard.extend(read)
        *lines, rest = heard.split(b"\n")
        heard[:] = rest
        try:
            for line in lines:
                write_all(replies.fileno(), answer(bytes(line), host.handlers))
        except BaseException as error:
            loop.remove_reader(0)
            if isinstance(error, BrokenPipeError):
                ended.set_result(None)
            else:
                ended.set_exception(error)
            return
        if not read:
            loop.remove_reader(0)
            ended.set_result(None)

    loop.add_reader(0, on_readable)
    await ended


def main() -> None:
    """Carries out requests until the owner is gone."""
    uvloop.run(_serve(take_replies_output()))


if __name__ == "__main__":
    main()
