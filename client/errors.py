"""The errors that clients raise, besides `TopicError` and `ClusterError`, and the end of some of them."""

from collections.abc import Iterable, Mapping, Sequence

from kcast.client.events import Outcome, Published, PublishedMany
from kcast.pubsub.errors import KcastError


class MessageTooLarge(KcastError, ValueError):
    """A message that does not fit in a datagram; the text tells its size, and how much fits."""


class Backlog(KcastError, RuntimeError):
    """Too many publishes still await their outcome: wait for some, or publish with `confirm=False`."""


class ClientClosed(KcastError, RuntimeError):
    """The client is not open: not yet, no longer, or not in this process. The text says which."""


class NoWorker(KcastError, RuntimeError):
    """Nobody who takes such requests is known on a topic, 1 s after the leases stand, nor has one begun with
    it. A worker that has just been started is known in a moment: ask again."""


class RequestTimeout(KcastError, TimeoutError):
    """A request has no answer in its time. `attempts` is the number of times that it was sent, and `worked`
    whether a worker said that it works on it: then it may have been done all the same."""

    def __init__(self, attempts: int, worked: bool) -> None:
        self.attempts, self.worked = attempts, worked
        super().__init__(attempts, worked)

    def __str__(self) -> str:
        if not self.attempts:
            return "the time was over before there was a worker to ask"
        said = "a worker has begun with it, and may have done it" if self.worked else "none said it began"
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"no answer in time, asked {times}: {said}"


class RemoteError(KcastError, RuntimeError):
    """A worker declines a request: `code` is a word of 1 to 16 letters a to z, `text` says more.

    A handler raises it with a code of its own. The others are `busy` and `leaving` (only where one worker
    alone may be asked), `limited` (the text is the number of seconds), `method`, `size` and `failed`.
    """

    def __init__(self, code: str, text: str = "") -> None:
        if not isinstance(code, str) or not isinstance(text, str):
            raise TypeError(f"code and text are {code!r} and {text!r}: give two of type str")
        self.code, self.text = code, text
        super().__init__(code, text)

    def __str__(self) -> str:
        return f"{self.code}: {self.text}" if self.text else self.code


class NoReceipt(KcastError, RuntimeError):
    """No server has given a receipt for a message, or for any of several that were published together.
    `outcome` tells what became of it, or of them, at each server. The text also says at which addresses those
    were asked that did not answer: `asked_at` has them by server.

    Where servers did not answer, they may have forwarded it all the same.
    """

    def __init__(
        self, outcome: Published | PublishedMany, asked_at: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.outcome, self.asked_at = outcome, asked_at or {}
        super().__init__(outcome, self.asked_at)  # pickle makes an error of its `args`

    def __str__(self) -> str:
        outcome = self.outcome
        told = ", ".join(
            f"{self._place(server, what)} {_said(what)}"
            + (f" ({outcome.reasons[server]})" if server in outcome.reasons else "")
            for server, what in outcome.servers.items()
        )
        which = f" for any of {outcome.messages} messages" if isinstance(outcome, PublishedMany) else ""
        return f"no server has given a receipt{which}: {told}"

    def _place(self, server: str, what: Outcome | Mapping[Outcome, int]) -> str:
        is_silent = Outcome.NO_ANSWER in ((what,) if isinstance(what, Outcome) else what)
        return place(server, self.asked_at.get(server, ()) if is_silent else ())


def place(server: str, addresses: Sequence[str]) -> str:
    """Returns a server's name, with the addresses where it was asked if that tells more.

    >>> place("a:1", ["192.0.2.1:1"]), place("[::1]:1", ["[::1]:1", "127.0.0.1:1"])
    ('a:1 (192.0.2.1:1)', '[::1]:1 and 127.0.0.1:1')
    """
    several = " and ".join(addresses)
    return several if server in addresses else f"{server} ({several})" if several else server


def _said(what: Outcome | Mapping[Outcome, int]) -> str:
    if isinstance(what, Outcome):
        return _SAID[what]
    return ", ".join(f"{_SAID[outcome]} {times} times" for outcome, times in what.items())


_SAID = {
    Outcome.RECEIPT: "gave one",
    Outcome.SENT: "was not asked for one",
    Outcome.NO_ANSWER: "did not answer",
    Outcome.REFUSED: "refused",
    Outcome.QUEUE_FULL: "has too many publishes waiting",
}


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns the end of a complaint that there is no `name`: the names that resemble it, if any do.

    >>> did_you_mean("bub", ["serve", "sub", "pub"]), did_you_mean("x", ["sub"])
    ('; did you mean sub or pub?', '')
    """
    from difflib import SequenceMatcher  # slow to import, and seldom needed

    names = list(names)
    close = [each for each in names if name.startswith(each) or (len(name) > 1 and each.startswith(name))]
    if not close:
        bare = name.strip("-")  # the dashes of options resemble each other always
        likeness = {each: SequenceMatcher(None, bare, each.strip("-")).ratio() for each in names}
        least = max(0.6, max(likeness.values(), default=0.0) - 0.05)
        close = [each for each, ratio in likeness.items() if ratio >= least]
    return f"; did you mean {' or '.join(close)}?" if close else ""
