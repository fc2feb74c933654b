"""Makes of what a program gives to a client's methods what the engine takes; errors say what to give."""

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict, TypeVar

from kcast.client.driving.inbox import Inbox
from kcast.client.errors import NoReceipt, did_you_mean
from kcast.client.events import Delivery, Published, PublishedMany
from kcast.client.layers.limit import FixedWindow

if TYPE_CHECKING:  # its libraries are those of an extra
    from kcast.client.sealed.membership import Group


class WriteOptions(TypedDict, total=False):
    """The options of all publishing that say how messages are signed and sealed. PROTOCOL §9.6, §9.7.

    - `sign`: whether to sign, with the client's `identity`; True by default where it has one. What is sealed
      is always signed.
    - `seal`: the group to seal for: a `Group`, its name, or its file. By default the client's `group`; with
      False the message travels in clear text, with True the client must have a group.
    - `plain_topic`: whether a group's topic travels under its own name; False by default.
    - `senders`: all the keys that the topic's name stands for (`~HASH/...`), where it is not this one alone.
    """

    sign: bool | None
    seal: "Group | str | Path | bool | None"
    plain_topic: bool
    senders: Iterable[str] | None


class PublishOptions(WriteOptions, total=False):
    """The options of `publish` and `publish_nowait`, which tell what each does and its default."""

    repeat: int
    repeat_interval_s: float
    confirm: bool
    raw: bool


class CoverOptions(TypedDict, total=False):
    """The options of `cover`, which tells what each does and its default."""

    rate: Required[float]
    size: Required[int]
    queue_max: int
    group: "Group | str | Path | None"
    plain_topic: bool
    senders: Iterable[str] | None
    repeat: int
    repeat_interval_s: float
    confirm: bool


class ReadOptions(TypedDict, total=False):
    """Options of `subscribe` that make it take only what is proven. PROTOCOL §9.6, §9.7.

    - `senders`: keys, each as the 43 characters that `kcast key show` prints. Only messages that one of them
      has signed are taken. A topic that names its senders (`~HASH/...`) needs none for a single key.
    - `group`: only messages sealed for this group are taken: a `Group`, its name, or its file. By default the
      client's.
    - `seal`: with False, clear text is taken though the client has a group.
    - `plain_topic`: whether the group's topics travel under their own names; False by default.
    - `back_s`, `ahead_s`: how long ago, and how far ahead of this clock, a message may have been sent: 120
      and 30 seconds by default, a day at most.
    """

    senders: Iterable[str]
    group: "Group | str | Path | None"
    seal: bool | None
    plain_topic: bool
    back_s: float
    ahead_s: float


class RequestOptions(TypedDict, total=False):
    """The options of `request`, which tells what each does and its default; `request_all` has no `to`."""

    method: str
    timeout_s: float
    to: str | None
    senders: Iterable[str] | None


class ServiceOptions(TypedDict, total=False):
    """The options of `service`, which tells what each does and its default."""

    concurrency: int
    limit: FixedWindow | None
    info: str
    senders: Iterable[str] | None


class HistoryOptions(TypedDict, total=False):
    """The options of `history`, which tells what each does and its default."""

    age_s: float
    count: int
    size_bytes: int
    limit: FixedWindow | None
    senders: Iterable[str] | None


OPTIONS = {
    "publish": dict.fromkeys(PublishOptions.__annotations__),
    "publish_many": dict.fromkeys(("confirm", "raw", *WriteOptions.__annotations__)),
    "subscribe": dict.fromkeys(("queue_max", "hold_s", "on_delivery", "limit", *ReadOptions.__annotations__)),
    "cover": dict.fromkeys(CoverOptions.__annotations__),
    "request": dict.fromkeys(RequestOptions.__annotations__),
    "request_all": dict.fromkeys(("method", "timeout_s", "senders")),
    "service": dict.fromkeys(ServiceOptions.__annotations__),
    "history": dict.fromkeys(HistoryOptions.__annotations__),
}
"""All options of a client's methods."""
PLAIN_OPTIONS = frozenset(("repeat", "repeat_interval_s", "confirm", "raw"))

AnyOutcome = TypeVar("AnyOutcome", Published, PublishedMany)


def split_options(options: PublishOptions) -> tuple[dict[str, Any], WriteOptions]:
    """Returns the options without those on signing and sealing, and these."""
    given: dict[str, Any] = {**options}
    writing: Any = {name: given.pop(name) for name in WriteOptions.__annotations__ if name in given}
    return given, writing


def refuse_unknown(given: Iterable[str], method: str, known: Collection[str] | None = None) -> None:
    """Raises TypeError where one of these is no option of a client's `method`, by default one of OPTIONS."""
    known = known or OPTIONS[method]
    for name in given:
        if name not in known:
            raise TypeError(f"{method} has no option {name}{did_you_mean(name, known)}")


Topics = str | bytes | Iterable[str | bytes]  # one, or several


def as_bytes(given: object, what: str) -> bytes:
    """Returns a str's UTF-8, or the bytes of bytes and other buffers of single bytes, such as bytearray.

    Raises TypeError; `what` names the argument in it.
    """
    if type(given) is bytes:
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes):
        return bytes(given)
    buffer: Any = given
    with suppress(TypeError, ValueError, BufferError), memoryview(buffer) as view:
        if view.ndim and view.itemsize == 1:  # numpy's scalars are numbers: they have no dimensions
            return bytes(view)
    kind = type(given).__name__
    raise TypeError(f"the {what} is of type {kind}: give str (its UTF-8 is sent), bytes or a buffer of bytes")


def as_payloads(given: object) -> list[bytes]:
    """Returns each of several payloads as bytes. Raises TypeError, also for a single one."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable) or _is_buffer(given):
        kind = type(given).__name__
        raise TypeError(f"payloads is of type {kind}: give a list of them, or use publish for a single one")
    several: Any = given
    return [each if type(each) is bytes else as_bytes(each, "payload") for each in several]


def confirmed(
    outcome: AnyOutcome, confirm: bool, asked_at: Callable[[], Mapping[str, Sequence[str]]]
) -> AnyOutcome:
    """Returns the outcome. Raises NoReceipt where receipts were asked for and none came; `asked_at` returns
    for it where each server was asked."""
    if confirm and not outcome.receipts and outcome.servers:
        raise NoReceipt(outcome, asked_at())
    return outcome


def plain_function(given: Callable[[Delivery], object] | None) -> Callable[[Delivery], object] | None:
    """Returns what it is given. Raises TypeError where that can be called, but would do nothing."""
    if given is not None and not callable(given):
        raise TypeError(f"on_delivery is of type {type(given).__name__}: give a function")
    if iscoroutinefunction(given):
        raise TypeError("on_delivery is a coroutine function: give a plain one, or iterate with async for")
    return given


def inboxes_of(sources: Iterable[object], engine: object) -> list[Inbox[Any]]:
    """Returns the inboxes of what a stream is to take. Raises TypeError; ValueError for another engine's."""
    inboxes = []
    for source in sources:
        inbox = getattr(source, "_inbox", None)
        if not isinstance(inbox, Inbox):
            kind = type(source).__name__
            raise TypeError(f"a source is of type {kind}: give subscriptions and events, one after the other")
        if getattr(source, "_engine", None) is not engine:
            raise ValueError("one of these belongs to another client: a stream is of one client's")
        inboxes.append(inbox)
    return inboxes


def as_topics(given: object) -> tuple[bytes, ...]:
    """Returns one topic, or each of several once, as bytes. Raises TypeError, and ValueError for none."""
    is_several = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    if is_several and not _is_buffer(given):
        several: Any = given
        topics = tuple(dict.fromkeys(as_bytes(topic, "topic") for topic in several))
        if not topics:
            raise ValueError("no topic is given: give one or more")
        return topics
    return (as_bytes(given, "topic"),)


def _is_buffer(given: Any) -> bool:
    try:
        with memoryview(given):
            return True
    except TypeError:
        return False


# --- Topics that look like patterns -------------------------------------------------------------------

# MQTT has `#` for all further levels of `a/b/c`, and `+` for one. NATS has `>` and `*` for those of `a.b.c`.
# Redis has `*` for any text. Who comes from there and subscribes to such a name would wait in vain.
# So: a whole level at the end; a whole level anywhere, beside others; or any text at the end.
_PATTERN = re.compile(rb"(?:^|[/.])[#>]$|(?:^|[/.:])\*(?:[/.:]|$)|\*$|(?:^|/)\+/|/\+$")


class WildcardWarning(UserWarning):
    """A topic looks like a pattern, but it is one topic: nothing else matches it.

    Where that is meant, `warnings.simplefilter("ignore", WildcardWarning)` silences it.
    """


def looks_like_a_pattern(topic: bytes) -> bool:
    """Returns whether a topic has `#`, `*`, `>` or `+` where MQTT, NATS or Redis have a wildcard.

    >>> [looks_like_a_pattern(topic) for topic in (b"weather/#", b"weather.*", b">", b"c#", b"a>b", b"2*3")]
    [True, True, True, False, False, False]
    """
    return _PATTERN.search(topic) is not None


def explanation(topic: str) -> str:
    """Returns what is wrong with subscribing to a topic that looks like a pattern, and what to do instead."""
    return (
        f"{topic} is one topic, and no pattern: topics are exact here. Name each topic, or publish on a "
        "common one too (docs/wildcards.md)"
    )


def warn_of_patterns(topics: Iterable[bytes], stacklevel: int) -> None:
    """Warns the caller, `stacklevel` calls up, of each topic that looks like a pattern."""
    for topic in filter(looks_like_a_pattern, topics):
        text = explanation(repr(topic.decode(errors="backslashreplace")))
        warnings.warn(text, WildcardWarning, stacklevel=stacklevel + 1)
