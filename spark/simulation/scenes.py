"""All scenes: the note's example, then the conditions that it leaves open.

Sizes make each figure as precise as its claim needs, with hundreds of blocks: from fewer, the effective
sample size could not be estimated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Literal

from kcast.hashring.model import blocked_share
from kcast.spark.simulation.scene import Group, Scene, Size

Form = Literal["few-publish", "few-subscribe"]
FORMS: tuple[Form, ...] = ("few-publish", "few-subscribe")
"""Forms of RCH, by the side that uses only K' servers: publishers (publish-to-K') or subscribers."""

R_ROOTS = (1.0, 2.0, 2.77)
"""R: the number of servers that each side draws, divided by the root of all servers."""

ATTACKED = (0.9, 0.5, 0.1)
"""RCH: delivered shares to which an attacker wants to reduce a topic."""


@dataclass(frozen=True, slots=True)
class NoteSettings:
    """The note's example by default. `effort` multiplies the number of blocks; `seed` is 0 .. 2**64 - 1.

    Raises ValueError for what cannot be simulated.
    """

    seed: int = 1
    effort: float = 1.0
    servers: int = 100_000
    k: int = 1000
    k_prime: int = 3
    down: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed is {self.seed}: give a whole number from 0 to 2**64 - 1")
        if not self.effort > 0:
            raise ValueError(f"effort is {self.effort}: give a number above 0")
        if not 2 <= self.k_prime < self.k <= self.servers // 2:
            raise ValueError(
                f"k_prime={self.k_prime}, k={self.k}, servers={self.servers}: needs 2 <= k_prime < k, and "
                "twice as many servers as k"
            )
        if not 0 < self.down < 1:
            raise ValueError(f"down is {self.down}: give a share between 0 and 1")


def scenes(settings: NoteSettings) -> tuple[Scene, ...]:
    """Returns all scenes, group after group. Names are unique."""
    makers = (_schemes, _draws, _loss, _views, _outages, _attack)
    return tuple(
        replace(scene, size=replace(scene.size, blocks=max(2, ceil(scene.size.blocks * settings.effort))))
        for maker in makers
        for scene in maker(settings)
    )


def roots(servers: int, factor: float) -> int:
    """R: the number of servers that is `factor` times the root of all."""
    return round(factor * sqrt(servers))


_EXAMPLE = Size(blocks=1000, epochs=1, topics=10, draws=1000, partners=10)
_USUAL = Size(blocks=400, epochs=1, topics=5, draws=500, partners=20)
_VIEWS = Size(blocks=200, epochs=1, topics=2, draws=250, partners=20)
_EPOCHS = Size(blocks=400, epochs=20, topics=1, draws=50, partners=10)  # epochs differ most
_CH = Size(blocks=400, epochs=5, topics=400, draws=1, partners=10)
_CH_DRAWS = Size(blocks=400, epochs=1, topics=200, draws=10, partners=10)  # messages differ
_S = Size(blocks=400, epochs=5, topics=200, draws=1, partners=10)
# Where all or nothing should come, only blocks count as independent, so there are many small ones.
_SURE = Size(blocks=2000, epochs=1, topics=1, draws=20, partners=20)
_R = Size(blocks=150, epochs=1, topics=1, draws=192, partners=192)


def _rch(settings: NoteSettings, form: Form, group: Group, name: str = "", size: Size = _USUAL) -> Scene:
    publish = settings.k_prime if form == "few-publish" else settings.k
    subscribe = settings.k if form == "few-publish" else settings.k_prime
    return Scene(
        name=f"rch-{form}{'-' if name else ''}{name}",
        group=group,
        ring="ideal",
        scheme="RCH",
        k=settings.k,
        publish=publish,
        subscribe=subscribe,
        servers=settings.servers,
        down=settings.down,
        size=size,
    )


def _ch(settings: NoteSettings, group: Group, name: str = "", size: Size = _CH) -> Scene:
    k = settings.k_prime
    return replace(
        _rch(settings, "few-publish", group, size=size),
        name=f"ch{'-' if name else ''}{name}",
        scheme="CH",
        k=k,
        publish=k,
        subscribe=k,
    )


def _s(settings: NoteSettings, group: Group, name: str = "") -> Scene:
    scene = _ch(settings, group, name, _S)
    return replace(
        scene, name=f"s{'-' if name else ''}{name}", ring="real", scheme="S", k=1, publish=1, subscribe=1
    )


def _r(settings: NoteSettings, group: Group, factor: float, name: str = "") -> Scene:
    count = roots(settings.servers, factor)
    return replace(
        _rch(settings, "few-publish", group, size=_R),
        name=f"r-{count}{'-' if name else ''}{name}",
        scheme="R",
        k=settings.servers,
        publish=count,
        subscribe=count,
    )


def _few(scene: Scene, k_prime: int) -> Scene:
    """Returns a scene of RCH with another K'."""
    return replace(scene, publish=k_prime) if scene.publishers_draw else replace(scene, subscribe=k_prime)


def _schemes(settings: NoteSettings) -> Iterator[Scene]:
    for form in FORMS:
        example = _rch(settings, form, "schemes", size=_EXAMPLE)
        yield replace(example, ring="real")
        yield replace(example, name=f"{example.name}-ideal", condition="as if a topic's order were random")
    on_ring = Size(blocks=200, epochs=50, topics=40, draws=1, partners=10)
    yield replace(_ch(settings, "schemes", size=on_ring), ring="real")
    yield replace(_ch(settings, "schemes", "ideal"), condition="as if a topic's order were random")
    yield _s(settings, "schemes")
    for factor in R_ROOTS:
        yield replace(_r(settings, "schemes", factor), condition=f"{factor:g} times the root of all servers")
    quarter = replace(settings, servers=settings.servers // 4)
    yield replace(
        _r(quarter, "schemes", R_ROOTS[-1], f"of-{quarter.servers}"), condition="a quarter of the servers"
    )
    yield replace(_ch(quarter, "schemes", f"of-{quarter.servers}"), condition="a quarter of the servers")


def _draws(settings: NoteSettings) -> Iterator[Scene]:
    sharp = replace(_USUAL, draws=2000, partners=5)
    for form in FORMS:
        for k_prime in range(1, settings.k_prime + 3):
            if k_prime not in (settings.k_prime, settings.k):
                scene = _few(_rch(settings, form, "draws", str(k_prime), size=sharp), k_prime)
                yield replace(scene, condition=f"K' = {k_prime}")


def _loss(settings: NoteSettings) -> Iterator[Scene]:
    for loss, enough in ((0.01, settings.k_prime + 1), (0.05, settings.k_prime + 2)):
        condition = f"{100 * loss:g} % of packets are lost on each leg"
        name = f"loss-{loss * 100:g}"
        for form in FORMS:
            yield replace(_rch(settings, form, "loss", name), loss=loss, condition=condition)
        yield replace(_ch(settings, "loss", name, _CH_DRAWS), loss=loss, condition=condition)
        if enough < settings.k:
            more = _few(_rch(settings, "few-publish", "loss", f"{name}-{enough}"), enough)
            yield replace(more, loss=loss, condition=f"{condition}, and K' = {enough}")


def _views(settings: NoteSettings) -> Iterator[Scene]:
    for known in (0.9, 0.5):
        condition = f"each client knows {100 * known:g} % of the servers, by chance"
        name = f"known-{known * 100:g}"
        for form in FORMS:
            scene = _rch(settings, form, "views", name, _VIEWS)
            yield replace(scene, ring="real", known=known, condition=condition)
        size = replace(_CH_DRAWS, topics=50, draws=20)
        yield replace(_ch(settings, "views", name, size), known=known, condition=condition)
        yield replace(_r(settings, "views", R_ROOTS[-1], name), known=known, condition=condition)
    yield replace(
        _s(settings, "views", "one-unknown"),
        lacks_one=True,
        condition="each subscriber's list lacks one server, by chance",
    )
    half = settings.k // 2
    for form in FORMS:
        scene = _rch(settings, form, "views", f"k-{half}")
        yield replace(
            scene,
            subscriber_k=half,
            subscribe=min(scene.subscribe, half),
            condition=f"subscribers use K = {half}, publishers {settings.k}",
        )
    fewer = settings.k_prime - 1
    yield replace(
        _ch(settings, "views", f"k-{fewer}"),
        subscriber_k=fewer,
        subscribe=fewer,
        condition=f"subscribers use K = {fewer}, publishers {settings.k_prime}",
    )


def _outages(settings: NoteSettings) -> Iterator[Scene]:
    all_up = replace(_rch(settings, "few-publish", "outages", "all-up", _SURE), outages="exact", down=0.0)
    yield replace(all_up, condition="no server is down")
    for form in FORMS:
        for zones in (10, 3):
            scene = _rch(settings, form, "outages", f"zones-{zones}", _EPOCHS)
            condition = f"servers fail together, in {zones} zones"
            yield replace(scene, outages="zones", zones=zones, condition=condition)
        for correlation in (0.05, 0.1):
            scene = _rch(settings, form, "outages", f"correlated-{correlation * 100:g}", _EPOCHS)
            condition = f"servers fail with a correlation of {correlation:g}"
            yield replace(scene, outages="shared", correlation=correlation, condition=condition)
    exact = round(settings.down * settings.servers)
    yield replace(
        _rch(settings, "few-publish", "outages", "exact"),
        outages="exact",
        condition=f"always {exact:,} servers are down, no more and no less",
    )
    for servers, k in ((100, 20), (20, 10)):
        down = round(settings.down * servers)
        if settings.k_prime < k:
            yield replace(
                _rch(settings, "few-publish", "outages", f"exact-of-{servers}", replace(_USUAL, blocks=2000)),
                k=k,
                subscribe=k,
                servers=servers,
                outages="exact",
                condition=f"a lab has {servers} servers, K = {k}, and always {down} are down",
            )


def _attack(settings: NoteSettings) -> Iterator[Scene]:
    k = settings.k
    shares = [blocked_share(delivered, settings.k_prime, 1 - settings.down) for delivered in ATTACKED]
    for form in FORMS:
        for blocked in sorted({*(round(share * k) for share in shares), k - 1, k}):
            size = _SURE if blocked == k else _USUAL
            scene = _rch(settings, form, "attack", f"blocked-{blocked}", size)
            yield replace(scene, blocked=blocked, condition=f"{blocked} of a topic's {k} servers are blocked")
        who = "publisher" if form == "few-publish" else "subscriber"
        yield replace(
            _rch(settings, form, "attack", "draw-known", replace(_SURE, draws=1)),
            draws_known=True,
            condition=f"just the {settings.k_prime} servers are blocked that one {who} has drawn",
        )
    for blocked in range(1, settings.k_prime + 1):
        yield replace(
            _ch(settings, "attack", f"blocked-{blocked}", _CH if blocked < settings.k_prime else _SURE),
            blocked=blocked,
            condition=f"{blocked} of a topic's {settings.k_prime} servers are blocked",
        )
    yield replace(
        _s(settings, "attack", "blocked-1"),
        size=_SURE,
        blocked=1,
        condition="the topic's one server is blocked",
    )
    for share in (0.5, 0.9, 0.99):
        yield replace(
            _r(settings, "attack", R_ROOTS[-1], f"blocked-{share * 100:g}"),
            blocked=round(share * settings.servers),
            condition=f"{100 * share:g} % of all servers are blocked",
        )
