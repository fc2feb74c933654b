"""An HTTP server with a bounded number of threads, for what kcast offers beside its own protocol."""

import errno
import socket
import time
from collections import Counter
from contextlib import suppress
from http.server import HTTPServer
from socketserver import BaseRequestHandler, ThreadingMixIn
from threading import Lock
from typing import Any

from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.listen import ListenError
from kcast.pubsub.networks import networks_of

ACCEPT_PAUSE_S = 0.1  # after the system could not accept a connection, which goes on waiting


class BoundedHttpServer(ThreadingMixIn, HTTPServer):
    """Serves `connections_max` connections at a time, each in a thread.

    One more ends the oldest one of the network (IPv4 /24, IPv6 /64) that has the most. So stuck clients do
    not use up threads, and who opens many connections keeps nobody out but those of the same network. Behind
    a proxy all are of one network.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self, address: Address, handler: type[BaseRequestHandler], *, connections_max: int, option: str
    ) -> None:
        """Binds. Raises ListenError, which names the command's `option`, if that is not possible."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._connections_max = connections_max
        self._open: dict[socket.socket, bytes | str] = {}  # by network; the oldest first
        self._lock = Lock()
        try:
            super().__init__(address, handler)
        except OSError as error:
            where = format_address(address)
            if error.errno == errno.EADDRINUSE:
                raise ListenError(f"{where} is in use; give {option} another port") from None
            raise ListenError(f"{where} cannot be served on: {error.strerror or error}") from None

    @property
    def address(self) -> Address:
        """Where it serves; a port of 0 has become a real one."""
        return str(self.server_address[0]), self.server_port

    def server_bind(self) -> None:
        """Binds as HTTPServer does, but does not look up the machine's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accepts a connection. Raises OSError if the system cannot, as when no descriptor is left.

        The connection then goes on waiting, and whoever polls would be told of it again at once.
        """
        try:
            return super().get_request()
        except OSError:
            time.sleep(ACCEPT_PAUSE_S)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Takes every connection, and makes room for it."""
        network = _network_of(client_address[0])
        with self._lock:
            if len(self._open) >= self._connections_max:
                counts = Counter(self._open.values())
                counts[network] += 1
                most = max(counts.values())
                oldest = next(each for each, its in self._open.items() if counts[its] == most)
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread then finds the connection closed
            self._open[request] = network
        return True

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection. From then on its descriptor may belong to another."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a client has gone away."""


def _network_of(host: str) -> bytes | str:
    """Returns the narrowest network of an IP address; the address itself on loopback."""
    host = host.partition("%")[0]
    return next(iter(networks_of(host)), host)
