"""Records of a tap, and the bytes that they are written as."""

from collections.abc import Callable

from kcast.pubsub.endpoint import Address, LeaseChange
from kcast.pubsub.tap_format import (
    Clock,
    Continued,
    Encoder,
    FileHead,
    Lost,
    Record,
    Standing,
    TapBurst,
    TapLease,
)

BOOT_ID = bytes.fromhex("0123456789abcdef")
SERVERS: tuple[Address, ...] = (("192.0.2.7", 7400), ("2001:db8::7", 7400))
A: Address = ("198.51.100.1", 1000)
B: Address = ("2001:db8::1", 65535)
CLOCK = Clock(5_000_000_000, 1_700_000_000_000_000_000)
LINES = (b"weather rain", b"weather sun", b"weather ")


RAIN, SUN, EMPTY = (
    bytes.fromhex(text) for text in ("6e6632f42b249669", "b1044d32922e8db7", "9afa1857089f2222")
)


PREAMBLE = "896b636173740d0a 00000001"
HEAD = (
    "01000044 0123456789abcdef 00000000 000000012a05f200 17979cfe362a0000 04626f6f74 07787868332d3634"
    " 02 1ce8 09 3139322e302e322e37 1ce8 0b 323030313a6462383a3a37"
)


NONE_STAND = "0600000c 000000012a05f200 00000000"
LEASE_OF_B = "ffff 0b 323030313a6462383a3a31 0007 77656174686572"


# What is done, its bytes, and what they are read as.
GOLDEN: tuple[tuple[Callable[[Encoder], object], str, tuple[Record, ...]], ...] = (
    (
        lambda tap: tap.begin_file(CLOCK),
        f"{PREAMBLE} {HEAD} {NONE_STAND}",
        (FileHead(BOOT_ID, 0, CLOCK, "boot", "xxh3-64", SERVERS), Standing(CLOCK.monotonic_ns, (), 0)),
    ),
    (
        lambda tap: tap.burst(5.25, A, b"weather", LINES),
        "0200000e 03e8 3139382e35312e3130302e31 03000007 77656174686572"
        " 04000024 0000000138eca480 0000 0000 6e6632f42b249669 b1044d32922e8db7 9afa1857089f2222",
        (TapBurst(5_250_000_000, A, b"weather", (RAIN, SUN, EMPTY)),),
    ),
    (
        lambda tap: tap.lease(6.0, LeaseChange.OPENED, b"weather", B),
        f"05000020 0000000165a0bc00 01 {LEASE_OF_B}",
        (TapLease(6_000_000_000, LeaseChange.OPENED, b"weather", B),),
    ),
    (
        lambda tap: tap.lease(7.0, LeaseChange.EXPIRED, b"ice", A),
        "0500001d 00000001a13b8600 02 03e8 0c 3139382e35312e3130302e31 0003 696365",
        (TapLease(7_000_000_000, LeaseChange.EXPIRED, b"ice", A),),
    ),
    (
        lambda tap: tap.lease(7.0, LeaseChange.EVICTED, b"ice", A),
        "0500001d 00000001a13b8600 03 03e8 0c 3139382e35312e3130302e31 0003 696365",
        (TapLease(7_000_000_000, LeaseChange.EVICTED, b"ice", A),),
    ),
    (
        lambda tap: tap.burst(5.5, A, b"weather", LINES[1:2]),
        "04000014 0000000147d35700 0000 0000 b1044d32922e8db7",
        (TapBurst(5_500_000_000, A, b"weather", (SUN,)),),
    ),
    (
        lambda tap: tap.lost(Lost(1, 2, 3, 4)),
        "07000020 0000000000000001 0000000000000002 0000000000000003 0000000000000004",
        (Lost(1, 2, 3, 4),),
    ),
    (
        lambda tap: tap.standing(9),
        f"06000023 0000000000000009 00000000 {LEASE_OF_B}",
        (Standing(9, ((b"weather", B),), 0),),
    ),
    (lambda tap: tap.clock(Clock(10, 11)), "09000010 000000000000000a 000000000000000b", (Clock(10, 11),)),
    (
        lambda tap: tap.continued(Clock(12, 13)),
        "0a000010 000000000000000c 000000000000000d",
        (Continued(Clock(12, 13)),),
    ),
)


GOLDEN_FILE = bytes.fromhex("".join(text for _, text, _ in GOLDEN))
GOLDEN_RECORDS = [record for _, _, records in GOLDEN for record in records]
