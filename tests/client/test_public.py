"""The public face: what `kcast.client.aio` and `kcast.client.blocking` export, and how it is documented."""

import asyncio
import inspect
import logging
import pickle
import subprocess
import sys
from array import array
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kcast.client import aio, blocking
from kcast.client.cluster import Cluster, ClusterError, format_cluster, lab
from kcast.client.driving.arguments import as_bytes
from kcast.client.errors import NoReceipt
from kcast.client.events import Event, Outcome, Published
from kcast.client.source import CLUSTER_VARIABLE
from kcast.hashring.policy import Policy

NOBODY = lab([("127.0.0.1", 9)], Policy(1, 1, 1))
DRIVERS = (aio, blocking)


def exported(module: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__all__}


def documented(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The exported classes, and their public functions and properties, inherited ones too."""
    for name, thing in exported(module).items():
        if not inspect.isclass(thing):
            assert thing is Event
            continue
        yield name, thing
        for attribute, member in inspect.getmembers(thing):
            is_ours = getattr(inspect.unwrap(getattr(member, "fget", member)), "__module__", "") or ""
            if not attribute.startswith("_") and is_ours.startswith("kcast."):
                yield f"{name}.{attribute}", member


@pytest.mark.parametrize("module", DRIVERS)
def test_a_client_says_which_option_may_be_meant(module: Any) -> None:
    with pytest.raises(TypeError, match=r"Client has no option grup; did you mean group\?"):
        module.Client(NOBODY, grup="ops")


def test_both_drivers_export_the_same_names() -> None:
    assert sorted(aio.__all__) == sorted(blocking.__all__)
    assert len(aio.__all__) == len(set(aio.__all__))
    shared = set(aio.__all__) - {"Client", "Cover", "Events", "Stream", "Subscription"}
    assert all(getattr(aio, name) is getattr(blocking, name) for name in shared)


@pytest.mark.parametrize("module", DRIVERS)
def test_the_twins_have_the_same_methods(module: ModuleType) -> None:
    twin = blocking if module is aio else aio
    theirs = {name for name, _ in documented(twin)}
    assert {name for name, _ in documented(module)} == theirs
    assert len(theirs) > 40


@pytest.mark.parametrize("module", DRIVERS)
def test_what_is_half_made_has_a_repr(module: ModuleType) -> None:
    for name in ("Client", "Cover", "Events", "Stream", "Subscription"):
        half_made = object.__new__(getattr(module, name))
        assert name in repr(half_made)


def test_the_options_of_publish_read_the_same_in_both() -> None:
    assert inspect.getdoc(aio.Client.publish) == inspect.getdoc(blocking.Client.publish)


# --- The cluster --------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", DRIVERS)
def test_without_an_argument_the_environment_names_the_cluster(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "cluster.txt"
    file.write_text(format_cluster(NOBODY))
    monkeypatch.setenv(CLUSTER_VARIABLE, str(file))
    assert module.Client().cluster == NOBODY
    assert module.Client(Cluster(NOBODY.servers[:1])).cluster != NOBODY, "an argument goes first"
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv(CLUSTER_VARIABLE)
        else:
            monkeypatch.setenv(CLUSTER_VARIABLE, value)
        with pytest.raises(ClusterError, match="a cluster file or a context, or set KCAST_CLUSTER"):
            module.Client()


@pytest.mark.parametrize("module", DRIVERS)
def test_publisher_must_be_a_str(module: ModuleType) -> None:
    with pytest.raises(TypeError, match="publisher is of type int: give str"):
        module.Client(NOBODY, publisher=7)


def test_bytes_of_any_kind_are_taken() -> None:
    data = b"\xc3\xb8"
    buffers = (bytearray(data), memoryview(b"\xc3?\xb8?")[::2], array("B", data), np.array([*data], "u1"))
    assert {as_bytes(each, "topic") for each in ("ø", data, *buffers)} == {data}


@pytest.mark.parametrize(
    "wrong", [array("H", b"ab"), memoryview(b"ab").cast("H"), np.uint8(7), np.ones(2), np.array(["t"], "O")]
)
def test_what_is_not_made_of_bytes_is_refused(wrong: Any) -> None:
    """Its bytes depend on the machine, or it is a number."""
    kind = type(wrong).__name__
    advice = r"give str \(its UTF-8 is sent\), bytes or a buffer of bytes"
    with pytest.raises(TypeError, match=f"the payload is of type {kind}: {advice}"):
        as_bytes(wrong, "payload")


# --- Logging ------------------------------------------------------------------------------------------

PROGRAM = """
import logging, sys
from kcast.client.blocking import Client
from kcast.client.cluster import lab
from kcast.hashring.policy import Policy
if sys.argv[1:]:
    logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s %(message)s")
with Client(lab([("127.0.0.1", 9)], Policy(1, 1, 1))) as client:
    events = client.events()
    client.subscribe("t").ready(6)
    print(client.server_states)
"""


def run(*arguments: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-c", program, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)


@pytest.mark.world
def test_silent_by_default() -> None:
    assert run().stderr == ""
    assert any(isinstance(each, logging.NullHandler) for each in logging.getLogger("kcast.client").handlers)


def test_no_receipt_goes_from_one_process_to_another_as_it_is() -> None:
    """Pools of processes hang or break where an error cannot be made anew."""
    outcome = Published(1, b"t", 1, {"a:1": Outcome.REFUSED, "b:1": Outcome.NO_ANSWER}, None, {"a:1": "rate"})
    error = pickle.loads(pickle.dumps(NoReceipt(outcome, {"b:1": ("b:1", "[::1]:1")})))
    assert error.outcome == outcome
    assert str(error) == "no server has given a receipt: a:1 refused (rate), b:1 and [::1]:1 did not answer"


def test_a_client_that_is_opened_as_the_other_one_is_says_how_to_open_it() -> None:
    cluster = lab([("127.0.0.1", 9)])
    with pytest.raises(TypeError, match="use `async with`; "), aio.Client(cluster):
        pass

    async def open_blocking() -> None:
        async with blocking.Client(cluster):
            pass

    with pytest.raises(TypeError, match="use `with`; "):
        asyncio.run(open_blocking())
