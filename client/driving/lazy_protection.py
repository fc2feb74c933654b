"""The protection of a client's messages, which is made where somebody asks for some: others need none of its
libraries."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kcast.client.core import ClientCore
from kcast.client.driving.arguments import CoverOptions, ReadOptions, WriteOptions, refuse_unknown
from kcast.client.driving.watches import Watches
from kcast.client.layers.limit import FixedWindow
from kcast.client.messages.guard_and_writer import Guard, Writer
from kcast.client.messages.lines import names_senders
from kcast.client.publishing.waiters import Waiter
from kcast.client.trust.extras import require_trust
from kcast.pubsub import clock

if TYPE_CHECKING:  # their libraries are those of an extra
    from kcast.client.driving.protection import Protection
    from kcast.client.sealed.cover import Cover
    from kcast.client.sealed.keys import Identity
    from kcast.client.sealed.membership import Group

_KNOWN = WriteOptions.__annotations__ | ReadOptions.__annotations__


class LazyProtection:
    """What a client signs, seals, and asks others to prove. `made` is None until something of that is wanted.

    Raises KcastError where key or group cannot be used, or a library for them is missing; its methods
    ValueError and TypeError besides, for options that make no sense.
    """

    def __init__(
        self,
        core: ClientCore,
        identity: "Identity | str | Path | None",
        group: "Group | str | Path | None",
        watches: "Watches | None" = None,
    ) -> None:
        self.made: Protection | None = None
        self._core = core
        self._watches = watches
        if identity is not None or group is not None:
            self._make(identity, group)

    def writer(self, topic: bytes, options: WriteOptions, now: float, *, is_raw: bool) -> Writer | None:
        """Returns what signs or seals messages of a topic, None where they go as they are."""
        if self.made is None and not _ask(options):
            return None
        return self._make().writer_on(topic, options, now, is_raw=is_raw)

    def cover(
        self, topic: bytes, options: CoverOptions, now: float, waits_for: Callable[[int, Waiter], None]
    ) -> "Cover":
        """Begins cover traffic on a topic; `waits_for` is told who waits for which handle."""
        refuse_unknown(options, "cover")
        return self._make().cover(topic, options, now, waits_for)

    def guard(
        self, topics: Sequence[bytes], options: ReadOptions, limit: FixedWindow | None, now: float
    ) -> Guard | None:
        """Returns what judges the messages of a subscription; None where nothing is to be proven,
        which is refused where a limit bans senders."""
        refuse_unknown(options, "subscribe")
        if not isinstance(limit, FixedWindow | None):
            kind = type(limit).__name__
            raise TypeError(f"the limit is of type {kind}: give FixedWindow(count, window_s)")
        guard = None
        if self.made is not None or _ask(options) or any(map(names_senders, topics)):
            guard = self._make().guard(topics, options, now)
        if guard is None and limit is not None and limit.ban_s:
            raise ValueError("ban_s needs proven keys, or others could have a sender left out: give senders")
        return guard

    def _make(
        self, identity: "Identity | str | Path | None" = None, group: "Group | str | Path | None" = None
    ) -> "Protection":
        if self.made is None:
            require_trust("a signed message" if group is None else "a group")
            from kcast.client.driving.protection import Protection

            self.made = Protection(self._core, identity, group, clock.now(), watches=self._watches)
        return self.made


def _ask(options: Mapping[str, object]) -> bool:
    """Whether options ask for anything but what is so by itself, or are none: `sign=False` needs no extra."""
    return any(
        name not in _KNOWN or (value is not None and value is not False) for name, value in options.items()
    )
