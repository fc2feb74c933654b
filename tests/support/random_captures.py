"""Random captures, and a slow, plain oracle that judges their pairs."""

import random
from pathlib import Path
from typing import Any

from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, EVICTED, EXPIRED, LOST, OPENED, PASSED, STANDING
from kcast.loadtest.results.causes import EDGE_NS, TAP_UNWRITTEN_NS, Cause
from tests.support.handmade_capture import MS, T0, S, World


def random_world(path: Path, rng: random.Random) -> World:
    """Rows of all kinds that contradict each other freely, with many equal times."""
    policy: dict[str, Any] = rng.choice(
        (
            {"scheme": "RCH", "k": 3, "k_prime": 2, "side": "publish"},
            {"scheme": "RCH", "k": 3, "k_prime": 2, "side": "subscribe"},
            {"scheme": "CH", "k": 3},
            {"scheme": "R"},
            {"scheme": "S"},
        )
    )
    servers = 40 if policy["scheme"] == "R" else 4
    fields: dict[str, Any] = {
        "publishers": 2,
        "subscribers": 3,
        "topics": 2,
        "avoid_dead": rng.random() < 0.5,
    }
    world = World(path, servers=servers, ttl_s=2, deadline_s=1.0, **fields, **policy)
    used = range(4)

    def at_ns() -> int:
        return T0 + rng.randrange(0, 60) * 100 * MS

    for _ in range(rng.randrange(60)):
        targets = rng.sample(used, rng.choice((0, 1, 1, 2, 3)))
        world.message(*targets, at_s=rng.randrange(60) / 10, topic=rng.randrange(2), pub=rng.randrange(2))
    for table in ("pub_tx", "server_rx", "deliver", "subscribe", "lease", "intent", "member"):
        gone = rng.choice((0.1, 0.3, 0.9)) if table in ("server_rx", "deliver", "lease") else 0.1
        world.rows[table] = [row for row in world.rows[table] if rng.random() >= gone]
    for table in ("pub_tx", "deliver"):
        for row in world.rows[table]:
            row["injected"] = rng.choice((PASSED, PASSED, LOST, CUT_OFF, DUPLICATE))
    for row in rng.sample(world.rows["deliver"], len(world.rows["deliver"]) // 3):
        row["t_user_ns"] += rng.randrange(20) * 100 * MS
    for row in rng.sample(world.rows["subscribe"], len(world.rows["subscribe"]) // 2):
        row["t_tx_ns"] = at_ns()
    for row in rng.sample(world.rows["pub_tx"], len(world.rows["pub_tx"]) // 3):
        world.add("pub_tx", **row | {"t_tx_ns": at_ns(), "injected": rng.randrange(4)})
    for row in rng.sample(world.rows["member"], len(world.rows["member"]) // 3):
        row["servers"] = rng.sample(used, rng.randrange(1, 4))
    for server in rng.sample(used, 2):
        if rng.random() < 0.3:
            world.drop("server_life", server_id=server)
        else:
            world.where("server_life", server_id=server)[0].update(t_to_ns=at_ns(), ended=rng.randrange(2))
            world.life(server, 200 + server, at_ns(), T0 + 9 * S, rng.randrange(2))
    for row in rng.sample(world.rows["server_rx"], len(world.rows["server_rx"]) // 3):
        world.add("server_rx", **row | {"t_rx_ns": at_ns(), "boot_id": 200 + row["server_id"]})
    for _ in range(rng.randrange(60)):
        server = rng.choice(used)
        life = {"server_id": server, "boot_id": rng.choice((100, 200)) + server}
        held = {"sub_id": rng.randrange(-1, 3), "topic_id": rng.randrange(2)}
        change = rng.choice((OPENED, EXPIRED, EVICTED, STANDING))
        world.add("lease", **life, **held, t_ns=at_ns(), change=change)
    taken_at = {row["boot_id"]: row["t_rx_ns"] for row in world.rows["server_rx"]}
    for row in world.rows["lease"][::4]:  # which change in the turn that took a message
        row["t_ns"] = taken_at.get(row["boot_id"], row["t_ns"])
    for _ in range(rng.randrange(4)):
        from_ns = at_ns()
        times = {"t_down_ns": from_ns, "t_up_ns": from_ns + rng.randrange(3 * S)}
        kind = rng.choice(("isolation", "kill", "stall", "mute"))
        world.add("outage", server_id=rng.choice(used), **times, kind=kind)
    for number in range(rng.randrange(6)):
        at = {"t_ns": T0 + number * S, "kernel_drops": rng.randrange(3)}
        world.add("server_stat", server_id=rng.choice(used), **at)
        client = rng.choice((0, 1, 100, 101, 102))
        world.add("client_stat", client_id=client, **at, send_errors=rng.randrange(2))
    for message in world.rows["publish"]:
        for sub in range(3):
            if rng.random() < 0.03:
                world.add("entry", sub_id=sub, msg_id=message["msg_id"], t_ns=at_ns())
    return world


class Oracle:
    """The same rules, a row at a time."""

    def __init__(self, world: World) -> None:
        self.rows = world.rows
        self.world = world
        self.scenario = world.scenario
        self.policy = world.scenario.policy
        for message in self.rows["publish"]:
            for server in {row["server_id"] for row in world.where("pub_tx", msg_id=message["msg_id"])}:
                self.note_forwarded(message, server)

    def note_forwarded(self, message: dict[str, Any], server: int) -> None:
        """A server that has forwarded a message had it."""
        there = {"msg_id": message["msg_id"], "server_id": server}
        copies = self.world.where("deliver", **there)
        if not copies or self.world.where("server_rx", **there):
            return
        at_ns = min(row["t_user_ns"] for row in copies)
        lives = self.world.where("server_life", server_id=server)
        begun = [row for row in lives if row["t_from_ns"] <= at_ns]
        if begun:
            boot = max(begun, key=lambda row: row["t_from_ns"])["boot_id"]
            self.world.add("server_rx", **there, boot_id=boot, pub_id=message["pub_id"], t_rx_ns=at_ns)

    def causes(self) -> dict[tuple[int, int], Cause]:
        found = {}
        for message in self.rows["publish"]:
            for sub in {row["sub_id"] for row in self.rows["intent"]}:
                if any(
                    row["t_from_ns"] <= message["t_intended_ns"] < row["t_to_ns"]
                    for row in self.world.where("intent", sub_id=sub, topic_id=message["topic_id"])
                ):
                    found[message["msg_id"], sub] = self.cause(message, sub)
        return found

    def cause(self, message: dict[str, Any], sub: int) -> Cause:
        msg, topic = message["msg_id"], message["topic_id"]
        sent = {
            row["server_id"]
            for table in ("pub_tx", "server_rx")
            for row in self.world.where(table, msg_id=msg)
        }
        copies = self.world.where("deliver", msg_id=msg, sub_id=sub)
        deadline_ns = message["t_intended_ns"] + S
        if any(row["injected"] in (PASSED, DUPLICATE) and row["t_user_ns"] <= deadline_ns for row in copies):
            return Cause.DELIVERED
        arrived = any(row["injected"] in (PASSED, DUPLICATE) for row in copies if row["server_id"] >= 0)
        if not arrived and self.world.where("entry", sub_id=sub, msg_id=msg):
            return Cause.BY_HISTORY
        stages = [
            self.stage(message, sub, server)
            for server in sent
            if self.asked(sub, topic, server, msg) or any(row["server_id"] == server for row in copies)
        ]
        if stages:
            return max(stages)
        pub_view, sub_view = self.view("pub_id", message["pub_id"]), self.view("sub_id", sub)
        if not sent:
            return Cause.UNSENT
        if self.policy.publish + self.policy.subscribe > self.policy.k:
            if pub_view != sub_view:
                return Cause.VIEW
            return Cause.UNSENT if len(sent) < min(self.policy.publish, len(pub_view)) else Cause.UNASKED
        asked = {row["server_id"] for row in self.world.where("subscribe", sub_id=sub, topic_id=topic)}
        if any(server in sub_view for server in sent) or any(server in pub_view for server in asked - sent):
            return Cause.DRAW
        return Cause.VIEW

    def view(self, side: str, number: int) -> set[int]:
        rows = self.world.where("member", **{side: number})
        return set(rows[0]["servers"]) if rows else set(range(self.scenario.servers))

    def asked(self, sub: int, topic: int, server: int, msg: int) -> bool:
        last = max(
            [row["t_tx_ns"] for row in self.world.where("pub_tx", msg_id=msg, server_id=server)]
            + [row["t_rx_ns"] for row in self.world.where("server_rx", msg_id=msg, server_id=server)]
        )
        held = {"sub_id": sub, "topic_id": topic, "server_id": server}
        return any(row["t_tx_ns"] <= last for row in self.world.where("subscribe", **held))

    def stage(self, message: dict[str, Any], sub: int, server: int) -> Cause:
        msg, topic = message["msg_id"], message["topic_id"]
        copies = self.world.where("deliver", msg_id=msg, sub_id=sub, server_id=server)
        if copies:
            times = [row["t_user_ns"] for row in copies if row["injected"] in (PASSED, DUPLICATE)]
            if times:
                halted = any(
                    row["t_down_ns"] - EDGE_NS <= min(times)
                    and message["t_intended_ns"] <= row["t_up_ns"] + EDGE_NS
                    for row in self.world.where("outage", server_id=server, kind="stall")
                )
                return Cause.HALTED if halted else Cause.LATE
            at_ns = min(row["t_user_ns"] for row in copies)
            is_mute = any(
                row["t_down_ns"] - EDGE_NS <= at_ns <= row["t_up_ns"] + EDGE_NS
                for row in self.world.where("outage", server_id=server, kind="mute")
            )
            cut_off = Cause.MUTE if is_mute else Cause.DOWN_OUT
            return Cause.LOSS_OUT if any(row["injected"] == LOST for row in copies) else cut_off
        had = self.world.where("server_rx", msg_id=msg, server_id=server)
        if had:
            return max(self.beyond(row, sub, topic) for row in had)
        stage = max(
            self.before(row, message["pub_id"])
            for row in self.world.where("pub_tx", msg_id=msg, server_id=server)
        )
        if stage is Cause.UNTAPPED:
            last = max(row["t_tx_ns"] for row in self.world.where("pub_tx", msg_id=msg, server_id=server))
            if self.client_rose("sub_id", sub, "kernel_drops", last):
                return Cause.OVERFLOW_OUT
        return stage

    def before(self, tx: dict[str, Any], pub: int) -> Cause:
        server, at_ns = tx["server_id"], tx["t_tx_ns"]
        if tx["injected"] == LOST:
            return Cause.LOSS_IN
        if tx["injected"] == CUT_OFF or self.was_down(server, at_ns):
            return Cause.DOWN
        lives = self.world.where("server_life", server_id=server)
        if not lives:
            return Cause.UNTAPPED
        begun = [row for row in lives if row["t_from_ns"] <= at_ns]
        if begun:
            life = max(begun, key=lambda row: row["t_from_ns"])
            is_first = life["t_from_ns"] == min(row["t_from_ns"] for row in lives)
            admitted = self.world.where("server_rx", boot_id=life["boot_id"], pub_id=pub)
            if not is_first and not any(row["t_rx_ns"] <= at_ns for row in admitted):
                return Cause.UNVOUCHED
        if self.client_rose("pub_id", pub, "send_errors", at_ns):
            return Cause.SEND_ERROR
        if self.rose(self.world.where("server_stat", server_id=server), "kernel_drops", at_ns):
            return Cause.OVERFLOW_IN
        return Cause.NETWORK_IN

    def beyond(self, rx: dict[str, Any], sub: int, topic: int) -> Cause:
        server, at_ns = rx["server_id"], rx["t_rx_ns"]
        held = {"server_id": server, "sub_id": sub, "topic_id": topic}
        begins = (OPENED, STANDING)
        ever = self.lease_changes(held, at_ns)
        changes = [row for row in ever if row["boot_id"] == rx["boot_id"]]
        last = max(changes, key=lambda row: (row["t_ns"], row["change"] in begins), default=None)
        if last is not None and last["change"] in begins:
            if self.was_down(server, at_ns):
                return Cause.DOWN_OUT
            rose = self.client_rose("sub_id", sub, "kernel_drops", at_ns)
            return Cause.OVERFLOW_OUT if rose else Cause.NETWORK_OUT
        if self.scenario.avoid_dead and self.policy.subscribe < self.policy.k:
            asked = [row["t_tx_ns"] for row in self.world.where("subscribe", **held)]
            if not any(at_ns - 2 * S <= t_ns <= at_ns for t_ns in asked):
                return Cause.DRAW
        if last is not None:
            return Cause.LEASE_EXPIRED
        opened = any(row["change"] in begins for row in ever)
        return Cause.LEASE_RESTART if opened else Cause.LEASE_NEVER

    def lease_changes(self, held: dict[str, int], at_ns: int) -> list[dict[str, Any]]:
        """The changes of a lease that count at a time: a beginning counts from the next ns on."""
        changes = self.world.where("lease", **held)
        return [row for row in changes if row["t_ns"] + (row["change"] in (OPENED, STANDING)) <= at_ns]

    def was_down(self, server: int, at_ns: int) -> bool:
        for row in self.world.where("outage", server_id=server):
            from_ns = row["t_down_ns"]
            if row["kind"] in ("isolation", "mute"):
                continue
            begin_ns = from_ns - EDGE_NS
            cut = [
                life["t_to_ns"]
                for life in self.world.where("server_life", server_id=server, ended=0)
                if life["t_to_ns"] <= from_ns + EDGE_NS
            ]
            if cut:
                begin_ns = min(begin_ns, max(max(cut), from_ns - TAP_UNWRITTEN_NS))
            if begin_ns <= at_ns <= row["t_up_ns"] + EDGE_NS:
                return True
        return False

    def client_rose(self, side: str, number: int, counter: str, at_ns: int) -> bool:
        clients = [row["client_id"] for row in self.world.where("member", **{side: number})]
        rows = [row for client in clients for row in self.world.where("client_stat", client_id=client)]
        return self.rose(rows, counter, at_ns)

    @staticmethod
    def rose(rows: list[dict[str, Any]], counter: str, at_ns: int) -> bool:
        since, count = None, 0
        for row in sorted(rows, key=lambda row: row["t_ns"]):
            since = row["t_ns"] - S if since is None else since
            is_new = row[counter] > count or 0 < row[counter] < count
            if is_new and since - S <= at_ns <= row["t_ns"] + S:
                return True
            since, count = row["t_ns"], row[counter]
        return False
