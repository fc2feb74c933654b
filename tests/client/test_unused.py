"""What proves messages is not imported where nobody asks for it: looked at in fresh interpreters."""

import subprocess
import sys

import pytest

LIBRARIES = (
    "nacl",
    "cryptography",
    "kcast.client.sealed",
    "kcast.client.driving.protection",
    "kcast.client.trust.forms",
)

PLAIN_USE = """
import asyncio
from kcast.client import aio, blocking
from kcast.client.cluster import lab
from kcast.hashring.policy import Policy
nobody = lab([("127.0.0.1", 9)], Policy(1, 1, 1))

async def main():
    async with aio.Client(nobody) as client:
        client.subscribe(["t", "u"])
        client.subscribe("t", seal=False, plain_topic=False)
        client.publish_nowait("t", "x", confirm=False)
        client.publish_nowait("t", "x", confirm=False, sign=False, seal=False)
        client.publish_many_nowait("t", ["x", "y"], confirm=False)
        await asyncio.sleep(0.05)

asyncio.run(main())
with blocking.Client(nobody) as client:
    client.subscribe("t")
    client.publish_nowait("t", "x", confirm=False)
"""


def imported(program: str) -> set[str]:
    """Returns what a program has imported, of what it should not."""
    listing = f"{program}\nimport sys; print(*sys.modules, sep='\\n')"
    found = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True, timeout=60
    )
    names = found.stdout.split()
    assert "kcast.client.core" in names
    return {name for name in names for library in LIBRARIES if f"{name}.".startswith(f"{library}.")}


@pytest.mark.parametrize(
    "module",
    ["kcast.client.aio", "kcast.client.blocking", "kcast.client.core", "kcast.client.driving.engine"],
)
def test_a_client_imports_neither_nacl_nor_cryptography(module: str) -> None:
    assert imported(f"import {module}") == set()


@pytest.mark.world
def test_nor_does_one_that_publishes_and_subscribes_in_clear_text() -> None:
    assert imported(PLAIN_USE) == set()


def test_else_it_would_show() -> None:
    pytest.importorskip("nacl")
    found = imported("import kcast.client.aio, kcast.client.driving.protection")
    assert {"nacl", "cryptography", "kcast.client.sealed.guards"} <= found
