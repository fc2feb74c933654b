"""Random captures, that contradict themselves freely, are judged as by a slow, plain oracle."""

import random
from pathlib import Path

from kcast.loadtest.capture.schema import DUPLICATE, LOST, OPENED, PASSED, STANDING
from kcast.loadtest.results.attribution import attribute
from kcast.loadtest.results.causes import Cause
from tests.support.random_captures import Oracle, random_world

SEEDS = range(15)


class Chances(Oracle):
    """`heard` and `chances` of pairs, computed row by row."""

    def of(self, msg: int, sub: int) -> tuple[int, int]:
        message = self.world.where("publish", msg_id=msg)[0]
        topic, pub = message["topic_id"], message["pub_id"]
        copies = [row for row in self.world.where("deliver", msg_id=msg, sub_id=sub) if row["server_id"] >= 0]
        deadline_ns = message["t_intended_ns"] + round(self.scenario.deadline_s * 1e9)
        heard = {
            row["server_id"]
            for row in copies
            if row["injected"] in (PASSED, DUPLICATE) and row["t_user_ns"] <= deadline_ns
        }
        chances = sum(row["injected"] in (PASSED, LOST) for row in copies)
        for server in {row["server_id"] for row in self.world.where("pub_tx", msg_id=msg)} | {
            row["server_id"] for row in self.world.where("server_rx", msg_id=msg)
        }:
            sent = self.world.where("pub_tx", msg_id=msg, server_id=server)
            had = self.world.where("server_rx", msg_id=msg, server_id=server)
            has_copy = any(row["server_id"] == server for row in copies)
            if not has_copy and not self.asked(sub, topic, server, msg):
                continue
            for row in sent:
                at_ns = row["t_tx_ns"]
                if row["injected"] == LOST and not self.was_down(server, at_ns):
                    chances += self.stood(sub, topic, server, at_ns)
                elif row["injected"] == PASSED and not has_copy and not had:
                    is_up = self.before(row, pub) in (
                        *(Cause.UNTAPPED, Cause.SEND_ERROR, Cause.OVERFLOW_IN, Cause.NETWORK_IN),
                    )
                    chances += is_up and self.stood(sub, topic, server, at_ns)
            if not has_copy:
                stages = [self.beyond(row, sub, topic) for row in had]
                chances += sum(stage in (Cause.OVERFLOW_OUT, Cause.NETWORK_OUT) for stage in stages)
        return len(heard), chances

    def stood(self, sub: int, topic: int, server: int, at_ns: int) -> bool:
        held = {"server_id": server, "sub_id": sub, "topic_id": topic}
        lives = self.world.where("server_life", server_id=server)
        if not lives:
            return any(row["t_tx_ns"] <= at_ns for row in self.world.where("subscribe", **held))
        begun = [row for row in lives if row["t_from_ns"] <= at_ns]
        if not begun:
            return False
        boot = max(begun, key=lambda row: row["t_from_ns"])["boot_id"]
        changes = self.lease_changes({**held, "boot_id": boot}, at_ns)
        stands = (OPENED, STANDING)
        last = max(changes, key=lambda row: (row["t_ns"], row["change"] in stands), default=None)
        return last is not None and last["change"] in stands


def test_random_captures_are_judged_as_row_by_row(tmp_path: Path) -> None:
    met: set[Cause] = set()
    for seed in SEEDS:
        world = random_world(tmp_path / str(seed), random.Random(seed))
        folder = world.folder()
        result = attribute(folder)
        pairs = zip(result.msg_ids.tolist(), result.sub_ids.tolist(), result.causes.tolist(), strict=True)
        judged = {(msg, sub): Cause(cause) for msg, sub, cause in pairs}
        assert judged == Oracle(world).causes(), seed
        assert sum(result.misses.values()) == len(result) - int(result.delivered.sum()), seed
        # However it is cut into chunks.
        again = attribute(folder, chunk_paths=1 + seed)
        assert again.causes.tolist() == result.causes.tolist(), seed
        assert again.paths == result.paths, seed
        met |= set(judged.values())
        oracle = Chances(world)  # adds messages: the capture must have been read
        columns = (result.msg_ids, result.sub_ids, result.heard, result.chances)
        for msg, sub, heard, chances in zip(*(column.tolist() for column in columns), strict=True):
            assert (heard, chances) == oracle.of(msg, sub), f"seed {seed}: {msg}, {sub}"
    assert set(Cause) - met <= {Cause.HALTED, Cause.SEND_ERROR}
