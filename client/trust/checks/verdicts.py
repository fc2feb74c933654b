"""What a client holds of a signed list, and what an update makes of it. Sans-IO. PROTOCOL §10.8.

A judge (`kcast.client.trust.checks.judge`) is a generator. It yields steps, is sent the answer to each,
and returns a verdict. Who drives it has the network and the disk.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kcast.client.clusters.cluster import Cluster
from kcast.client.trust.checks.faults import ListFault

_T = TypeVar("_T")

FORMER_MAX = 8  # lists before the newest that are kept


@dataclass(frozen=True, slots=True)
class Held:
    """What a client has stored of one name. All but `trust` is missing before the first list.

    `trust` is the newest trust document, `list` the newest list, `proof` that list's log proof, `checkpoint`
    the newest signed checkpoint that was seen. `list_trust` is the trust document under which the list was
    accepted: it is older than `trust` where a new one has come and no new list yet. `former` are earlier
    lists that are still valid, newest first.
    """

    trust: bytes
    checkpoint: bytes | None = None
    list: bytes | None = None
    proof: bytes | None = None
    list_trust: bytes | None = None
    former: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Want:
    """A step: the judge needs a file of the published log. It is sent the file's first `bytes_max` + 1 bytes,
    or None where there is no such file."""

    path: str
    bytes_max: int


@dataclass(frozen=True, slots=True)
class NewTrust:
    """A step: another trust document is to be stored. The judge is sent None once it is."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Check:
    """A check, as `kcast servers verify` prints it. `is_ok` is None where there was nothing to check."""

    step: str
    text: str
    is_ok: bool | None = True


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault, and a sentence on it that a person can act on."""

    fault: ListFault
    text: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The list may be used; it is the one that was held before where nothing is new.

    `held` is what to store. `upcoming` is the list's cluster where it holds only from a time to come; then
    `cluster` is that of the list before.
    """

    held: Held
    cluster: Cluster
    upcoming: Cluster | None = None
    warnings: tuple[Trouble, ...] = ()
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The list must not be used. `evidence` is what to keep for people to look at, by file name; `kept_in`
    is the folder where whoever drives the judge has put it."""

    fault: ListFault
    text: str
    evidence: Mapping[str, bytes] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    kept_in: str = ""

    @property
    def trouble(self) -> Trouble:
        """What to tell of it."""
        return Trouble(self.fault, f"a server list was refused: {self.text}")


Step = Want | NewTrust
Verdict = Accepted | Refused
Judge = Generator[Step, bytes | None, Verdict]


def _forget(_: bytes) -> None:
    """Stores nothing."""


def answered(
    steps: Generator[Step, bytes | None, _T],
    get: Callable[[str, int], bytes | None],
    keep_trust: Callable[[bytes], None] = _forget,
) -> _T:
    """Returns what a judge comes to, mostly a verdict, whose files come from `get`; `keep_trust` stores trust
    documents."""
    answer: bytes | None = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            found: _T = end.value
            return found
        answer = None
        match step:
            case Want(path, bytes_max):
                answer = get(path, bytes_max)
            case NewTrust(data):
                keep_trust(data)
