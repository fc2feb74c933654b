"""Signed lists as files on disk, and clients that know them, for tests of what is stored and fetched."""

import _thread
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from kcast.client.cluster import Cluster, ServerEntry, host_key
from kcast.client.clusters import aside
from kcast.client.trust.checks.verdicts import Held
from kcast.client.trust.forms.bundle import format_bundle
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.reach import list_watch
from kcast.hashring.policy import Policy
from tests.support.lists import NAME, OWNERS, Lists, document

FETCH_ENDS_S = 30.0


def write_files(lists: Lists, folder: Path) -> Path:
    """Writes what is published into a folder, as a web server would serve it; returns the folder."""
    for path, data in lists.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def document_of(*urls: str, **changes: Any) -> TrustDocument:
    """Returns a trust document that names these places."""
    return replace(document(**changes), urls=urls)


def lists_at(now_unix_s: int, *urls: str, **changes: Any) -> Lists:
    """Returns lists whose trust document names these places."""
    return Lists(now_unix_s=now_unix_s, document=document_of(*urls, **changes), owners=tuple(OWNERS))


def drop(lists: Lists, folder: Path) -> Path:
    """Drops the first trust document into a folder, as an administrator does; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lab.trust"
    path.write_bytes(lists.trust[0])
    return path


def first_contact(lists: Lists) -> Held:
    """Returns the state of a client that knows the trust document and nothing else."""
    return Held(lists.trust[0])


class KnownList:
    """The signed list `NAME` of real servers, published in a folder, of which this process knows."""

    def __init__(self, folder: Path, policy: Policy, **document_changes: Any) -> None:
        self.folder = folder
        self._policy = policy
        usual = {"floor": 1, "hosts_per_prefix": 0, "churn_percent": 100}
        place = str(folder / "published")
        self._lists = lists_at(int(time.time()), place, **{**usual, **document_changes})
        drop(self._lists, folder / "trust")

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process know of it."""
        return {"XDG_STATE_HOME": str(self.folder / "state"), "KCAST_TRUST_PATH": str(self.folder / "trust")}

    def publish(
        self, servers: Sequence[ServerEntry], *, fresh_s: int = 60, valid_s: int = 3600, age_s: int = 0
    ) -> Cluster:
        """Publishes the next version, with these servers, as if it had been so long ago."""
        now_unix_s = self._lists.now_unix_s = int(time.time())
        keyed = [ServerEntry(each.addresses, host_key(each.addresses[0])) for each in servers]
        cluster = self._lists.cluster(
            keyed,
            policy=self._policy,
            min_servers=1,
            valid_after_s=now_unix_s - age_s,
            fresh_until_s=now_unix_s - age_s + fresh_s,
            valid_until_s=now_unix_s - age_s + valid_s,
        )
        self._lists.publish(cluster)
        published = write_files(self._lists, self.folder / "published")
        parts = ("trust/", "list/", "from/", "latest.tlog-proof")
        bundled = {path: data for path, data in self._lists.files.items() if path.startswith(parts)}
        (published / "bundle").write_bytes(format_bundle(bundled))
        return cluster


class _Fetches:
    """Starts the threads in which lists are fetched, as `_thread` does, and knows when they have ended."""

    def __init__(self) -> None:
        self._ended: list[threading.Event] = []

    def start_new_thread(self, act: Callable[[], None], _arguments: tuple[()]) -> None:
        ended = threading.Event()
        self._ended.append(ended)

        def act_and_tell() -> None:
            try:
                act()
            finally:
                ended.set()

        _thread.start_new_thread(act_and_tell, ())

    def wait(self) -> None:
        """Waits for all of them: what one still stores would come into a folder that is being removed."""
        for ended in self._ended:
            assert ended.wait(FETCH_ENDS_S), "a fetch does not end, although its client has"


@contextmanager
def known_list(policy: Policy, **document_changes: Any) -> Iterator[KnownList]:
    """Lets this process know a signed list, and look for newer ones many times a second."""
    with TemporaryDirectory() as folder:
        known, fetches = KnownList(Path(folder), policy, **document_changes), _Fetches()
        with (
            mock.patch.dict(os.environ, known.environment),
            mock.patch.multiple(
                list_watch,
                LOOK_INTERVAL_S=0.05,
                FETCH_POLL_S=0.02,
                RETRY_S=0.05,
                RETRY_MAX_S=0.1,
            ),
            mock.patch.object(aside, "_thread", fetches),
        ):
            try:
                yield known
            finally:
                fetches.wait()


AT_NAME = f"@{NAME}"
