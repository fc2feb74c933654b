"""A member of a group who wants to silence the others: nothing of theirs is lost by what it sends.

PROTOCOL §9.6. It has all that a member has. Windows, and the time to fill them, are a 32nd of the real ones.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.events import Drop, Forged
from kcast.client.messages.guard_and_writer import Proven
from kcast.client.sealed.guards import SealedGuard
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import group_of
from kcast.client.sealed.replay import Replays
from kcast.client.sealed.sealing import Signs
from kcast.client.sealed.signing import Signer
from tests.support.attack_stage import NAME, UNIX_S, Process
from tests.support.groups import LIFE_S, identity, made
from tests.support.sealed_guards import judged

SCALE = 32
WINDOWS = 4096 // SCALE
FLOODS = ((8_300 // SCALE, 16.0 / SCALE), (300 * 600 // SCALE, 600.0 / SCALE))  # lines, in so many seconds
ANN, BEN, MALLORY, LATER = (identity(number) for number in range(1, 5))
FILE, _ = made(1, 0, UNIX_S - 1000, members=(ANN, BEN, MALLORY, LATER), life_s=LIFE_S)  # it names no senders
GROUP = group_of([FILE], ANN)
(EPOCH,) = GROUP.epochs


class ClaimsAnother:
    """Signs, with a false signature, as if another had."""

    def __init__(self, whose: Identity) -> None:
        self.key = whose.signer.key

    def sign_bytes(self, data: bytes) -> bytes:
        """Returns what nobody has signed."""
        return MALLORY.signer.sign_bytes(data)


def process(rng: Random, signer: Signs) -> Process:
    """A process with a publisher's name and an ENC of its own."""
    return Process(EPOCH, f"p{rng.randrange(10**9)}", rng.randbytes(32), signer, wire_topic=NAME)


KINDS: dict[str, Callable[[Random], Signs]] = {
    "its own key": lambda _: MALLORY.signer,
    "keys that it made up": lambda rng: Signer(rng.randbytes(32)),
    "false signatures of others": lambda rng: ClaimsAnother(rng.choice((ANN, BEN, LATER))),
}


def test_no_flood_of_a_member_silences_another() -> None:
    rng = Random(1)
    guard = SealedGuard(GROUP, UNIX_S, has_plain_topics=True)
    guard._replays = Replays(UNIX_S * 1000, WINDOWS)
    ben, sent, recorded = process(rng, BEN.signer), 0, list[bytes]()
    met: dict[str, Counter[Drop | None]] = {kind: Counter() for kind in KINDS}

    def heard(line: bytes, now: float) -> Proven | Drop:
        return judged(guard, NAME, line.removesuffix(b"\n"), now)

    now = float(UNIX_S)
    for lines, for_s in FLOODS:
        for number in range(lines):
            now += for_s / lines
            (kind,), is_dummy = rng.choices(list(KINDS), (4, 1, 1)), rng.random() < 0.5
            ahead_s = rng.choice((29.0, 29.0, 0.0, -100.0))
            one = process(rng, KINDS[kind](rng))
            line = one.line(10**17, now + ahead_s, b"", is_cover=is_dummy, count=0 if is_dummy else None)
            found = heard(line, now)
            met[kind][found if isinstance(found, Drop) else None] += 1
            if number % 40 == 0:
                sent += 1
                anybody = process(rng, rng.choice((ANN, BEN, LATER)).signer)  # heard for the first time
                recorded += [ben.line(sent, now), anybody.line(1, now)]
                assert all(isinstance(heard(each, now), Proven) for each in recorded[-2:])
            if number % 500 == 499:
                drops = {heard(each, now) for each in recorded}
                assert drops <= {Drop.REPLAYED, Drop.TOO_OLD}, "nothing is taken twice"
    assert len(guard._replays) == WINDOWS
    assert met["its own key"].keys() == {None, Drop.COVER, Drop.TOO_OLD}
    assert met["keys that it made up"].keys() == {Drop.UNAUTHORISED, Drop.TOO_OLD}
    assert met["false signatures of others"].keys() == {Drop.BAD_SIGNATURE, Drop.TOO_OLD}
    told = [each for each in guard.take_events() if isinstance(each, Forged)]
    assert {each.sender for each in told} == {MALLORY.signer.key_text}, "it is named, and nobody else"
