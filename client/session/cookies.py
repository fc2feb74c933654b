"""The cookies that one server has brought: the newest counts. Sans-IO. PROTOCOL §6."""

from typing import NamedTuple

COOKIE_MARGIN_S = 8.0  # stop using a cookie this long before the server stops taking it


class Cookie(NamedTuple):
    """A cookie (§6), when it was asked for, and in which era. An era ends when the server has forgotten
    us."""

    text: bytes
    asked_at: float
    era: int

    def serves(self, life_s: float, now: float) -> bool:
        """Returns whether the server will take it, with a margin. It is no older than the request for it."""
        return now - self.asked_at < life_s - COOKIE_MARGIN_S


class Cookies:
    """The newest cookie from one server, and the era in which we are there."""

    def __init__(self) -> None:
        self.era = 0
        self._newest: Cookie | None = None

    def keep(self, text: bytes, asked_at: float) -> bool:
        """Takes a cookie that answers a request of this time; returns False where a newer one is known."""
        if self._newest is not None and asked_at < self._newest.asked_at:
            return False
        self._newest = Cookie(text, asked_at, self.era)
        return True

    def serving(self, life_s: float, now: float) -> Cookie | None:
        """Returns the newest cookie if the server will take it at this age."""
        return self._newest if self._newest is not None and self._newest.serves(life_s, now) else None

    def is_of_now(self, cookie: Cookie | None) -> bool:
        """Whether a request showed a cookie, and one of this era."""
        return cookie is not None and cookie.era == self.era

    def begin_era(self) -> None:
        """Forgets the cookie, since the server has forgotten us."""
        self.era += 1
        self._newest = None
