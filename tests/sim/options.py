"""What one seed stands for: the size of a world, its policy, its network and its faults."""

from dataclasses import dataclass, fields
from random import Random

from hashring.policy import Policy

DEFAULT = Policy()


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
    capacity: int = 100_000
    window_count: int = 65_536
    publishers_max: int = 4096
    avoid_dead: bool = True
    ipv6: bool = False
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
    faults: int = 0
    attacks: int = 0
    fault_s: float = 40.0

    @property
    def calm(self) -> bool:
        """Nothing may be lost there."""
        return not (self.loss or self.faults)

    @property
    def is_roomy(self) -> bool:
        """Whether the servers' tables have room for all, so that nobody is refused."""
        return self.capacity >= 1000

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
    return Options(
        seed=seed,
        servers=servers,
        servers_per_host=rng.choice((1, 1, 1, 2)),
        clients=rng.randint(2, 5),
        topics=rng.choice((1, 3, 8, 40)),
        subscriptions=rng.randint(1, 4),
        policy=_policy(rng, servers),
        ttl_s=rng.choice((6, 9, 15, 60)),
        capacity=100_000 if calm else rng.choice((100_000, 100_000, 100_000, 100_000, 5)),
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
