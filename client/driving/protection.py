"""The protection of a client's messages: makes writers and guards of what it is to sign and seal, and of what
others are to prove.

    identity, group -> writers, of what is published; what is sealed is signed, too
    senders, group  -> a guard for each subscription
    a newer epoch   -> all of them, within a minute

An engine has one of these where its user gives an identity, a group or senders, and else imports nothing of
this.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_bytes

from kcast.client.clusters.facts import shown
from kcast.client.core import ClientCore
from kcast.client.driving.arguments import CoverOptions, ReadOptions, WriteOptions
from kcast.client.driving.watches import Watches
from kcast.client.messages.envelope import new_publisher
from kcast.client.messages.guard_and_writer import AHEAD_S, BACK_S, TIMES_S_MAX, Guard, Writer
from kcast.client.messages.lines import Publisher, names_senders
from kcast.client.publishing.publications import REPEAT_INTERVAL_S, check_repeats
from kcast.client.publishing.waiters import Waiter
from kcast.client.sealed.cover import QUEUE_MAX, Cover, Covers
from kcast.client.sealed.group_watch import watch_of
from kcast.client.sealed.groups import load
from kcast.client.sealed.guards import Allows, SealedGuard, SignedGuard, Times, is_certified, senders_of
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import Group
from kcast.client.sealed.signing import Signer, parse_key
from kcast.client.sealed.topics import hash_of, parse_certified
from kcast.client.sealed.writers import Entropy, SealedWriter, SignedWriter
from kcast.pubsub.wire import TopicError


@dataclass(slots=True, eq=False)
class _Held:
    """A group in use, and the guards that go by it."""

    group: Group
    signer: Signer
    guards: list[SealedGuard] = field(default_factory=list)


class Protection:
    """What one client proves, and asks for. `covers` are its cover traffic.

    Keys and groups that are given by name are loaded. Raises KcastError where that fails. `entropy` returns
    bytes that nobody can guess; only simulations give another. Without `watches` no newer epoch is adopted.
    """

    def __init__(
        self,
        core: ClientCore,
        identity: Identity | str | Path | None,
        group: Group | str | Path | None,
        now: float,
        entropy: Entropy = token_bytes,
        watches: Watches | None = None,
    ) -> None:
        self.covers = Covers()
        self._core = core
        self._watches = watches
        self._entropy = entropy
        self._identity = identity if isinstance(identity, Identity | None) else Identity.load(identity)
        self._signer = None if self._identity is None else self._identity.signer
        self._held: dict[str, _Held] = {}
        self._logged: list[bytes] = []  # topics that have a sealed log
        self._writers: dict[object, SignedWriter | SealedWriter] = {}
        self._group = None if group is None else self._hold(group, now)
        self._usual: Writer | None = self.writer(WriteOptions(sign=None), now)

    # --- Publishing -----------------------------------------------------------------------------------

    def writer(self, options: WriteOptions, now: float) -> Writer | None:
        """Returns what makes the lines of a message; None where it is neither signed nor sealed.

        Raises ValueError where what is asked for cannot be had, and KcastError.
        """
        if not options:
            return self._usual
        sign, senders = options.get("sign"), options.get("senders")
        keys = frozenset() if senders is None else keys_of(senders)
        plain_topic = options.get("plain_topic", False)
        held = self._held_of(options.get("seal"), "seal", now)
        if held is not None:
            if sign is False:
                raise ValueError("what is sealed is signed: leave out sign=False, or give seal=False besides")
            key = (held.group.name, plain_topic, keys)
            return self._kept(key, lambda: self._sealing(held, keys, plain_topic=plain_topic))
        if sign and self._signer is None:
            raise ValueError("sign=True needs a key: give the client an identity, as Client(identity='key')")
        if plain_topic:
            raise ValueError("plain_topic is about the topics of a group: seal for one, or leave it out")
        signer = None if sign is False else self._signer
        if signer is not None:
            return self._kept((signer.key, keys), lambda: SignedWriter(self._publisher, signer, keys))
        if keys:
            raise ValueError("senders are those who sign, and here nobody does: give the client an identity")
        return None

    def writer_on(self, topic: bytes, options: WriteOptions, now: float, *, is_raw: bool) -> Writer | None:
        """Returns what makes the lines of messages of a topic, if they may be on it now. Raises what `writer`
        raises."""
        writer = self.writer(options, now)
        if writer is not None and is_raw:
            raise ValueError(
                "a raw message is neither signed nor sealed: leave raw out, or give sign=False and seal=False"
            )
        self.covers.refuse(topic, writer)
        return writer

    def writer_of_log(self, topic: bytes, now: float) -> SignedWriter | SealedWriter | None:
        """Returns what makes entries of a topic; None where they are neither signed nor sealed. Raises
        ValueError where cover traffic runs there."""
        writer = self.writer_on(topic, {}, now, is_raw=False)
        return writer if isinstance(writer, SignedWriter | SealedWriter) else None

    def begin_log(self, topic: bytes, guard: Guard | None, on_adopt: Callable[[], object]) -> None:
        """Takes note of a topic's log, which is told when its guard goes by a newer epoch."""
        if isinstance(guard, SealedGuard):
            guard.on_adopt = on_adopt
            self._logged.append(topic)

    def end_log(self, topic: bytes, guard: Guard | None) -> None:
        """Lets it go."""
        if isinstance(guard, SealedGuard):
            self._logged.remove(topic)
            self.end(guard)

    def cover(
        self,
        topic: bytes,
        options: CoverOptions,
        now: float,
        waits_for: Callable[[int, Waiter], None],
    ) -> Cover:
        """Begins cover traffic on a topic; `waits_for` is told who waits for which handle.

        Raises ValueError and TypeError for options that make no sense, and KcastError.
        """
        if not options.keys() >= {"rate", "size"}:
            raise TypeError("cover needs rate, in lines a second, and size, the bytes of the largest message")
        given = options.get("group")
        wanted: object = self._group if given is None else given
        if wanted is None or wanted is False:
            raise ValueError("cover traffic is sealed: give a group, as cover(topic, group='ops', ...)")
        plain_topic, senders = options.get("plain_topic", False), options.get("senders")
        sealing = WriteOptions(seal=given, plain_topic=plain_topic, senders=senders)
        writer = self.writer(sealing, now)
        assert isinstance(writer, SealedWriter)
        self.covers.refuse(topic, writer)
        if topic in self._logged and self._group and writer.group_name == self._group.group.name:
            raise ValueError(
                "a log of this topic is open, and what it says would stand out of cover traffic: close it"
            )
        repeat = options.get("repeat", 1)
        interval_s = options.get("repeat_interval_s", REPEAT_INTERVAL_S)
        check_repeats(repeat, interval_s)
        publish = partial(
            self._core.publish,
            repeat=repeat,
            repeat_interval_s=interval_s,
            confirm=options.get("confirm", True),
        )
        cover = Cover(
            topic,
            writer,
            publish,
            waits_for,
            now,
            now + self._core.clock_offset_s,
            rate=options["rate"],
            size=options["size"],
            queue_max=options.get("queue_max", QUEUE_MAX),
        )
        self.covers.begin(cover)
        return cover

    def _kept(
        self, key: object, make: Callable[[], SignedWriter | SealedWriter]
    ) -> SignedWriter | SealedWriter:
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = make()
        return writer

    def _publisher(self) -> Publisher:
        return self._core.publications.publisher

    def _sealing(self, held: _Held, keys: frozenset[bytes], *, plain_topic: bool) -> SealedWriter:
        return SealedWriter(
            lambda: held.group,
            self._entropy,
            lambda: new_publisher(self._core.rng),
            held.signer,
            has_plain_topics=plain_topic,
            senders=keys,
        )

    # --- Subscribing ----------------------------------------------------------------------------------

    def guard(self, topics: Sequence[bytes], options: ReadOptions, now: float) -> Guard | None:
        """Returns what judges the messages of a subscription; None where nothing is to be proven.

        Raises ValueError where that makes no sense, and KcastError.
        """
        unix_s = now + self._core.clock_offset_s
        given, times = options.get("senders"), _times_of(options)
        keys = None if given is None else keys_of(given)
        if keys is not None and not keys:
            raise ValueError("senders is empty: give the keys whose messages count, or leave it out")
        allows = allowed(topics, keys)
        group, seal = options.get("group"), options.get("seal")
        if group is not None and seal is False:
            raise ValueError(
                "group asks for sealed messages, and seal=False for clear text: give one of them"
            )
        held = self._held_of(seal if group is None else group, "group", now)
        if held is None and options.get("plain_topic"):
            raise ValueError("plain_topic is about the topics of a group: give one, or leave it out")
        if held is None and allows is None and not options.keys().isdisjoint(("back_s", "ahead_s")):
            raise ValueError("back_s and ahead_s are about messages that are proven: give senders or a group")
        if held is None:
            return None if allows is None else SignedGuard(allows, unix_s, times, self._own)
        guard = SealedGuard(
            held.group, unix_s, times, allows=allows, has_plain_topics=options.get("plain_topic", False)
        )
        held.guards.append(guard)
        return guard

    def _own(self) -> bytes:
        return b"%%@%b." % self._publisher().name.encode()

    def end(self, guard: Guard) -> None:
        """Lets a guard go whose subscription has ended."""
        for held in self._held.values():
            held.guards = [each for each in held.guards if each is not guard]

    # --- Groups ---------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Takes new names and secrets, as a forked process must, which has no cover traffic either."""
        self.covers = Covers()
        for writer in self._writers.values():
            if isinstance(writer, SealedWriter):
                writer.renew()

    def _adopt(self, held: _Held, group: Group, now: float) -> None:
        held.group = group
        for guard in held.guards:
            guard.adopt(group)
        self._core.places.look(now, self._core.clock_offset_s)

    def _held_of(self, given: "Group | str | Path | bool | None", option: str, now: float) -> _Held | None:
        """Returns the group that an option means: the client's, unless it says another one, or none."""
        if given is False:
            return None
        if given is True or given is None:
            if given is True and self._group is None:
                raise ValueError(f"{option}=True needs a group: give the client one, as Client(group='ops')")
            return self._group
        return self._hold(given, now)

    def _hold(self, given: Group | str | Path, now: float) -> _Held:
        if not isinstance(given, Group | str | Path):
            raise TypeError(f"a group is of type {type(given).__name__}: give a Group, its name, or its file")
        name = given.name if isinstance(given, Group) else str(given)
        held = self._held.get(name)
        if held is not None:
            if isinstance(given, Group) and given is not held.group:
                self._compare(held, given, now)
            return held
        identity = self._identity
        if not isinstance(given, Group):
            identity = identity or Identity.load()
            given = load(name, identity)
        known = self._held.get(given.name)
        if known is not None:  # it was named in another way before
            self._compare(known, given, now)
            self._held[name] = known
            return known
        if identity is None:
            raise ValueError(
                f"the group {given.name} needs its member's key, which signs, and opens epochs to come: give "
                "the client an identity, too, or the group's name"
            )
        held = self._held[name] = self._held[given.name] = _Held(given, identity.signer)
        if self._watches is not None and given.source:
            adopt = partial(self._adopt, held)
            self._watches.add(watch_of(given, identity, now, adopt, self._core.drops))
        return held

    def _compare(self, held: _Held, given: Group, now: float) -> None:
        """Goes by a group that is given again if it has a newer epoch. Raises ValueError for another group of
        this name: what is meant for the one must not be sealed for the other."""
        if given.owner != held.group.owner:
            raise ValueError(
                f"there are two groups {given.name}, of the owners {held.group.owner} and {given.owner}: use "
                "a client for each"
            )
        if given.newest > held.group.newest:
            self._adopt(held, given, now)


def keys_of(given: Iterable[str]) -> frozenset[bytes]:
    """Returns the keys that several texts of 43 characters mean. Raises ValueError and TypeError."""
    if isinstance(given, str):
        raise TypeError("senders is a str: give a list of keys")
    keys = set()
    for text in given:
        key = parse_key(text) if isinstance(text, str) else None
        if key is None:
            raise ValueError(f"{text!r} is no key: give the 43 characters that 'kcast key show' prints")
        keys.add(key)
    return frozenset(keys)


def allowed(topics: Sequence[bytes], keys: frozenset[bytes] | None) -> Allows | None:
    """Returns who may publish on some topics; None where anybody may. Raises TopicError where topics name
    their senders, and others than these, or not all topics do."""
    certified = [topic for topic in topics if names_senders(topic)]
    if keys is not None:
        of_keys = hash_of(keys)
        for topic in certified:
            if parse_certified(topic) != of_keys:
                raise TopicError(
                    f"{shown(topic.decode(errors='replace'))} names other keys than those given (--from, "
                    "senders=): give all that it names, and no others"
                )
        return senders_of(keys)
    if not certified:
        return None
    if len(certified) < len(topics):
        raise TopicError(
            "some of the topics name the keys of their senders (~) and others do not: subscribe to them "
            "apart, or give the keys (--from, senders=)"
        )
    return is_certified


def _times_of(options: ReadOptions) -> Times:
    times = Times(options.get("back_s", BACK_S), options.get("ahead_s", AHEAD_S))
    for name, value in zip(("back_s", "ahead_s"), times, strict=True):
        if not 0 < value <= TIMES_S_MAX:
            raise ValueError(f"{name} is {value}: give more than 0, and at most {TIMES_S_MAX:.0f} seconds")
    return times
