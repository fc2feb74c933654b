"""Groups for tests: members from seeds, and files of epochs."""

from functools import cache
from pathlib import Path

from kcast.client.sealed import group_file, groups
from kcast.client.sealed.group_file import GroupFile, Recipient, Role, Secrets, Term
from kcast.client.sealed.group_store import GroupStore
from kcast.client.sealed.keys import Identity

NAME = "ops"
NOW_UNIX_S = 1_800_000_000
DAY_S = 86_400
LIFE_S = 90 * DAY_S
FRESH_S = 7 * DAY_S


def identity(number: int, name: str = "key") -> Identity:
    """Returns a key that is the same in each run."""
    return Identity.from_seed(name, bytes([number]) * 32)


OWNER, ALICE, BOB, MALLORY = (identity(number) for number in range(1, 5))
EVERYBODY = (OWNER, ALICE, BOB)


def secrets(number: int = 1) -> Secrets:
    """Returns secrets of an epoch."""
    return Secrets.of(bytes([100 + number % 100]) * 32, bytes([200 - number % 100]) * 32)


def recipient(who: Identity, role: Role = Role.READER, *, is_sender: bool = False) -> Recipient:
    """Returns a member, to wrap secrets for."""
    return Recipient(who.signer.key, who.hpke_public, role, is_sender)


@cache
def made(
    epoch: int = 1,
    after: int | None = None,
    from_unix_s: int = NOW_UNIX_S,
    *,
    members: tuple[Identity | Recipient, ...] = EVERYBODY,
    owner: Identity = OWNER,
    name: str = NAME,
    life_s: int = LIFE_S,
    fresh_s: int = FRESH_S,
) -> tuple[GroupFile, bytes]:
    """Returns a group file, and its bytes; of the same epoch with the same members always the same."""
    until_unix_s, fresh_until_unix_s = from_unix_s + life_s, from_unix_s + min(fresh_s, life_s)
    followed = epoch - 1 if after is None else after
    term = Term(epoch, followed, from_unix_s, until_unix_s, fresh_until_unix_s)
    to = (each if isinstance(each, Recipient) else recipient(each) for each in members)
    return group_file.make(owner.note_key, name, term, secrets(epoch), to)


class Place:
    """A group file somewhere, and a member's state."""

    def __init__(self, folder: Path, me: Identity = ALICE) -> None:
        self.path = folder / f"{NAME}.group"
        self.me = me
        self.store = GroupStore(NAME)

    def put(self, *args: int, **options: object) -> bytes:
        """Writes an epoch's file; returns its bytes."""
        _, data = made(*args, **options)
        self.path.write_bytes(data)
        return data

    def join(self, unix_s: float = NOW_UNIX_S) -> None:
        """Joins by the file that is there."""
        groups.join(str(self.path), OWNER.note_key.verifier, self.me, unix_s=unix_s)

    def epochs(self) -> list[int]:
        """Returns the epochs whose files are on disk."""
        return sorted(int(path.stem) for path in self.store.folder.glob("*.group"))
