"""An HTTP server with a bounded number of threads, for what kcast offers beside its own protocol."""

import errno
import socket
from contextlib import suppress
from http.server import HTTPServer
from socketserver import BaseRequestHandler, ThreadingMixIn
from threading import Lock
from typing import Any

from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.listen import ListenError


class BoundedHttpServer(ThreadingMixIn, HTTPServer):
    """Serves `connections_max` connections at a time, each in a thread; one more ends the oldest.

    So stuck clients do not use up threads or keep others out, as long as an answer takes milliseconds.
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
        self._open: dict[socket.socket, None] = {}  # the oldest first
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

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Accepts every connection, and makes room for it."""
        with self._lock:
            if len(self._open) >= self._connections_max:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread then finds the connection closed
            self._open[request] = None
        return True

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection. From then on its descriptor may belong to another."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a client has gone away."""
