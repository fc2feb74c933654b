"""What `kcast doctor` has observed, as values."""

from dataclasses import dataclass, field

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

HEADER_BYTES = {4: 28, 6: 48}  # of IP and UDP


def packet_bytes(address: Address) -> int:
    """Returns the size of the packet in which a full datagram travels to an address."""
    return DATAGRAM_BYTES_MAX + HEADER_BYTES[6 if ":" in address[0] else 4]


@dataclass
class Pings:
    """Pings of one size. `doubled_count` is how many answers came more than once."""

    size_bytes: int
    sent: int = 0
    rtts_s: list[float] = field(default_factory=list)
    doubled_count: int = 0

    @property
    def lost(self) -> int:
        """The number of pings without an answer."""
        return self.sent - len(self.rtts_s)


@dataclass
class Dealing:
    """What came of using a server as a client does, with `waited_s` at most for each step.

    A refusal is its reason. `price_bits` is the price of a new lease, `ttl_s` what a lease was promised for;
    None without a lease. `has_full_copy` says whether a message came back whose datagram has 1200 bytes; None
    where none was sent.
    """

    waited_s: float
    took_s: float = 0.0
    is_answered: bool = False
    is_leased: bool = False
    has_receipt: bool = False
    has_copy: bool = False
    has_full_copy: bool | None = None
    is_copy_marked: bool = False
    is_draining: bool = False
    is_too_dear: bool = False
    is_minting: bool = False
    tells_credit: bool = False
    lease_refusal: str = ""
    publish_refusal: str = ""
    forgotten_count: int = 0
    price_bits: int = 0
    ttl_s: float | None = None


@dataclass
class Idle:
    """Pauses without traffic, each with whether a copy came after it; None where the server did not forward
    one. Clients make pauses of `renewal_interval_s` at most."""

    outcomes: list[tuple[float, bool | None]] = field(default_factory=list)
    renewal_interval_s: float = 0.0

    @property
    def lived_s(self) -> float:
        """The longest pause after which a copy came, before the first after which none came."""
        return max((s for s, came in self.outcomes if came and s < self.died_s), default=0.0)

    @property
    def died_s(self) -> float:
        """The shortest pause after which no copy came; infinite where there is none."""
        return min((s for s, came in self.outcomes if came is False), default=float("inf"))


@dataclass
class Seen:
    """One address of a server, and what was observed there. `address` is None where its name has none.

    `has_other` says that the server has another address, which this machine can use. `no_family` and
    `send_error` say why it could not be asked: the system's words. `network_error` is what the network sent
    back instead of an answer, and `elsewhere` the address from which an answer came that should come from
    here. `unasked_count` lines came that answer nothing that was asked, of which the first begins with
    `unasked_first`. `path_bytes` is the largest packet that the kernel believes the path to take; None where
    it does not tell.
    """

    server: str
    label: str
    address: Address | None
    has_other: bool = False
    no_family: str = ""
    send_error: str = ""
    is_closed: bool = False
    network_error: str = ""
    elsewhere: Address | None = None
    small: Pings = field(default_factory=lambda: Pings(64))
    full: Pings = field(default_factory=lambda: Pings(1200))
    unasked_count: int = 0
    unasked_first: bytes = b""
    path_bytes: int | None = None
    dealing: Dealing | None = None
    idle: Idle | None = None

    @property
    def rtts_s(self) -> list[float]:
        """The round-trip times of all pings that were answered."""
        return [*self.small.rtts_s, *self.full.rtts_s]


@dataclass(frozen=True)
class Machine:
    """What was observed of this machine while the servers were examined.

    `receive_buffer_bytes` is what a client's socket got of `wanted_buffer_bytes`. `dropped_count` is the
    number of datagrams that the kernel dropped meanwhile for want of room, those of other programs too; None
    where it does not tell. `dropping_ports` are the ports whose sockets dropped something. `clock_jump_s` is
    by how much the time of day moved against the clock that only goes on. `unix_s` is the time of day at the
    end.
    """

    families: tuple[int, ...]
    receive_buffer_bytes: int
    wanted_buffer_bytes: int
    dropped_count: int | None
    dropping_ports: tuple[int, ...]
    suspended_s: float
    clock_jump_s: float
    unix_s: float


@dataclass(frozen=True)
class ListTimes:
    """The times of a signed list, in seconds since 1970 (PROTOCOL §10.4)."""

    valid_after_s: int
    fresh_until_s: int
    valid_until_s: int
