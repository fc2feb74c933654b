"""Networks of a test's own: Linux network namespaces, joined by links. Needs root: see `need_namespaces`.

A namespace lives as long as this process, and leaves no name behind. Sockets and processes that are made in a
thread which has entered it are in it for good, so tests use them like any others.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Thread
from typing import TypeVar

import pytest

_CLONE_NEWNET = 0x40000000

_Result = TypeVar("_Result")


class Namespace:
    """A network namespace with a loopback device."""

    def __init__(self) -> None:
        self._descriptor = _in_thread(_unshared)
        self.run("ip", "link", "set", "lo", "up")

    def __enter__(self) -> "Namespace":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Calls a function in it. What that opens or starts stays in it."""

        def entered() -> _Result:
            _check(_libc().setns(self._descriptor, _CLONE_NEWNET))
            return function()

        return _in_thread(entered)

    def run(self, *command: str) -> str:
        """Runs a command in it. Returns what it wrote."""
        done = self.call(lambda: subprocess.run(command, capture_output=True, text=True, check=False))
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def set(self, setting: str, value: int) -> None:
        """Sets one of its kernel settings, such as `net/ipv4/ip_forward`."""

        def write() -> None:
            Path("/proc/sys", setting).write_text(str(value))  # of its network the writing thread's own

        self.call(write)

    def link(self, name: str, other: "Namespace", other_name: str) -> None:
        """Lays a cable to another namespace, from device to device."""
        peer = f"/proc/{os.getpid()}/fd/{other._descriptor}"
        self.run(*f"ip link add name {name} type veth peer name {other_name} netns {peer}".split())
        for namespace, device in ((self, name), (other, other_name)):
            namespace.run("ip", "link", "set", "dev", device, "up")

    def add(self, device: str, *addresses: str) -> None:
        """Gives a device addresses, such as `192.0.2.7/24`."""
        self._change("add", device, addresses)

    def remove(self, device: str, *addresses: str) -> None:
        """Takes addresses from a device, as if whoever had them were gone."""
        self._change("del", device, addresses)

    def _change(self, verb: str, device: str, addresses: tuple[str, ...]) -> None:
        lines = [f"address {verb} {a} dev {device}{' nodad' * (':' in a)}" for a in addresses]
        text = "\n".join(lines) + "\n"
        done = self.call(
            lambda: subprocess.run(
                ("ip", "-batch", "-"), input=text, capture_output=True, text=True, check=False
            )
        )
        assert done.returncode == 0, done.stderr


@cache
def why_not() -> str:
    """Returns why no namespaces can be made here; nothing if they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's own"
    try:
        with Namespace() as one, Namespace() as two:
            one.link("a", two, "b")
    except (OSError, AssertionError) as error:
        return f"no network namespaces can be made here: {error}"
    return ""


def need_namespaces() -> None:
    """Skips the test, with the reason, where no namespaces can be made."""
    if reason := why_not():
        pytest.skip(reason)


def _unshared() -> int:
    _check(_libc().unshare(_CLONE_NEWNET))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _in_thread(function: Callable[[], _Result]) -> _Result:
    """Calls a function in a thread of its own, which alone changes its namespace."""
    results: list[_Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
