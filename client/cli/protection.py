"""What commands sign and seal, and whose messages they take: options, and what is made of them."""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from kcast.client.cli import file_news
from kcast.client.cli.common import Number, argument_bytes, say
from kcast.client.cli.groups.names import complete_joined
from kcast.client.cli.own_key import identity_of
from kcast.client.cli.own_key import key_option as key_option
from kcast.client.clusters.cluster import Cluster
from kcast.client.clusters.facts import shown
from kcast.client.driving.arguments import ReadOptions, WriteOptions
from kcast.client.errors import MessageTooLarge
from kcast.client.events import ClockDoubt, ClusterChanged, Event, FamilyMissing, GroupTrouble
from kcast.client.messages.guard_and_writer import AHEAD_S, BACK_S, TIMES_S_MAX
from kcast.client.messages.lines import names_senders, room, too_large
from kcast.client.publishing.publications import NEEDS_KEY
from kcast.client.trust.extras import require_trust
from kcast.pubsub.errors import KcastError
from kcast.pubsub.wire import TopicError, encode_topic

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kcast.client.sealed.keys import Identity
    from kcast.client.sealed.membership import Group
    from kcast.client.sealed.writers import SealedWriter

KEYS_FILE_BYTES_MAX = 1 << 20
KEY_CHARS = 43

_Command = TypeVar("_Command", bound=Callable[..., Any])


# --- Options -----------------------------------------------------------------------------------------


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Makes the shell complete files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def seal_option(text: str) -> Callable[[_Command], _Command]:
    """Adds the option `--seal`, as parameter `group_name`."""
    return click.option(
        "--seal", "group_name", metavar="NAME|FILE", shell_complete=complete_joined, help=text
    )


def from_option(text: str) -> Callable[[_Command], _Command]:
    """Adds the option `--from`, as parameter `senders`."""
    return click.option(
        "--from", "senders", metavar="KEY|FILE", multiple=True, shell_complete=complete_files, help=text
    )


def _time_option(name: str, default_s: float, text: str) -> Callable[[_Command], _Command]:
    return click.option(
        f"--{name}",
        f"{name}_s",
        type=Number(min=0, max=TIMES_S_MAX, min_open=True),
        metavar="SECONDS",
        help=f"{text} [default: {default_s:g}]",
    )


back_option = _time_option("back", BACK_S, "With proof: take no message that was sent longer ago.")
ahead_option = _time_option(
    "ahead", AHEAD_S, "With proof: take no message that was sent further ahead of this clock."
)
plain_topic_option = click.option(
    "--plain-topic",
    is_flag=True,
    help="With --seal: use the topic's own name, instead of one that only the group understands.",
)


def require(is_lacking: bool, given: str, needed: str) -> None:
    """Raises click.UsageError where an option is given without another one that it belongs to."""
    if is_lacking:
        raise click.UsageError(f"{given} goes with {needed}: give that too, or leave {given} out")


# --- Keys --------------------------------------------------------------------------------------------


def keys_of(values: Iterable[str]) -> list[str]:
    """Returns the keys that the values of `--from` name, each of which is a key, or a file of keys.

    Raises KcastError.
    """
    keys: list[str] = []
    for value in values:
        if key := _key(value):
            keys.append(key)
        else:
            keys += _keys_in(value)
    return list(dict.fromkeys(keys))


def _key(text: str) -> str:
    """Returns a key as it is written; "" for anything else."""
    from kcast.client.sealed.signing import key_text, parse_key

    key = parse_key(text) if len(text) == KEY_CHARS else None
    return "" if key is None else key_text(key)


def _keys_in(name: str) -> list[str]:
    """Returns the keys in a file: one a line, where empty lines, and what follows a #, say nothing."""
    try:
        if not name:  # Path("") is this folder
            raise FileNotFoundError
        with Path(name).open("rb") as file:
            data = file.read(KEYS_FILE_BYTES_MAX + 1).removeprefix(BOM_UTF8)
    except (FileNotFoundError, IsADirectoryError, ValueError):
        raise KcastError(
            f"--from: {shown(name)} is neither a key, which has {KEY_CHARS} characters, nor a file of keys: "
            "give the line 'key' of the sender's 'kcast key show'"
        ) from None
    if len(data) > KEYS_FILE_BYTES_MAX:
        raise KcastError(f"{name}: more than {KEYS_FILE_BYTES_MAX} bytes: give a file of keys, one a line")
    keys = []
    for number, line in enumerate(data.split(b"\n"), 1):
        text = line.partition(b"#")[0].decode("utf-8", "backslashreplace").strip()
        if text and not (key := _key(text)):
            raise KcastError(
                f"{name}:{number}: expected a key of {KEY_CHARS} characters, the line 'key' of "
                "'kcast key show', and no more"  # which is not shown: the file may be one of secrets
            )
        if text:
            keys.append(key)
    if not keys:
        raise KcastError(
            f"{name}: there is no key in it: write one a line, the line 'key' of 'kcast key show'"
        )
    return keys


# --- Key and group -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Credentials:
    """A user's key, and a group that it opens; None where no option asks for them."""

    identity: "Identity | None" = None
    group: "Group | None" = None

    @classmethod
    def load(cls, command: str, key_name: str | None, group_name: str | None) -> "Credentials":
        """Reads key and group, and says what is wrong with a group that can be used. Raises KcastError."""
        require_trust("a signed message" if group_name is None else "a sealed message")
        identity = identity_of(key_name)
        if group_name is None:
            return cls(identity)
        from kcast.client.sealed.groups import load

        group = load(group_name, identity)
        for trouble in group.troubles:
            say(command, file_news.told(trouble))
        return cls(identity, group)

    def told(self, event: Event, cluster: Cluster, of: Callable[[bytes], str] = lambda _: "") -> str:
        """Returns what a command that goes on says of an event that is about servers, a group or a clock; ""
        for nothing, which is the case for what `load`, or another event, has said. `of` says which topic it
        is about."""
        match event:
            case ClockDoubt(topic, sender, off_s):
                off = f"{abs(off_s):.0f} s {'behind' if off_s > 0 else 'ahead'}"
                return (
                    f"this machine's clock seems to be {off}, or that of the key {sender} to be wrong: for a "
                    f"minute no message{of(topic)} was in time; set the clock"
                )
            case FamilyMissing(server, family):
                return f"cannot reach {server}: no IPv{family} here"
            case GroupTrouble() if self.group is not None and event in self.group.troubles:
                return ""
            case ClusterChanged() if cluster.is_signed:
                return ""  # ListChanged says it
        return file_news.told(event) if isinstance(event, file_news.News) else ""


class Writing(NamedTuple):
    """How a command publishes: what its client is opened with, the options of each publish, and the topic on
    which the messages travel when it begins. What `writer` makes is never sent."""

    credentials: Credentials
    options: WriteOptions
    place: bytes
    writer: "SealedWriter | None" = None

    def too_large(self, size_bytes: int) -> str:
        """Returns what to say of a payload that no message holds."""
        if self.writer is not None:
            try:
                self.writer.lines(self.place, [bytes(size_bytes)], time())  # the size alone is looked at
            except MessageTooLarge as error:
                return str(error)
        fits = room(encode_topic(self.place))
        if self.credentials.identity is not None:
            from kcast.client.sealed.signing import SIGNATURE_CHARS

            taken = SIGNATURE_CHARS + len(";t=") + len(str(int(time() * 1000)))
            return too_large(size_bytes, fits.without(taken), has_more=True)
        return too_large(size_bytes, fits)


def require_of_writing(*, raw: bool, **given: Any) -> None:
    """Raises click.UsageError where options exclude each other, or one lacks what it belongs to."""
    is_signed, is_sealed = given["is_signed"], given["group_name"] is not None
    if raw and (is_signed or is_sealed):
        which, name = ("--sign", "is_signed") if is_signed else ("--seal", "group_name")
        source, way = click.get_current_context().get_parameter_source(name), "leave out one of them"
        if source is ParameterSource.DEFAULT:
            which += " (of the context)" if is_signed else " (of a context, or of KCAST_SEAL)"
            way = "leave out --raw" if is_signed else "give --seal '', or leave out --raw"
        raise click.UsageError(f"--raw leaves out the envelope, which {which} needs: {way}")
    require(given["key_name"] is not None and not is_signed and not is_sealed, "--key", "--sign or --seal")
    require(given["plain_topic"] and not is_sealed, "--plain-topic", "--seal")
    require(bool(given["senders"]) and not is_signed and not is_sealed, "--from", "--sign or --seal")


def writing(
    command: str,
    topic: bytes,
    *,
    is_signed: bool,
    group_name: str | None,
    key_name: str | None,
    plain_topic: bool,
    senders: Iterable[str],
) -> Writing:
    """Returns how a topic is published on; sees that it can be. Raises KcastError."""
    if not is_signed and group_name is None:
        if names_senders(topic):
            raise TopicError(f"{NEEDS_KEY} (--sign --key NAME)")
        return Writing(Credentials(), WriteOptions(), topic)
    keys = keys_of(senders)
    credentials = Credentials.load(command, key_name, group_name)
    return _tried(topic, credentials, _asked(plain_topic=plain_topic, senders=keys))


def _tried(topic: bytes, credentials: Credentials, options: WriteOptions) -> Writing:
    """Makes a message that is not sent, and so sees that one can be. Raises KcastError."""
    from secrets import token_bytes

    from kcast.client.driving import protection
    from kcast.client.sealed.writers import SealedWriter, require_own_topic

    identity, group = credentials.identity, credentials.group
    assert identity is not None
    senders = protection.keys_of(options.get("senders") or ())
    if group is None:
        require_own_topic(topic, identity.signer, senders)
        return Writing(credentials, options, topic)
    writer = SealedWriter(
        lambda: group,
        token_bytes,
        lambda: "trial",
        identity.signer,
        has_plain_topics=options.get("plain_topic", False),
        senders=senders,
    )
    now = time()
    place = writer.place(topic, now)
    writer.lines(place, [b""], now)
    return Writing(credentials, options, place, writer)


class Reading(NamedTuple):
    """How a command subscribes: what its client is opened with, and what is to be proven."""

    credentials: Credentials = Credentials()
    options: ReadOptions = ReadOptions()


def require_of_reading(topics: Sequence[str], **given: Any) -> None:
    """Raises click.UsageError where an option of `reading` lacks one that it belongs to."""
    for name, option in (("key_name", "--key"), ("plain_topic", "--plain-topic")):
        require(bool(given[name]) and given["group_name"] is None, option, "--seal")
    are_all_named = all(names_senders(argument_bytes(each)) for each in topics)
    asks = bool(given["senders"]) or given["group_name"] is not None or are_all_named
    for name, option in (("back_s", "--back"), ("ahead_s", "--ahead")):
        require(given[name] is not None and not asks, option, "--from or --seal")


def reading(
    command: str,
    topics: Sequence[bytes],
    *,
    senders: Iterable[str],
    group_name: str | None,
    key_name: str | None,
    plain_topic: bool,
    back_s: float | None,
    ahead_s: float | None,
) -> Reading:
    """Returns what a subscription to some topics asks for; sees that it can be. Raises KcastError."""
    keys = keys_of(senders)
    options: ReadOptions = _asked(senders=keys, plain_topic=plain_topic, back_s=back_s, ahead_s=ahead_s)
    credentials = Credentials()
    if group_name is not None:
        credentials = Credentials.load(command, key_name, group_name)
    if any(map(names_senders, topics)):
        require_trust("a signed message")
        from kcast.client.driving.protection import allowed
        from kcast.client.driving.protection import keys_of as parsed_keys

        allowed(topics, parsed_keys(keys) if keys else None)
    return Reading(credentials, options)


def _asked(**options: Any) -> Any:
    """Returns the options of a client's method that are asked for: what is empty or absent is not."""
    return {name: value for name, value in options.items() if value}
