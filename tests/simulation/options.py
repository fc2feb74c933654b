"""What one seed stands for: the size of a world, its policy, its network and its faults."""

from dataclasses import dataclass, fields, replace
from random import Random

from kcast.client.session.allowance import TRY_S
from kcast.hashring.policy import Policy
from kcast.pubsub.limits import LINES_PER_DATAGRAM_MAX, Limits

DEFAULT = Policy()
ROOMY = Limits()
SCALE_EVERY = 50  # seeds; one of these is a large world
MANY = 1000  # what no world reaches: a limit from here on refuses nobody


@dataclass(frozen=True, slots=True)
class Options:
    """A world's settings. It is calm where the network loses nothing and no fault is planned."""

    seed: int = 0
    servers: int = 6
    servers_per_host: int = 1
    clients: int = 4
    topics: int = 4
    subscriptions: int = 2
    policy: Policy = DEFAULT
    ttl_s: int = 10
    table: str = "ttl"
    limits: Limits = ROOMY
    work_bits: int = 0
    tries_per_ms: int = 400
    try_s: float = TRY_S
    head: str = ""
    window_count: int = 65_536
    publishers_max: int = 4096
    avoid_dead: bool = True
    ipv6: bool = False
    dual: bool = False
    loss: float = 0.0
    uneven: bool = True
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_s: float = 0.03
    joined: float = 0.5
    unreachable: float = 0.0
    diverging: bool = False
    publish_interval_s: float = 2.0
    burst: float = 0.0
    together: float = 0.0
    faults: int = 0
    drains: int = 0
    attacks: int = 0
    hostile_servers: int = 0
    rogues: tuple[str, ...] = ()
    fault_s: float = 40.0

    @property
    def calm(self) -> bool:
        """Nothing may be lost there, but what a draining server cannot know of."""
        return not (self.loss or self.faults)

    @property
    def is_roomy(self) -> bool:
        """Whether the servers' tables have room for all, so that nobody is refused a lease."""
        limits = self.limits
        leases = limits.leases, limits.leases_per_address, limits.leases_per_prefix
        topics = limits.topics, limits.topics_per_prefix
        return min(*leases, *topics, limits.publishers) >= MANY

    @property
    def limits_rates(self) -> bool:
        """Whether a publisher may be refused for publishing too fast, or to too many."""
        return 0 < self.limits.publishes_per_s < MANY or 0 < self.limits.copies_per_s < MANY

    @property
    def limits_bytes(self) -> bool:
        """Whether copies may be refused, or come late, because they are too many bytes."""
        return bool(self.limits.uplink_bytes_per_s) or self.limits.egress_bytes_per_s < MANY**2

    @property
    def is_ample(self) -> bool:
        """Whether nobody is refused anything, nor sends bare lines in datagrams that are too long for a
        server: of those no client is told."""
        has_room_in_datagrams = self.limits.lines_per_datagram == LINES_PER_DATAGRAM_MAX
        limits_any_rate = self.limits_rates or self.limits_bytes
        return self.is_roomy and not limits_any_rate and has_room_in_datagrams

    @property
    def minting_s(self) -> float:
        """How long a client may have to compute, at the most, for all its leases."""
        bits = self.work_bits + (self.subscriptions - 1).bit_length()
        return (15 + self.servers) * 2**bits / (1000 * self.tries_per_ms) if self.work_bits else 0.0

    @property
    def renewal_interval_s(self) -> float:
        return min(self.ttl_s / 3, 25.0)

    def __str__(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def options_of_seed(seed: int) -> Options:
    """The settings that a seed stands for; every fifth seed is calm."""
    rng = Random(f"options {seed}")
    servers = rng.randint(2, 9)
    calm = seed % 5 == 0
    options = Options(
        seed=seed,
        servers=servers,
        servers_per_host=rng.choice((1, 1, 1, 2)),
        clients=rng.randint(2, 5),
        topics=rng.choice((1, 3, 8, 40)),
        subscriptions=rng.randint(1, 4),
        policy=_policy(rng, servers),
        ttl_s=rng.choice((6, 9, 15, 60)),
        limits=ROOMY if calm or rng.random() < 0.8 else Limits(leases=5, publishers=5),
        window_count=rng.choice((65_536, 65_536, 65_536, 48)),
        publishers_max=rng.choice((4096, 4)),
        avoid_dead=rng.random() < 0.7,
        ipv6=rng.random() < 0.2,
        loss=0.0 if calm else rng.choice((0.0, 0.02, 0.1, 0.3)),
        duplicate=rng.choice((0.0, 0.02, 0.2)),
        reorder=rng.choice((0.0, 0.1, 0.4)),
        delay_s=rng.choice((0.0005, 0.01, 0.06)),
        joined=rng.choice((0.0, 0.5, 1.0)),
        unreachable=rng.choice((0.0, 0.5, 1.0)),
        diverging=not calm and rng.random() < 0.25,
        publish_interval_s=rng.choice((1.5, 3.0, 6.0)),
        burst=rng.choice((0.0, 0.1)),
        faults=0 if calm else rng.randint(1, 8),
        attacks=rng.choice((0, 40, 80)),
        fault_s=15.0 if calm else rng.uniform(15.0, 45.0),
    )
    options = _with_admission(options, Random(f"admission {seed}"))
    options = _with_shares(options, Random(f"shares {seed}"))
    options = _with_hostile_servers(options, Random(f"hostile {seed}"))
    options = _with_rates(options, Random(f"rates {seed}"))
    options = replace(options, rogues=_rogues(Random(f"rogues {seed}")))
    options = replace(options, together=Random(f"together {seed}").choice((0.0, 0.1, 0.3)))
    return _at_scale(options) if seed % SCALE_EVERY == SCALE_EVERY - 1 else options


def _with_rates(options: Options, rng: Random) -> Options:
    """The same world, where copies and bytes are limited in some."""
    if options.calm or rng.random() < 0.7:
        return options
    limits = replace(
        options.limits,
        copies_per_s=rng.choice((2_000_000, 40)),
        egress_bytes_per_s=rng.choice((128 * 1024 * 1024, 4_000)),
        uplink_bytes_per_s=rng.choice((0, 20_000)),
    )
    return replace(options, limits=limits)


def _rogues(rng: Random) -> tuple[str, ...]:
    if rng.random() < 0.75:
        return ()
    kinds = ("overpublisher", "credit stealer", "liar", "replayer", "greedy", "flood")
    return tuple(rng.sample(kinds, rng.randint(1, 4)))


def _at_scale(options: Options) -> Options:
    """A world of 16 servers and 200 clients, for a shorter time, of which each says less.

    Where strangers are few that are answered, they are as many as come back from a restart in a ttl.
    """
    few = 20_000 if options.limits.challenges_per_s == 20_000 else 100
    return replace(
        options,
        servers=16,
        clients=200,
        topics=40,
        subscriptions=2,
        limits=replace(options.limits, challenges_per_s=few),
        ttl_s=max(15, options.ttl_s),
        hostile_servers=min(3, options.hostile_servers),
        publish_interval_s=20.0,
        burst=0.0,
        together=0.0,
        fault_s=8.0,
    )


def _with_hostile_servers(options: Options, rng: Random) -> Options:
    """The same world, where some servers lie. A try takes long there, so that not many are computed."""
    if rng.random() < 0.75:
        return options
    return replace(
        options,
        hostile_servers=rng.randint(1, max(1, options.servers // 2)),
        work_bits=rng.choice((0, 0, min(options.work_bits, 6))),
        tries_per_ms=25,
        try_s=4e-4,
    )


def _with_shares(options: Options, rng: Random) -> Options:
    """The same world, where one network may open few topics."""
    if options.calm:
        return options
    topics_per_prefix = rng.choice((*(10_000,) * 5, 3))
    return replace(options, limits=replace(options.limits, topics_per_prefix=topics_per_prefix))


def _with_admission(options: Options, rng: Random) -> Options:
    """The same world with servers that ask for work, have limits, or are restarted on purpose."""
    limits = options.limits
    if not options.calm:
        limits = replace(
            limits,
            leases_per_address=rng.choice((*(4_000,) * 5, 2)),
            leases_per_prefix=rng.choice((*(20_000,) * 5, 8)),
            topics=rng.choice((*(50_000,) * 5, 3)),
            lines_per_datagram=rng.choice((64, 64, 64, 8)),
            publishes_per_s=rng.choice((*(50_000,) * 3, 10)),
            challenges_per_s=rng.choice((20_000, 20_000, 20_000, 5)),
        )
    work_bits = rng.choice((0, 0, 0, rng.randint(4, 8)))
    drains = rng.choice((0, 0, 1, 3))
    if options.calm:
        # Each takes its time, and they come one after the other.
        drains = min(drains, 2) if options.policy.k > 1 and options.ttl_s < 60 else 0
    return replace(
        options,
        table=rng.choice(("ttl", "ttl", "fifo")),
        limits=limits,
        work_bits=work_bits,
        tries_per_ms=5 if work_bits in range(1, 7) and rng.random() < 0.3 else 400,
        head=rng.choice(("", "", "v=7")),
        drains=drains,
        dual=rng.random() < 0.25,
    )


def _policy(rng: Random, servers: int) -> Policy:
    k = rng.randint(1, 5)
    k_prime = rng.randint(1, k)
    few = max(1, servers // 2)
    return rng.choice(
        (
            Policy.from_scheme("S"),
            Policy.from_scheme("R", servers=servers, publish=few, subscribe=min(servers, few + 1)),
            Policy.from_scheme("CH", k=k),
            Policy.from_scheme("RCH", k=k, k_prime=k_prime, side="publish"),
            Policy.from_scheme("RCH", k=k, k_prime=k_prime, side="subscribe"),
            Policy(),
        )
    )
