"""A plain socket that speaks the protocol to one server from an address of its own, as attackers do."""

import select
import socket
import time
from contextlib import suppress

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address

WAIT_S = 5.0
_TRY_S = 0.5


class WirePeer:
    """Use it with `with`. `source` is an IP of this machine; the port is any."""

    def __init__(self, server: Address, source: str = "") -> None:
        self._socket = socket.socket(
            socket.AF_INET6 if ":" in server[0] else socket.AF_INET, socket.SOCK_DGRAM
        )
        if source:
            self._socket.bind((source, 0))
        self._socket.connect(server)
        self._socket.setblocking(False)
        self._cookie = b""

    def __enter__(self) -> "WirePeer":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, datagram: bytes) -> None:
        """Sends a datagram, unless the kernel has no room for it."""
        with suppress(BlockingIOError, ConnectionRefusedError):
            self._socket.send(datagram)

    def take_bytes(self) -> int:
        """Takes all that has come; returns its bytes."""
        return sum(map(len, self.take()))

    def take(self) -> list[bytes]:
        """Takes all that has come."""
        taken = []
        while select.select([self._socket], [], [], 0)[0]:
            try:
                taken.append(self._socket.recv(65_536))
            except ConnectionRefusedError:
                continue
        return taken

    def request(self, datagram: bytes, nonce: bytes) -> wire.Reply:
        """Sends a request until it is answered; returns the answer. Raises TimeoutError."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            self.say(datagram)
            retry_at = time.monotonic() + _TRY_S
            while (left_s := retry_at - time.monotonic()) > 0:
                if select.select([self._socket], [], [], left_s)[0]:
                    for data in self.take():
                        reply = wire.parse_reply(data.split(b"\n")[0])
                        if reply is not None and reply.nonce == nonce:
                            return reply
        raise TimeoutError("the server does not answer")

    def cookie(self) -> bytes:
        """Asks for a cookie."""
        reply = self.request(wire.request_datagram(wire.Ask(b"asked")), b"asked")
        assert isinstance(reply, wire.Challenge), reply
        return reply.cookie

    def lease(self, *topics: bytes) -> bytes:
        """Takes leases; returns the datagram by which they can be renewed."""
        lines = [topic + b"\n" for topic in topics]
        reply = self.request(
            wire.request_datagram(wire.Vouch(b"leased", self.cookie(), None), lines), b"leased"
        )
        assert isinstance(reply, wire.Receipt), reply
        return wire.request_datagram(wire.Vouch(b"r", reply.cookie, None), lines)

    def open_publish_lease(self) -> wire.Receipt:
        """Opens a publish lease, or renews it."""
        reply = self.request(wire.request_datagram(wire.Vouch(b"opened", self.cookie(), None)), b"opened")
        assert isinstance(reply, wire.Receipt), reply
        return reply

    def vouched(self, lines: bytes) -> bytes:
        """Returns a datagram that publishes these lines with a cookie."""
        return wire.request_datagram(wire.Vouch(b"p", self.cookie(), None), [lines])

    def ask_for(self, *topics: bytes) -> None:
        """Asks for leases without waiting for an answer, with the newest cookie that has come."""
        for data in self.take():
            reply = wire.parse_reply(data.split(b"\n")[0])
            if isinstance(reply, (wire.Receipt, wire.Challenge)):
                self._cookie = reply.cookie
        if not self._cookie:
            self.say(wire.request_datagram(wire.Ask(b"ask")))
            return
        lines = [topic + b"\n" for topic in topics]
        self.say(wire.request_datagram(wire.Vouch(b"v", self._cookie, None), lines))
