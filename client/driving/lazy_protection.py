"""The protection of a client's messages, which is made where somebody asks for some: others need none of its
libraries."""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from kcast.client.core import ClientCore
from kcast.client.driving.arguments import CoverOptions, ReadOptions, WriteOptions, refuse_unknown
from kcast.client.messages.guard_and_writer import Guard, Writer
from kcast.client.messages.lines import names_senders
from kcast.client.publishing.waiters import Waiter
from kcast.client.trust.extras import require_trust

if TYPE_CHECKING:  # their libraries are those of an extra
    from kcast.client.driving.protection import Protection
    from kcast.client.driving.watches import Watches
    from kcast.client.sealed.cover import Cover
    from kcast.client.sealed.keys import Identity
    from kcast.client.sealed.membership import Group


class LazyProtection:
    """What a client signs, seals, and asks others to prove. It `is_used` once something of that is wanted.

    Raises KcastError where key or group cannot be used, or a library for them is missing.
    """

    def __init__(
        self,
        core: ClientCore,
        identity: "Identity | str | Path | None",
        group: "Group | str | Path | None",
        now: float,
        watches: "Watches | None" = None,
    ) -> None:
        self.is_used = False
        self._core = core
        self._watches = watches
        self._protection: Protection | None = None
        if identity is not None or group is not None:
            self._use(now, identity, group)

    @property
    def look_at(self) -> float:
        """When `look` has something to do; infinite for never."""
        return inf if self._protection is None else self._protection.look_at

    @property
    def begin_at(self) -> float:
        """When to begin with that: what comes of `look` is held back until `look_at`."""
        return inf if self._protection is None else self._protection.look_at - self._protection.lead_s

    def writer(self, topic: bytes, options: WriteOptions, now: float, *, is_raw: bool) -> Writer | None:
        """Returns what signs or seals messages of a topic, None where they go as they are. Raises ValueError,
        TypeError and KcastError."""
        if not self.is_used and not _ask(options, WriteOptions.__annotations__):
            return None
        protection = self._use(now)
        writer = protection.writer(options, now)
        if writer is not None and is_raw:
            raise ValueError(
                "a raw message is neither signed nor sealed: leave raw out, or give sign=False and seal=False"
            )
        protection.covers.refuse(topic, writer)
        return writer

    def cover(
        self, topic: bytes, options: CoverOptions, now: float, waits_for: Callable[[int, Waiter], None]
    ) -> "Cover":
        """Begins cover traffic on a topic; `waits_for` is told who waits for which handle. Raises ValueError,
        TypeError and KcastError."""
        refuse_unknown(options, "cover")
        return self._use(now).cover(topic, options, now, waits_for)

    def guard(self, topics: Sequence[bytes], options: ReadOptions, now: float) -> Guard | None:
        """Returns what judges the messages of a subscription; None where nothing is to be proven. Raises
        ValueError, TypeError and KcastError."""
        refuse_unknown(options, "subscribe")
        is_asked = self.is_used or _ask(options, ReadOptions.__annotations__)
        if not is_asked and not any(map(names_senders, topics)):
            return None
        return self._use(now).guard(topics, options, now)

    def end(self, guard: Guard) -> None:
        """Lets a guard go whose subscription has ended."""
        if self._protection is not None:
            self._protection.end(guard)

    def look(self, now: float) -> None:
        """Lets cover traffic go on."""
        if self._protection is not None:
            self._protection.covers.look(now)

    def renew(self) -> None:
        """Takes new names and secrets, as a forked process must."""
        if self._protection is not None:
            self._protection.renew()

    def close(self, make_error: Callable[[], BaseException]) -> None:
        """Ends what is under way; who waits for a message's tick is given the error."""
        if self._protection is not None:
            self._protection.covers.close(make_error)

    def _use(
        self,
        now: float,
        identity: "Identity | str | Path | None" = None,
        group: "Group | str | Path | None" = None,
    ) -> "Protection":
        if self._protection is None:
            require_trust("a signed message" if group is None else "a group")
            from kcast.client.driving.protection import Protection

            self._protection = Protection(self._core, identity, group, now, watches=self._watches)
            self.is_used = True
        return self._protection


def _ask(options: Mapping[str, object], known: Collection[str]) -> bool:
    """Whether options ask for anything but what is so by itself, or are none: `sign=False` needs no extra."""
    return any(
        name not in known or (value is not None and value is not False) for name, value in options.items()
    )
