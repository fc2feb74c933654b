"""loadtest/results/message.py: one message is told as the whole capture is judged."""

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from kcast.loadtest.capture import parts
from kcast.loadtest.capture.folder import ScenarioFolder
from kcast.loadtest.capture.manifest import CaptureError
from kcast.loadtest.capture.schema import CUT_OFF, LOST
from kcast.loadtest.results.attribution import attribute
from kcast.loadtest.results.causes import MEANINGS, Cause
from kcast.loadtest.results.message import has_message, known_messages, message
from tests.support.handmade_capture import T0, S, World
from tests.support.random_captures import random_world


def test_a_message_is_followed_to_servers_and_subscribers(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.message(0, 1)
    msg = world.message(0, 1, 2, at_s=2.5)
    world.lose_in(msg, 1, LOST)
    world.lose_in(msg, 2, CUT_OFF)
    world.deliver(msg, 0, 1, T0 + round(2.51 * S), LOST)
    world.rows["deliver"] = [
        row for row in world.rows["deliver"] if (row["msg_id"], row["sub_id"], row["injected"]) != (msg, 1, 0)
    ]
    found = message(world.folder(), msg)
    assert (found.publisher, found.number, found.topic, found.due_s) == (0, 1, 0, 2.5)
    assert found.given_ms == 1
    told = [(one.server, one.sent, one.taken_ms, one.cause) for one in found.servers]
    assert told == [
        (0, ((1.0, "passed"),), 2.0, None),
        (1, ((1.0, "lost"),), None, "loss-in"),
        (2, ((1.0, "cut off"),), None, "down"),
    ]
    first, second = found.subscribers
    assert (first.latency_ms, first.cause, first.copies) == (
        3.0,
        "delivered",
        (("server 0", 3.0, "passed"),),
    )
    assert (second.latency_ms, second.cause) == (None, "loss-out")
    assert second.meaning == MEANINGS[Cause.LOSS_OUT]
    assert second.copies == (("server 0", 10.0, "lost"),)
    assert found.as_json()["subscribers"][1]["cause"] == "loss-out"


def test_a_server_without_a_tap_had_what_copies_came_from_it_of(tmp_path: Path) -> None:
    world = World(tmp_path)
    msg = world.message(0, 1, 2)
    world.lose_in(msg, 1, LOST)
    for table in ("server_life", "server_rx", "lease", "server_stat", "window"):
        world.rows[table] = []
    world.rows["deliver"] = [row for row in world.rows["deliver"] if row["server_id"] == 0]
    told = [(one.server, one.cause, one.is_copied) for one in message(world.folder(), msg).servers]
    assert told == [(0, None, True), (1, "loss-in", False), (2, "untapped", False)]


@pytest.fixture
def _parts_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps each part of a capture that was read: for each message, all are read again."""
    whole: dict[Path, pa.Table] = {}
    read_part = parts.read_part

    def kept(path: Path, table: str, columns: Sequence[str], *, expected_hash: str | None) -> pa.Table:
        if path not in whole:
            whole[path] = read_part(path, table, expected_hash=expected_hash)
        return whole[path].select(columns)

    monkeypatch.setattr(parts, "read_part", kept)


@pytest.mark.usefixtures("_parts_read_once")
@pytest.mark.parametrize("seed", [6, 12])
def test_each_message_of_a_capture_is_judged_as_all_are_together(tmp_path: Path, seed: int) -> None:
    folder = random_world(tmp_path, random.Random(seed)).folder()
    whole = attribute(folder)
    judged: dict[int, list[tuple[int, str, float | None]]] = {}
    for msg, sub, cause, ns in zip(
        whole.msg_ids, whole.sub_ids, whole.causes, whole.latencies_ns, strict=True
    ):
        latency_ms = None if ns < 0 else int(ns) / 1e6
        judged.setdefault(int(msg), []).append((int(sub), Cause(cause).label, latency_ms))
    assert judged
    for msg, expected in judged.items():
        found = message(folder, msg)
        assert [(one.subscriber, one.cause, one.latency_ms) for one in found.subscribers] == expected


@pytest.mark.parametrize(("had_taken", "cause"), [(True, "network-in"), (False, "unvouched")])
def test_what_a_restarted_server_took_before_tells_why_a_message_was_lost(
    tmp_path: Path, had_taken: bool, cause: str
) -> None:
    world = World(tmp_path)
    taken, lost = world.message(0, at_s=1.0), world.message(0, at_s=1.2)
    world.lose_in(lost, 0)
    world.where("server_life", server_id=0)[0].update(t_to_ns=T0, ended=0)
    world.life(0, 200, T0 + S * 9 // 10, T0 + 20 * S)
    if had_taken:
        world.where("server_rx", msg_id=taken)[0]["boot_id"] = 200
    else:
        world.lose_in(taken, 0)
    assert [one.cause for one in message(world.folder(), lost).subscribers] == [cause, cause]


def test_a_server_that_a_copy_came_from_had_the_message(tmp_path: Path) -> None:
    world = World(tmp_path)
    msg = world.message(0)
    world.drop("server_rx", msg_id=msg)
    (only,) = message(world.folder(), msg).servers
    assert (only.taken_ms, only.cause) == (None, None)


def test_which_messages_there_are_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, publishers=3)
    for pub in (0, 1, 1, 2, 2, 2):
        world.message(0, pub=pub)
    for number, row in enumerate(world.rows["publish"]):  # numbers of a publisher begin at 0
        row["msg_id"] = (row["pub_id"] << 32) + (0, 0, 1, 0, 1, 2)[number]
    folder = world.folder()
    assert has_message(folder, (2 << 32) + 2) and not has_message(folder, 1)
    assert known_messages(folder) == "handmade has 0:0 to 0:0, and so on to publisher 2 with 2:0 to 2:2"
    with pytest.raises(CaptureError, match="no message 7"):
        message(folder, 7)


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    msg = world.message(0)
    folder: ScenarioFolder = world.folder()
    part = next((tmp_path / "table=deliver").iterdir())
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(CaptureError, match=part.name):
        message(folder, msg)
