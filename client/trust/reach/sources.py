"""Where the files of a published log come from: a folder, a web server, a bundle. PROTOCOL §10.8.

All are equal: nothing is believed because of the way by which it came. A source answers with what it has, at
most one byte more than what was asked for, which then says that there is too much; with None where it has no
such file; and with a SourceError where it cannot say. What the bytes are worth is for others to judge.
"""

import os
import stat
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import Protocol
from urllib.parse import unquote, urljoin, urlsplit

from kcast.client.trust.forms import bundle
from kcast.pubsub.errors import KcastError

SILENCE_S = 10.0  # a server that says nothing for so long is given up
TRANSFER_S = 60.0  # and so is one that has not sent a whole file by then
REDIRECTS_MAX = 3

_REDIRECTS = (301, 302, 303, 307, 308)


class SourceError(KcastError, RuntimeError):
    """A source that cannot be used, or not now; one line that names it and says why."""


class Source(Protocol):
    """Answers with the files of a published log."""

    @property
    def name(self) -> str:
        """What users wrote, for messages."""

    def get(self, path: str, bytes_max: int) -> bytes | None:
        """Returns the file's first `bytes_max` + 1 bytes; None where there is no such file.

        Raises SourceError.
        """


def source_of(text: str, *, deadline: float = inf) -> Source:
    """Returns the source that an http, https or file URL means, or the path of a folder or of a bundle.

    By `deadline`, a time of `monotonic`, all that comes by a network must have come. Raises SourceError where
    there is no such source.
    """
    scheme = urlsplit(text).scheme if "://" in text or text.startswith("file:") else ""
    if scheme in ("http", "https"):
        return HttpSource(text, deadline=deadline)
    if scheme not in ("", "file"):
        raise SourceError(f"{text}: give a URL of http, https or file, or the path of a folder or a bundle")
    path = Path(unquote(urlsplit(text).path) if scheme else text)
    if path.is_dir():
        return FolderSource(path, text)
    data = read_file(path, text, bundle.BUNDLE_BYTES_MAX)
    if data is None:
        hint = "; a URL begins with http:// or https://, the name of a trusted list with @"
        raise SourceError(f"{text}: there is no such folder, and no such bundle{hint}")
    return BundleSource(data, text)


class BundleSource:
    """The files of a bundle. Raises SourceError where it is none."""

    def __init__(self, data: bytes, name: str = "bundle") -> None:
        self.name = name
        try:
            self._files = bundle.parse(data)
        except bundle.BundleError as error:
            raise SourceError(f"{name}: {error}") from None

    def get(self, path: str, bytes_max: int) -> bytes | None:
        """Returns what stands in the bundle. It never raises."""
        data = self._files.get(path)
        return None if data is None else data[: bytes_max + 1]


class FolderSource:
    """The files of a folder, such as one that a web server would serve."""

    def __init__(self, folder: str | Path, name: str = "") -> None:
        self.name = name or str(folder)
        self._folder = Path(folder)

    def get(self, path: str, bytes_max: int) -> bytes | None:
        """Returns what the file holds now. Raises SourceError, also where the folder itself is gone."""
        data = read_file(self._folder / path, f"{self.name}: {path}", bytes_max)
        if data is None and not self._folder.is_dir():
            raise SourceError(f"{self.name}: there is no such folder any more")
        return data


def read_file(path: Path, name: str, bytes_max: int) -> bytes | None:
    """Returns the first `bytes_max` + 1 bytes of a plain file; None where there is none. Raises SourceError,
    which begins with the name."""
    try:
        # Without O_NONBLOCK a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SourceError(f"{name}: it is no plain file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(bytes_max + 1)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or error}") from None


# --- HTTP --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpSource:
    """The files below an http or https URL.

    A server may be slow, endless or lost: each wait ends after `silence_s`, each file after `transfer_s`, all
    at `deadline`, and no more is read than was asked for. It may lead on to other places of http and https,
    three at most.
    """

    name: str  # the URL
    silence_s: float = SILENCE_S
    transfer_s: float = TRANSFER_S
    deadline: float = inf

    def __post_init__(self) -> None:
        url, parts = self.name, urlsplit(self.name)
        if not parts.hostname or parts.query or parts.fragment or not url.isascii() or " " in url:
            raise SourceError(f"{url}: give a URL such as https://lists.example.org/lab")

    def get(self, path: str, bytes_max: int) -> bytes | None:
        """Fetches a file. Raises SourceError for all but success, 404 and 410."""
        deadline = min(monotonic() + self.transfer_s, self.deadline)
        url = f"{self.name.rstrip('/')}/{path}"
        return fetch(url, bytes_max, deadline=deadline, silence_s=self.silence_s)


def fetch(
    url: str, bytes_max: int, *, deadline: float | None = None, silence_s: float = SILENCE_S
) -> bytes | None:
    """Returns the first `bytes_max` + 1 bytes of what a URL leads to; None where that is nothing.

    All must have come by `deadline`, a time of `monotonic`; without it, in a minute. A redirect leads neither
    from https to http, nor from the public Internet to an address elsewhere. Raises SourceError for all but
    success, 404 and 410.
    """
    from kcast.client.trust.reach import web  # http and email, which take long to load, and few need

    deadline = monotonic() + TRANSFER_S if deadline is None else deadline
    began, stays_public = url, False
    for _ in range(1 + REDIRECTS_MAX):
        try:
            answer = web.ask(
                url, bytes_max, deadline=deadline, silence_s=silence_s, stays_public=stays_public
            )
        except web.WebError as error:
            raise SourceError(str(error)) from None
        if answer.is_success:
            return answer.data
        if answer.status in (404, 410):
            return None
        if answer.status not in _REDIRECTS:
            raise SourceError(f"{url}: HTTP {answer.status} {answer.reason}".rstrip())
        stays_public |= answer.is_public
        url = _led_to(url, answer.headers.get("Location", ""))
    raise SourceError(f"{began}: it leads on more than {REDIRECTS_MAX} times")


def _led_to(url: str, location: str) -> str:
    """Returns where a redirect leads. Raises SourceError where that is nowhere to be gone to."""
    schemes = ("https",) if urlsplit(url).scheme == "https" else ("http", "https")
    try:
        there = urljoin(url, location)
        if location and urlsplit(there).scheme in schemes:
            return there
    except ValueError:
        pass
    from kcast.client.trust.reach import web

    which = f"which is no URL of {' or '.join(schemes)}"
    raise SourceError(f"{url}: it leads on to {web.short(location)!r}, {which}")
