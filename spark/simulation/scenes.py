"""All scenes: the note's example, then the conditions that it leaves open. A scene is one scheme of the note
under one condition, simulated in independent blocks.

Sizes make each figure as precise as its claim needs, with hundreds of blocks: from fewer, the effective
sample size could not be estimated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any, Literal, NamedTuple

from kcast.hashring.model import blocked_share

Form = Literal["few-publish", "few-subscribe"]
FORMS: tuple[Form, ...] = ("few-publish", "few-subscribe")
"""Forms of RCH, by the side that uses only K' servers: publishers (publish-to-K') or subscribers."""

R_ROOTS = (1.0, 2.0, 2.77)
"""R: the number of servers that each side draws, divided by the root of all servers."""

ATTACKED = (0.9, 0.5, 0.1)
"""RCH: delivered shares to which an attacker wants to reduce a topic."""


@dataclass(frozen=True, slots=True)
class NoteSettings:
    """The note's example by default. `effort` multiplies the number of blocks; `seed` is 0 .. 2**64 - 1."""

    seed: int = 1
    effort: float = 1.0
    servers: int = 100_000
    k: int = 1000
    k_prime: int = 3
    down: float = 0.1


class Size(NamedTuple):
    """The amount of simulation for a scene.

    A block has `topics` topics on one set of servers, seen in `epochs` outage epochs, each with other servers
    down. In each epoch a topic has `draws` users of the side that draws few servers, and `partners` of the
    other side. With few publish these are messages and subscribers, with few subscribe the reverse. Where
    both sides use the same number of servers, messages draw.
    """

    blocks: int
    epochs: int
    topics: int
    draws: int
    partners: int

    @property
    def outcomes(self) -> int:
        """Number of messages times subscribers in all blocks."""
        return self.blocks * self.epochs * self.topics * self.draws * self.partners


@dataclass(frozen=True, slots=True)
class Scene:
    """One scheme under one condition.

    A message goes to `publish` of the `k` servers of a topic, and a subscriber is at `subscribe` of them;
    with R, `k` is `servers`. `down` is the share of servers down in an epoch. `outages` says how they fail:
    "independent"; "exact", with exactly this share down; "zones", all servers of a zone together; "shared",
    with an availability drawn anew in each epoch, so that two servers' states have the correlation
    `correlation`. `loss` is the share of packets lost on a leg. R is simulated for one topic, independent
    outages and no loss.
    """

    name: str
    group: Literal["schemes", "draws", "loss", "views", "outages", "attack"]
    ring: Literal["real", "ideal"]
    scheme: Literal["S", "R", "CH", "RCH"]
    k: int
    publish: int
    subscribe: int
    servers: int
    down: float
    size: Size
    condition: str = ""
    """What differs from the note's example, in words."""
    loss: float = 0.0
    outages: Literal["independent", "exact", "zones", "shared"] = "independent"
    zones: int = 0
    correlation: float = 0.0
    known: float = 1.0
    """Share of the servers that each client knows, each by chance."""
    lacks_one: bool = False
    """S: every subscriber's list lacks one random server."""
    subscriber_k: int | None = None
    """The K that subscribers use, if it is not that of publishers."""
    blocked: int = 0
    """Number of servers of each topic that an attacker blocks at random."""
    draws_known: bool = False
    """The attacker knows a draw, the only one of its topic, and blocks exactly its servers."""

    @property
    def k_of_subscribers(self) -> int:
        """The K that subscribers use."""
        return self.k if self.subscriber_k is None else self.subscriber_k

    @property
    def publishers_draw(self) -> bool:
        """Whether messages draw, rather than subscribers."""
        return self.publish <= self.subscribe


def scenes(settings: NoteSettings) -> tuple[Scene, ...]:
    """Returns all scenes, group after group. Names are unique."""
    makers = (_schemes, _draws, _loss, _views, _outages, _attack)
    every = [scene for maker in makers for scene in maker(settings)]
    blocks = [max(2, ceil(scene.size.blocks * settings.effort)) for scene in every]
    return tuple(
        replace(scene, size=scene.size._replace(blocks=number))
        for scene, number in zip(every, blocks, strict=True)
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


def _scene(settings: NoteSettings, group: str, name: str, **changes: Any) -> Scene:
    usual = {"ring": "ideal", "servers": settings.servers, "down": settings.down, "size": _USUAL}
    return Scene(name=name.removesuffix("-"), **{"group": group, **usual, **changes})


def _rch(settings: NoteSettings, form: Form, group: str, name: str = "", **changes: Any) -> Scene:
    few, many = changes.pop("k_prime", settings.k_prime), settings.k
    sides = (few, many) if form == "few-publish" else (many, few)
    usual = {"scheme": "RCH", "k": many, "publish": sides[0], "subscribe": sides[1]}
    return _scene(settings, group, f"rch-{form}-{name}", **{**usual, **changes})


def _ch(settings: NoteSettings, group: str, name: str = "", **changes: Any) -> Scene:
    k = settings.k_prime
    usual = {"scheme": "CH", "k": k, "publish": k, "subscribe": k, "size": _CH}
    return _scene(settings, group, f"ch-{name}", **{**usual, **changes})


def _s(settings: NoteSettings, group: str, name: str = "", **changes: Any) -> Scene:
    usual = {"scheme": "S", "ring": "real", "k": 1, "publish": 1, "subscribe": 1, "size": _S}
    return _scene(settings, group, f"s-{name}", **{**usual, **changes})


def _r(settings: NoteSettings, group: str, factor: float, name: str = "", **changes: Any) -> Scene:
    drawn = roots(settings.servers, factor)
    usual = {"scheme": "R", "k": settings.servers, "publish": drawn, "subscribe": drawn, "size": _R}
    return _scene(settings, group, f"r-{drawn}-{name}", **{**usual, **changes})


def _schemes(settings: NoteSettings) -> Iterator[Scene]:
    group, at_random = "schemes", "as if a topic's order were random"
    for form in FORMS:
        yield _rch(settings, form, group, ring="real", size=_EXAMPLE)
        yield _rch(settings, form, group, "ideal", size=_EXAMPLE, condition=at_random)
    on_ring = Size(blocks=200, epochs=50, topics=40, draws=1, partners=10)
    yield _ch(settings, group, ring="real", size=on_ring)
    yield _ch(settings, group, "ideal", condition=at_random)
    yield _s(settings, group)
    for factor in R_ROOTS:
        yield _r(settings, group, factor, condition=f"{factor:g} times the root of all servers")
    quarter = replace(settings, servers=settings.servers // 4)
    name, condition = f"of-{quarter.servers}", "a quarter of the servers"
    yield _r(quarter, group, R_ROOTS[-1], name, condition=condition)
    yield _ch(quarter, group, name, condition=condition)


def _draws(settings: NoteSettings) -> Iterator[Scene]:
    sharp = _USUAL._replace(draws=2000, partners=5)
    for form in FORMS:
        for few in range(1, settings.k_prime + 3):
            if few not in (settings.k_prime, settings.k):
                condition = f"K' = {few}"
                yield _rch(settings, form, "draws", str(few), k_prime=few, size=sharp, condition=condition)


def _loss(settings: NoteSettings) -> Iterator[Scene]:
    for loss, enough in ((0.01, settings.k_prime + 1), (0.05, settings.k_prime + 2)):
        name, condition = f"loss-{loss * 100:g}", f"{100 * loss:g} % of packets are lost on each leg"
        lossy: dict[str, Any] = {"group": "loss", "loss": loss}
        for form in FORMS:
            yield _rch(settings, form, name=name, condition=condition, **lossy)
        yield _ch(settings, name=name, size=_CH_DRAWS, condition=condition, **lossy)
        if enough < settings.k:
            condition = f"{condition}, and K' = {enough}"
            name = f"{name}-{enough}"
            yield _rch(settings, "few-publish", name=name, k_prime=enough, condition=condition, **lossy)


def _views(settings: NoteSettings) -> Iterator[Scene]:
    for known in (0.9, 0.5):
        views: dict[str, Any] = {"group": "views", "name": f"known-{known * 100:g}", "known": known}
        views["condition"] = f"each client knows {100 * known:g} % of the servers, by chance"
        for form in FORMS:
            yield _rch(settings, form, ring="real", size=_VIEWS, **views)
        yield _ch(settings, size=_CH_DRAWS._replace(topics=50, draws=20), **views)
        yield _r(settings, factor=R_ROOTS[-1], **views)
    condition = "each subscriber's list lacks one server, by chance"
    yield _s(settings, "views", "one-unknown", lacks_one=True, condition=condition)
    half = settings.k // 2
    for form in FORMS:
        condition = f"subscribers use K = {half}, publishers {settings.k}"
        scene = _rch(settings, form, "views", f"k-{half}", subscriber_k=half, condition=condition)
        yield replace(scene, subscribe=min(scene.subscribe, half))
    fewer = settings.k_prime - 1
    condition = f"subscribers use K = {fewer}, publishers {settings.k_prime}"
    yield _ch(settings, "views", f"k-{fewer}", subscriber_k=fewer, subscribe=fewer, condition=condition)


def _outages(settings: NoteSettings) -> Iterator[Scene]:
    exact: dict[str, Any] = {"form": "few-publish", "group": "outages", "outages": "exact"}
    yield _rch(settings, name="all-up", down=0.0, size=_SURE, condition="no server is down", **exact)
    for form in FORMS:
        often: dict[str, Any] = {"form": form, "group": "outages", "size": _EPOCHS}
        for zones in (10, 3):
            together: dict[str, Any] = {"outages": "zones", "zones": zones}
            condition = f"servers fail together, in {zones} zones"
            yield _rch(settings, name=f"zones-{zones}", condition=condition, **together, **often)
        for part in (0.05, 0.1):
            together = {"outages": "shared", "correlation": part}
            condition = f"servers fail with a correlation of {part:g}"
            yield _rch(settings, name=f"correlated-{part * 100:g}", condition=condition, **together, **often)
    down = round(settings.down * settings.servers)
    condition = f"always {down:,} servers are down, no more and no less"
    yield _rch(settings, name="exact", condition=condition, **exact)
    for servers, k in ((100, 20), (20, 10)):
        if settings.k_prime < k:
            lab: dict[str, Any] = {"servers": servers, "k": k, "subscribe": k}
            lab["size"] = _USUAL._replace(blocks=2000)
            down = round(settings.down * servers)
            condition = f"a lab has {servers} servers, K = {k}, and always {down} are down"
            yield _rch(settings, name=f"exact-of-{servers}", condition=condition, **lab, **exact)


def _attack(settings: NoteSettings) -> Iterator[Scene]:
    k, k_prime = settings.k, settings.k_prime
    shares = [blocked_share(delivered, k_prime, 1 - settings.down) for delivered in ATTACKED]
    for form in FORMS:
        for blocked in sorted({*(round(share * k) for share in shares), k - 1, k}):
            attack: dict[str, Any] = {"group": "attack", "name": f"blocked-{blocked}", "blocked": blocked}
            attack["condition"] = f"{blocked} of a topic's {k} servers are blocked"
            yield _rch(settings, form, size=_SURE if blocked == k else _USUAL, **attack)
        who = "publisher" if form == "few-publish" else "subscriber"
        condition = f"just the {k_prime} servers are blocked that one {who} has drawn"
        one = {"size": _SURE._replace(draws=1), "draws_known": True}
        yield _rch(settings, form, "attack", "draw-known", condition=condition, **one)
    for blocked in range(1, k_prime + 1):
        attack = {"group": "attack", "name": f"blocked-{blocked}", "blocked": blocked}
        attack["condition"] = f"{blocked} of a topic's {k_prime} servers are blocked"
        yield _ch(settings, size=_CH if blocked < k_prime else _SURE, **attack)
    condition = "the topic's one server is blocked"
    yield _s(settings, "attack", "blocked-1", size=_SURE, blocked=1, condition=condition)
    for share in (0.5, 0.9, 0.99):
        blocked, condition = round(share * settings.servers), f"{100 * share:g} % of all servers are blocked"
        name = f"blocked-{share * 100:g}"
        yield _r(settings, "attack", R_ROOTS[-1], name, blocked=blocked, condition=condition)
