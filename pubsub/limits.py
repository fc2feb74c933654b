"""Every limit and lifetime of the protocol, in one place. PROTOCOL sections stand beside each."""

DATAGRAM_BYTES_MAX = 1200  # §2.1: below every path MTU in use, so that nothing is ever fragmented
LINES_PER_DATAGRAM_MAX = 64  # §2.1: non-blank lines; bounds the work that one datagram can cause
TOPIC_BYTES_MAX = 255  # §3.1: encoded

REQUEST_BYTES_MIN = 192  # §5.2: a `%?` or `%!` datagram is at least this long ...
REPLY_BYTES_MAX = 192  # §5.2: ... and no answer is longer, so no request is ever amplified
NONCE_CHARS_MAX = 22
COOKIE_CHARS = 32

COOKIE_LEASE_LIFE_S = 128.0  # §6.2: how old a cookie may be that asks for leases
COOKIE_PUBLISH_LIFE_S = 3600.0  # §6.2: how old a cookie may be that only publishes
COOKIE_EPOCH_S = 64.0  # §6.2: cookies of one epoch share a derived key

TTL_S_DEFAULT = 60.0  # N of the 2004 note
TTL_S_MAX = 9_999_999  # §5: a receipt has seven digits for it
RENEWALS_PER_TTL = 3  # M of the 2004 note
RENEWAL_INTERVAL_S_MAX = 25.0  # §7.3: firewalls forget UDP flows after 30 s

LEASES_MAX_DEFAULT = 100_000
PUBLISH_LEASES_MAX_DEFAULT = 100_000

PUBLISHER_CHARS_MAX = 43  # §9.1: base64url of a 256-bit hash

assert REPLY_BYTES_MAX <= REQUEST_BYTES_MIN <= DATAGRAM_BYTES_MAX
assert COOKIE_LEASE_LIFE_S <= COOKIE_PUBLISH_LIFE_S
