"""Two clients are shown two histories: how many of seven witnesses must lie for that, and who sees it then.

Whoever attacks has the key of the log, so the log signs both histories, and chooses which witness is asked
for what, and when. Lying witnesses cosign whatever they are given.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.verdicts import Accepted, Held, Refused
from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, LogProof, cosign, cosignatures
from kcast.client.trust.forms.note import Note, Signature, SigningKey, verify
from kcast.client.trust.forms.quorum import Policy
from kcast.client.trust.witness.witnessing import Answer, WitnessCore
from tests.support.handmade_log import HandmadeLog
from tests.support.lists import LOG as LOG_KEY
from tests.support.lists import WITNESSES as KEYS
from tests.support.lists import Lists, judged, policy

NOW = 1_790_000_000
WITNESSES = len(KEYS)
COMMON, SIZE = 8, 10  # the histories part at entry 8
GOOD, FORK = HandmadeLog(14), HandmadeLog(14, fork_at=COMMON)


class Honest:
    """A witness that keeps to C2SP tlog-witness."""

    def __init__(self, key: SigningKey) -> None:
        self.key = key
        self._core = WitnessCore(key, [LOG_KEY.verifier])
        self.held: Checkpoint | None = None

    def cosign(self, log: HandmadeLog, size: int) -> Signature | None:
        held_size = self.held.size if self.held else 0
        return self.answer(log.body(held_size, max(size, held_size)), size)

    def answer(self, body: bytes, size: int) -> Signature | None:
        request = self._core.read(body)
        assert not isinstance(request, Answer)
        answer = self._core.decide(request, self.held, NOW)
        if answer.cosigned is None:
            return None
        self.held = request.checkpoint
        return Signature.parse(answer.body.removesuffix("\n")) if request.checkpoint.size == size else None


class Lying:
    """A witness that cosigns anything."""

    def __init__(self, key: SigningKey) -> None:
        self.key = key

    def cosign(self, log: HandmadeLog, size: int) -> Signature:
        return self.answer(log.body(0, size), size)

    def answer(self, body: bytes, _: int) -> Signature:
        return cosign(AddCheckpoint.parse(body).checkpoint, self.key, NOW)


def is_believed(note: Note, rules: Policy) -> bool:
    """What a client checks of a checkpoint alone (PROTOCOL §10.7)."""
    return bool(verify(note, [rules.log])) and rules.is_met(cosignatures(note, rules.keys).keys())


def attack(asked: tuple[str, ...], liars: int, sizes: tuple[int, int]) -> tuple[Note, Note]:
    """Returns the best two checkpoints that can be made when each honest witness is asked as `asked` says:
    for the good history first, for the fork first, or for one of them alone."""
    notes = [GOOD.signed(sizes[0]), FORK.signed(sizes[1])]
    witnesses = [Lying(key) for key in KEYS[:liars]] + [Honest(key) for key in KEYS[liars:]]
    orders = ("both",) * liars + asked
    for witness, order in zip(witnesses, orders, strict=True):
        if isinstance(witness, Honest):
            witness.cosign(GOOD, COMMON)  # all have seen what both histories begin with
        for which in {"both": (0, 1), "good first": (0, 1), "fork first": (1, 0)}[order]:
            given = witness.cosign((GOOD, FORK)[which], sizes[which])
            if given is not None:
                notes[which] = notes[which].with_signatures([given])
    return notes[0], notes[1]


@pytest.mark.parametrize("needed", range(1, WITNESSES + 1))
def test_a_quorum_of_q_holds_while_fewer_than_2q_minus_7_lie(needed: int) -> None:
    rules = policy(needed)
    for liars in range(WITNESSES + 1):
        halves = [
            ("good first",) * many + ("fork first",) * (WITNESSES - liars - many)
            for many in range(WITNESSES - liars + 1)
        ]
        for sizes in ((SIZE, SIZE), (10, 12), (12, 10)):
            notes = (attack(half, liars, sizes) for half in halves)
            can_split = any(all(is_believed(note, rules) for note in both) for both in notes)
            assert can_split == (liars >= max(2 * needed - WITNESSES, 0))


# --- The same with whole lists, and clients that judge them ----------------------------------------------


def ask(lists: Lists, asked: Sequence[Lying | Honest]) -> None:
    """Asks these witnesses to cosign the newest checkpoint; each decides by itself."""
    size = len(lists.entries)
    bare = Note.parse(lists.files["checkpoint"])
    cosigners = []
    for witness in asked:
        held = witness.held.size if isinstance(witness, Honest) and witness.held else 0
        # Whoever attacks knows what each witness holds, and has the best proof that there is.
        path = lists.consistency(held) if 0 < held < size else ()
        if witness.answer(AddCheckpoint(held, path, bare).data, size):
            cosigners.append(witness.key)
    note = lists.serve_tree(cosigners)
    proof = LogProof.parse(lists.files["latest.tlog-proof"])
    lists.files["latest.tlog-proof"] = replace(proof, checkpoint=note).data


def split(liars: int, honest_for_good: int) -> tuple[Held, Lists, Lists]:
    """Whoever has the keys of the log and of the signers makes two lists of version 2, and asks some honest
    witnesses first for the one, and the others for the other. Returns what clients held before, and both."""
    witnesses: list[Lying | Honest] = [
        *(Lying(key) for key in KEYS[:liars]),
        *(Honest(key) for key in KEYS[liars:]),
    ]
    good = Lists()
    good.publish()
    ask(good, witnesses)
    held = good.accepted()
    fork = deepcopy(good)
    good.publish(good.cluster(13))
    fork.publish(fork.cluster(14))
    ask(good, witnesses[: liars + honest_for_good])
    ask(fork, witnesses)
    ask(good, witnesses)
    return held, good, fork


@pytest.mark.parametrize("liars", range(4))
def test_two_clients_are_shown_two_lists(liars: int) -> None:
    for honest_for_good in range(WITNESSES - liars + 1):
        held, good, fork = split(liars, honest_for_good)
        verdicts = [judged(held, lists.files) for lists in (good, fork)]
        accepted = [verdict for verdict in verdicts if isinstance(verdict, Accepted)]
        refused = [verdict for verdict in verdicts if isinstance(verdict, Refused)]
        assert {verdict.fault for verdict in refused} <= {ListFault.NO_QUORUM}
        if liars < 3:
            assert len(accepted) <= 1
        if len(accepted) == 2:
            # Not seen at download; seen where one client is shown what the other holds.
            for mine, other in ((accepted[0], fork), (accepted[1], good)):
                found = judged(mine.held, other.files)
                assert isinstance(found, Refused)
                assert found.fault is ListFault.FORK
                notes = [Note.parse(found.evidence[f"{which}.checkpoint"]) for which in ("held", "shown")]
                assert all(verify(note, [LOG_KEY.verifier]) for note in notes)
    # With three liars, and two honest ones asked for each, both clients are deceived.
    if liars == 3:
        held, good, fork = split(3, 2)
        assert all(isinstance(judged(held, lists.files), Accepted) for lists in (good, fork))
