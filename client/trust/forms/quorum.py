"""Which witnesses must have cosigned a checkpoint: C2SP tlog-policy. Sans-IO. PROTOCOL §10.5.

    log VKEY [URL]
    witness NAME VKEY [URL]
    group NAME all|any|K NAME...
    quorum NAME|none

Names are defined before they are used, and each is a member of one group at most, so that a witness counts in
one way only.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kcast.client.clusters.facts import shown
from kcast.client.trust.forms.note import (
    KIND_COSIGNATURE,
    KIND_ED25519,
    SIGNATURES_MAX,
    NoteError,
    VerifierKey,
)

NONE = "none"
NAMES_MAX = 64  # witnesses and groups together
COSIGNATURES_MAX = SIGNATURES_MAX - 1  # beside the log's signature
_WHITESPACE = re.compile("[ \t]+")  # no other character, whatever Unicode takes for a space
_COUNT = re.compile("[1-9][0-9]{0,2}")


class PolicyError(NoteError):
    """A policy that is not in its right form. The message says what was expected."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A witness; with a URL it can be asked for a cosignature."""

    key: VerifierKey
    url: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Witnesses and groups, by name, of which `needed` make a quorum."""

    needed: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A log, its witnesses and groups of them, and which of these must have cosigned."""

    log: VerifierKey
    witnesses: Mapping[str, Witness]
    groups: Mapping[str, Group]
    quorum: str
    log_url: str = ""

    @property
    def keys(self) -> tuple[VerifierKey, ...]:
        """The keys of all witnesses."""
        return tuple(witness.key for witness in self.witnesses.values())

    def is_met(self, cosigners: Collection[VerifierKey]) -> bool:
        """Returns whether these witnesses make a quorum."""
        return self.fewest(cosigners) is not None

    @property
    def needed(self) -> int:
        """The smallest number of witnesses that can make a quorum."""
        return len(self.fewest(self.keys) or ())

    def fewest(self, cosigners: Collection[VerifierKey]) -> tuple[VerifierKey, ...] | None:
        """Returns as few of these witnesses as make a quorum; None where all of them make none."""
        return () if self.quorum == NONE else self._fewest(self.quorum, cosigners)

    def _fewest(self, name: str, cosigners: Collection[VerifierKey]) -> tuple[VerifierKey, ...] | None:
        if name in self.witnesses:
            key = self.witnesses[name].key
            return (key,) if key in cosigners else None
        group = self.groups[name]
        # A name is in one group at most, so that no witness is in two of these.
        found = [each for each in (self._fewest(member, cosigners) for member in group.members) if each]
        if len(found) < group.needed:
            return None
        return tuple(key for each in sorted(found, key=len)[: group.needed] for key in each)

    @property
    def text(self) -> str:
        """Its lines."""
        lines = [_line("log", str(self.log), self.log_url)]
        lines += [_line("witness", name, str(each.key), each.url) for name, each in self.witnesses.items()]
        lines += [
            _line("group", name, str(group.needed), *group.members) for name, group in self.groups.items()
        ]
        return "".join([*lines, _line("quorum", self.quorum)])

    def who(self, keys: Iterable[VerifierKey]) -> tuple[str, ...]:
        """Returns the names that the policy has for these witnesses."""
        wanted = set(keys)
        return tuple(name for name, witness in self.witnesses.items() if witness.key in wanted)


def _line(*words: str) -> str:
    return " ".join(word for word in words if word) + "\n"


def read_policy(lines: Iterable[str]) -> Policy:
    """Reads a policy. Empty lines, and those that begin with `#`, say nothing. Raises NoteError."""
    reader = PolicyReader()
    for line in lines:
        words = _WHITESPACE.split(line.strip(" \t"))
        if words[0] and not words[0].startswith("#"):
            reader.read(words)
    return reader.policy()


class PolicyReader:
    """Reads a policy line by line."""

    def __init__(self) -> None:
        self._log: tuple[VerifierKey, str] | None = None
        self._witnesses: dict[str, Witness] = {}
        self._groups: dict[str, Group] = {}
        self._members: set[str] = set()
        self._quorum = ""

    def read(self, words: list[str]) -> None:
        """Takes the words of a line. Raises NoteError."""
        match words:
            case ["log", vkey, *url] if len(url) <= 1:
                self._read_log(vkey, "".join(url))
            case ["witness", name, vkey, *url] if len(url) <= 1:
                self._read_witness(name, vkey, "".join(url))
            case ["group", name, needed, *members] if members:
                self._read_group(name, needed, tuple(members))
            case ["quorum", name]:
                if self._quorum:
                    raise PolicyError("expected 'quorum' once")
                if name != NONE:
                    self._known(name)
                self._quorum = name
            case _:
                raise PolicyError(
                    "expected 'log VKEY [URL]', 'witness NAME VKEY [URL]', 'group NAME all|any|K NAME...' or "
                    "'quorum NAME|none'"
                )

    def policy(self) -> Policy:
        """Returns what was read. Raises PolicyError where something is missing."""
        if self._log is None or not self._quorum:
            raise PolicyError("expected a line 'log VKEY' and a line 'quorum NAME|none' after 'policy'")
        if self._log[0].public in {each.key.public for each in self._witnesses.values()}:
            raise PolicyError("expected witnesses with other keys than the log's")
        policy = Policy(self._log[0], self._witnesses, self._groups, self._quorum, self._log[1])
        if policy.needed > COSIGNATURES_MAX:
            raise PolicyError(
                f"expected a quorum of at most {COSIGNATURES_MAX} witnesses: {SIGNATURES_MAX} signatures of "
                "a checkpoint are looked at, and one is the log's"
            )
        return policy

    def _read_log(self, vkey: str, url: str) -> None:
        if self._log is not None:
            raise PolicyError("expected one 'log'")
        key = VerifierKey.parse(vkey)
        if key.kind != KIND_ED25519:
            raise PolicyError("expected a log's key of type 1, not one for cosignatures")
        self._log = key, url

    def _read_witness(self, name: str, vkey: str, url: str) -> None:
        self._define(name)
        key = VerifierKey.parse(vkey)
        if key.kind != KIND_COSIGNATURE:
            raise PolicyError("expected a witness's key of type 4, which makes cosignatures")
        if any(each.key.public == key.public for each in self._witnesses.values()):
            raise PolicyError("expected witnesses with different keys")
        self._witnesses[name] = Witness(key, url)

    def _read_group(self, name: str, needed: str, members: tuple[str, ...]) -> None:
        self._define(name)
        for member in members:
            self._known(member)
            if member in self._members:
                raise PolicyError(f"expected {shown(member)} in one group only")
            self._members.add(member)
        count = {"any": "1", "all": str(len(members))}.get(needed, needed)
        if not _COUNT.fullmatch(count) or int(count) > len(members):
            raise PolicyError(f"expected all, any or a number from 1 to {len(members)}, not {shown(needed)}")
        self._groups[name] = Group(int(count), members)

    def _define(self, name: str) -> None:
        if name in (NONE, *self._witnesses, *self._groups):
            raise PolicyError(f"expected a name that is not {shown(name)}, which has a meaning already")
        if len(self._witnesses) + len(self._groups) >= NAMES_MAX:
            raise PolicyError(f"expected at most {NAMES_MAX} witnesses and groups")

    def _known(self, name: str) -> None:
        if name not in self._witnesses and name not in self._groups:
            raise PolicyError(f"expected the name of a witness or group above, not {shown(name)}")
