"""A scene: one scheme of the note under one condition, simulated in independent blocks."""

from dataclasses import dataclass
from typing import Literal

Group = Literal["schemes", "draws", "loss", "views", "outages", "attack"]
Outages = Literal["independent", "exact", "zones", "shared"]


@dataclass(frozen=True, slots=True)
class Size:
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
    `correlation`. `loss` is the share of packets lost on a leg.
    """

    name: str
    group: Group
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
    outages: Outages = "independent"
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
    """The attacker knows a draw, and blocks exactly its servers."""

    def __post_init__(self) -> None:
        if self.draws_known and self.size.draws != 1:
            raise ValueError(f"{self.name}: an attacker who knows a draw is after one alone: draws=1")
        if self.scheme == "R" and (self.loss or self.size.topics != 1 or self.outages != "independent"):
            raise ValueError(f"{self.name}: R is simulated for one topic, independent outages and no loss")
        if self.scheme == "R" and self.k != self.servers:
            raise ValueError(f"{self.name}: with R every server is every topic's: k={self.servers}")
        drawn_from = self.publish, self.subscribe, self.k, self.k_of_subscribers
        if self.scheme != "R" and drawn_from[0] != drawn_from[2] and drawn_from[1] != drawn_from[3]:
            raise ValueError(f"{self.name}: one of both sides uses all servers of a topic")
        if self.lacks_one and self.scheme != "S":
            raise ValueError(f"{self.name}: lacks_one is for S")
        if (self.blocked or self.draws_known) and self.known < 1:
            raise ValueError(f"{self.name}: what is blocked is of the topic's k, which differ with the views")

    @property
    def k_of_subscribers(self) -> int:
        """The K that subscribers use."""
        return self.k if self.subscriber_k is None else self.subscriber_k

    @property
    def publishers_draw(self) -> bool:
        """Whether messages draw, rather than subscribers."""
        return self.publish <= self.subscribe
