"""Contexts: names that a user has given to clusters, kept in the user's configuration.

A context is a file `kcast/contexts/NAME` in $XDG_CONFIG_HOME (by default ~/.config): the absolute path of a
cluster file, or `@NAME` of a signed list. Behind it stand options that commands take with it, such as `--seal
ops`, each after a NUL, which no path has. `kcast/context` names the context in use. So two commands at once
cannot undo each other's work. `kcast.client.source` says when a context is asked for.
"""

import os
import pwd
import re
from codecs import BOM_UTF8
from collections.abc import Iterable
from pathlib import Path

from kcast.client.clusters.cluster import ClusterError

NAME_FORM = "1 to 64 of A-Z, a-z, 0-9, '-' and '_', without '-' at the beginning"

OPTIONS = ("--seal", "--sign", "--key", "--from")  # that a context can hold

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_BYTES_MAX = 8192  # longer than any path with options
_NUL = "\0"


class ContextError(ClusterError):
    """A context that is not there, cannot be kept, or means nothing; the message says what to do."""


def names() -> list[str]:
    """Returns the names of all contexts, sorted. Raises ContextError where they cannot be read."""
    folder = config_folder()
    try:
        found = [] if folder is None else [path.name for path in (folder / "contexts").iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        found = []
    except OSError as error:
        raise _unusable(error) from None
    return sorted(filter(is_name, found))


def is_name(text: str) -> bool:
    """Returns whether a context may be called so."""
    return _NAME.fullmatch(text) is not None


def meaning(name: str) -> str | None:
    """Returns what a context holds: the path of a cluster file, or `@NAME`; None if there is no such context.

    Raises ContextError where it cannot be read, or holds something else.
    """
    held = _read(f"contexts/{name}") if is_name(name) else None
    text = None if held is None else held.partition(_NUL)[0]
    if text is not None and not text.startswith(("/", "@")):
        raise ContextError(
            f"context {name}: it holds no path: 'kcast context add {name} FILE' writes it anew"
        )
    return text


def options(name: str) -> list[tuple[str, str]]:
    """Returns the options that commands take with a context: the name of each, as `--seal`, and its value,
    which is empty for a flag. Raises ContextError, also for an option that no context has."""
    held = (_read(f"contexts/{name}") or "") if is_name(name) else ""
    found = [line.partition(" ")[::2] for line in held.split(_NUL)[1:]]
    if len(held) >= _BYTES_MAX or any(option not in OPTIONS for option, _ in found):
        raise ContextError(f"context {name}: it is damaged: 'kcast context add {name} FILE' writes it anew")
    return found


def unknown(name: str) -> str:
    """Returns the end of a complaint that there is no such context: what there is instead."""
    from kcast.client.errors import did_you_mean  # slow to import, and seldom needed

    known = names()
    if not known:
        return " ('kcast context add NAME FILE' makes one)"
    return f"{did_you_mean(name, known) or '.'} There are: {', '.join(known)}"


def in_use() -> str | None:
    """Returns the name of the context in use, whether or not there still is one of this name.

    None where none is. Raises ContextError where that cannot be read.
    """
    return _read("context") or None


def add(name: str, text: str, options: Iterable[tuple[str, str]] = ()) -> None:
    """Keeps the path of a cluster file, or `@NAME`, under a name, and options. Raises ContextError."""
    if not is_name(name):
        raise ContextError(f"{name!r} cannot be a context's name: give {NAME_FORM}")
    lines = [text if text.startswith("@") else str(Path(text).absolute())]
    lines += [f"{option} {value}".rstrip() for option, value in options]
    text = _NUL.join(lines)
    if text.count(_NUL) >= len(lines) or len(os.fsencode(text)) >= _BYTES_MAX:
        raise ContextError(f"{name}: what a context holds has no NUL, and less than {_BYTES_MAX:,} bytes")
    _write(f"contexts/{name}", text)


def use(name: str | None) -> None:
    """Puts a context into use, or with None none. Raises ContextError."""
    if name is None:
        _remove("context")
    else:
        _write("context", name)


def remove(name: str) -> None:
    """Removes a context; if it is in use, none is then. Raises ContextError."""
    if in_use() == name:
        use(None)
    _remove(f"contexts/{name}")


# --- Files -------------------------------------------------------------------------------------------


def config_folder() -> Path | None:
    """Returns the folder of kcast's configuration; None if nobody says where it is."""
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if given.is_absolute():  # the specification has others ignored
        return given / "kcast"
    try:
        return home() / ".config" / "kcast"
    except RuntimeError:
        return None


def home() -> Path:
    """Returns the user's home folder; an empty HOME says as little as none. Raises RuntimeError where neither
    HOME nor an entry in /etc/passwd does."""
    if os.environ.get("HOME") != "":
        return Path.home()
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        raise RuntimeError from error


def _folder_to_change() -> Path:
    folder = config_folder()
    if folder is None:
        raise ContextError("there is no place for contexts: set HOME or XDG_CONFIG_HOME to a folder")
    return folder


def _read(file: str) -> str | None:
    folder = config_folder()
    if folder is None:
        return None
    try:
        with (folder / file).open("rb") as opened:
            return os.fsdecode(opened.read(_BYTES_MAX).removeprefix(BOM_UTF8).removesuffix(b"\n"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unusable(error) from None


def _write(file: str, text: str) -> None:
    from kcast.client.clusters.durable import make_folder, write_whole  # slow to import, and seldom needed

    path = _folder_to_change() / file
    try:
        make_folder(path.parent)
        write_whole(path, os.fsencode(text) + b"\n", mode=0o600)
    except OSError as error:
        raise _unusable(error) from None


def _remove(file: str) -> None:
    try:
        (_folder_to_change() / file).unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(error) from None


def _unusable(error: OSError) -> ContextError:
    return ContextError(f"contexts cannot be kept or read: {error.filename}: {error.strerror}")
