"""All limits and lifetimes of the protocol and of a server, with their PROTOCOL sections."""

from dataclasses import dataclass, fields

DATAGRAM_BYTES_MAX = 1200  # §2.1: below every path MTU in use, so that nothing is ever fragmented
LINES_PER_DATAGRAM_MAX = 64  # §2.1: non-blank lines; bounds the work that one datagram can cause
LINES_PER_DATAGRAM_MIN = 2  # every server takes a vouch line, and one line that it vouches for
TOPIC_BYTES_MAX = 255  # §3.1: encoded

REQUEST_BYTES_MIN = 192  # §5.2: a `%?` or `%!` datagram is at least this long ...
REPLY_BYTES_MAX = 192  # §5.2: ... and no answer is longer, so no request is ever amplified
REQUEST_LINE_BYTES_MAX = 256  # §5.1: with LF; the longest without attributes has 82
NONCE_CHARS_MAX = 22
COOKIE_CHARS = 32

COOKIE_LEASE_LIFE_S = 128.0  # §6.2: age up to which a cookie serves for leases
COOKIE_PUBLISH_LIFE_S = 3600.0  # §6.2: age up to which a cookie serves for publishes
COOKIE_TIME_STEP_S = 1 / 65536  # §6.1: cookies tell when they were issued in steps of so much
COOKIE_EPOCH_S = 64.0  # §6.2: cookies of one epoch share a derived key

TTL_S_DEFAULT = 60.0  # N of the 2004 note
TTL_S_MAX = 9_999_999  # §5: a receipt has room for seven digits
AUDIENCE_MAX = 9_999_999  # §5.7: a larger audience is told as this
RENEWALS_PER_TTL = 3  # M of the 2004 note
RENEWAL_INTERVAL_S_MAX = 25.0  # §7.3: firewalls forget UDP flows after 30 s

FIFO_PROMISE_S_MIN = 10.0  # §7.5: more frequent renewals of a full table would keep a server busy
DRAIN_MARGIN_S = 5.0  # §7.6: a server drains this much longer than a renewal interval

CREDIT_BYTES_MIN = 64 * 1024  # §7.7: what an address is sent at least without a sign of life
CREDIT_MAX = 9_999_999_999  # §5.1: a receipt has room for ten digits
HEADER_BYTES = 66  # of a datagram on the wire: Ethernet with its gap and checksum, IPv4, UDP

OVERDRAWN_S = 10.0  # §5.9: a client that published too much must vouch for so long, so it hears of it

WORK_BITS_MAX = 24  # §5.11: the most that a client pays for a datagram: some seconds
WORK_DATAGRAM_BITS = 18  # §5.11: the most that a datagram of several leases need cost: some 0.1 s
LEASES_KEPT_FREE = 8  # §7.9: leases of one address whose renewal never has a price
HEAD_CHARS_MAX = 32  # §5.1: a receipt, a refusal and a head must fit in an answer
VERSION_CHARS_MAX = 32  # §5.1: the longest receipt has room for them where no refusal stands beside it

PUBLISHER_CHARS_MAX = 43  # §9.1

assert REPLY_BYTES_MAX <= REQUEST_BYTES_MIN <= DATAGRAM_BYTES_MAX
assert COOKIE_LEASE_LIFE_S <= COOKIE_PUBLISH_LIFE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server allows. Rates are per second, with bursts of one second; a rate of 0 is no limit.

    Raises ValueError for a value out of range.
    """

    leases: int = 100_000
    leases_per_address: int = 4_000  # an address is IP and port
    leases_per_prefix: int = 20_000  # a prefix is an IPv4 /24 or an IPv6 /48; loopback has no such limit
    topics: int = 50_000
    topics_per_prefix: int = 10_000  # a topic counts as that of the network that opened it
    publishers: int = 100_000  # with publish leases, and whose rates are remembered
    lines_per_datagram: int = LINES_PER_DATAGRAM_MAX
    # Of one IP; a network has a multiple (`networks.shares_of`), and on loopback each port has them.
    publishes_per_s: int = 50_000  # lines
    copies_per_s: int = 2_000_000  # caused by its publishes
    egress_bytes_per_s: int = 128 * 1024 * 1024  # caused by its publishes; also sent to it as a subscriber
    uplink_bytes_per_s: int = 0  # of copies in all, with their headers
    challenges_per_s: int = 20_000  # cookies for all strangers together; their pings have as many

    @property
    def stranger_answers_per_s(self) -> int:
        """How many answers strangers get: `challenges_per_s`, but at most an eighth of the uplink, or ten."""
        if not self.uplink_bytes_per_s:
            return self.challenges_per_s
        fitting = max(10, self.uplink_bytes_per_s // 8 // (REPLY_BYTES_MAX + HEADER_BYTES))
        return min(self.challenges_per_s or fitting, fitting)

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name.endswith("_per_s") else 1
            value = getattr(self, field.name)
            if value < least:
                raise ValueError(f"{field.name} is {value}: give {least} or more")
        if not LINES_PER_DATAGRAM_MIN <= self.lines_per_datagram <= LINES_PER_DATAGRAM_MAX:
            raise ValueError(
                f"lines_per_datagram is {self.lines_per_datagram}: "
                f"give {LINES_PER_DATAGRAM_MIN} to {LINES_PER_DATAGRAM_MAX}"
            )
