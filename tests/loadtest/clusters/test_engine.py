"""loadtest/clusters/engine.py: what can be tried without one; the rest is in tests/containers."""

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kcast.loadtest.clusters import engine
from kcast.loadtest.clusters.containers import ContainerCluster
from kcast.loadtest.clusters.engine import OWNER_LABEL, RUN_LABEL, in_parallel, is_dead, labels, sweep
from kcast.loadtest.clusters.servers import EngineMissing
from kcast.loadtest.load import session
from kcast.loadtest.scenario import Scenario


def test_without_an_engine_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(EngineMissing) as missing, ContainerCluster(1, ttl_s=2):
        pass
    message = str(missing.value)
    assert message.startswith("no Docker engine answers on unix:///nonexistent/docker.sock (")
    assert message.endswith("start it, name another in DOCKER_HOST, or use --backend processes")
    assert "\n" not in message


def test_an_engine_that_is_not_there_is_told_in_the_systems_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host, words in {
        f"unix://{tmp_path}/no.sock": "no such file or directory",
        "tcp://127.0.0.1:1": "connection refused",
    }.items():
        monkeypatch.setenv("DOCKER_HOST", host)
        options: dict[str, Any] = {"out": tmp_path / "out", "is_resumed": False, "is_strict": False}
        assert session.run([Scenario(backend="containers")], {}, **options, as_json=False) == 1
        assert f"no Docker engine answers on {host} ({words}); start it" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(EngineMissing, match=r"pip install 'kcast\[load\]'"), ContainerCluster(1, ttl_s=2):
        pass


# Owners.


def test_an_owner_is_dead_once_its_process_has_ended() -> None:
    own = labels("run")[OWNER_LABEL]
    assert own and not is_dead(own)
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        other = engine.identity(process.pid)
        assert other != own and not is_dead(other)
        process.communicate()
    assert is_dead(other)


def test_another_process_with_its_number_is_another() -> None:
    own = labels("run")[OWNER_LABEL]
    assert is_dead(own + "0")


class FakeEngine:
    """Containers and networks by name, of which some are removed."""

    def __init__(self) -> None:
        self.there: dict[str, Any] = {}
        self.containers = SimpleNamespace(list=lambda **_: self._kind("container"))
        self.networks = SimpleNamespace(list=lambda **_: self._kind("network"))

    def add(self, name: str, owner: str, *, run: str, state: str, age: timedelta) -> None:
        """A container and a network."""
        created = datetime.now(UTC) - age
        bears = {OWNER_LABEL: owner, RUN_LABEL: run}
        for kind, stamp in (("container", int(created.timestamp())), ("network", created.isoformat())):
            attributes = {"Labels": bears, "State": state, "Created": stamp}
            key = f"{kind} {name}"
            self.there[key] = SimpleNamespace(
                attrs=attributes, remove=lambda key=key, **_: self.there.pop(key), name=name, short_id=name
            )

    def _kind(self, kind: str) -> list[Any]:
        return [each for name, each in self.there.items() if name.startswith(kind)]


def test_what_dead_owners_left_goes_and_nothing_else() -> None:
    own = labels("run")[OWNER_LABEL]
    here = own.rpartition(" ")[0]
    new, old = timedelta(minutes=1), timedelta(days=4)
    fake = FakeEngine()
    fake.add("own", own, run="1", state="exited", age=old)
    fake.add("left", f"{here} 1/1", run="2", state="running", age=new)
    fake.add("elsewhere", "other-boot/1 1/1", run="3", state="running", age=old)
    fake.add("elsewhere new", "other-boot/1 1/1", run="4", state="exited", age=new)
    fake.add("before the start", "other-boot/1 1/1", run="5", state="exited", age=old)
    assert sweep(fake) == 4
    assert {name.partition(" ")[2] for name in fake.there} == {"own", "elsewhere", "elsewhere new"}
    assert sweep(fake) == 0


# Doing several things at a time.


def test_all_are_tried_and_the_first_failure_is_told() -> None:
    tried = []

    def work(number: int) -> int:
        tried.append(number)
        if number % 10 == 3:
            raise ValueError(number)
        return -number

    with pytest.raises(ValueError, match=r"^3$"):
        in_parallel(work, list(range(30)))
    assert sorted(tried) == list(range(30))
    assert in_parallel(work, [5, 4]) == [-5, -4]


def test_ctrl_c_begins_nothing_more() -> None:
    """The first item raises it: a real signal may hit a finalizer, which would swallow it."""
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        if not number:
            raise KeyboardInterrupt
        time.sleep(0.05)

    with pytest.raises(KeyboardInterrupt):
        in_parallel(work, list(range(100 * engine.PARALLEL)))
    assert 0 < len(begun) < 50 * engine.PARALLEL
