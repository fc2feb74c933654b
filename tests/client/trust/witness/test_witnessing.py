"""client/trust/witness/witnessing.py: every answer of C2SP tlog-witness, and what is never cosigned."""

import random
from dataclasses import replace

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, cosignatures
from kcast.client.trust.forms.note import KIND_COSIGNATURE, Note, NoteError, Signature, SigningKey, sign
from kcast.client.trust.witness.witnessing import SIZE_TYPE, Answer, Request, WitnessCore
from tests.support.handmade_log import ORIGIN, HandmadeLog
from tests.support.lists import LOG as LOG_KEY
from tests.support.lists import WITNESSES

NOW = 1_790_000_000
KEY = WITNESSES[0]
STRANGER = SigningKey.from_seed("stranger", bytes(32))


class Asked:
    """A witness core with the state that it would have on disk."""

    def __init__(self, *logs: SigningKey) -> None:
        self.core = WitnessCore(KEY, [log.verifier for log in logs or (LOG_KEY,)])
        self.held: dict[str, Checkpoint] = {}

    def ask(self, body: bytes, now: int = NOW) -> Answer:
        request = self.core.read(body)
        if isinstance(request, Answer):
            return request
        origin = request.checkpoint.origin
        answer = self.core.decide(request, self.held.get(origin), now)
        if answer.cosigned is not None:
            self.held[origin] = self.core.held(origin, answer.cosigned.data)
        return answer


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_a_log_grows_and_each_checkpoint_is_cosigned(asked: Asked) -> None:
    log = HandmadeLog(60)
    for old, new in ((0, 1), (1, 2), (2, 7), (7, 8), (8, 33), (33, 60)):
        answer = asked.ask(log.body(old, new))
        assert answer.status == 200
        assert answer.body.startswith("\N{EM DASH} w0.example.net ")
        assert answer.body.count("\n") == 1
        assert answer.body.endswith("\n")
        signature = Signature.parse(answer.body.removesuffix("\n"))
        cosigned = log.signed(new).with_signatures([signature])
        assert cosignatures(cosigned, [KEY.verifier]) == {KEY.verifier: NOW}
        # What monitors get: the log's signature and ours.
        assert answer.cosigned == cosigned


def test_an_empty_tree_is_cosigned_once_and_again(asked: Asked) -> None:
    log = HandmadeLog(3)
    assert [asked.ask(log.body(0, 0)).status for _ in range(2)] == [200, 200]
    assert asked.ask(log.body(0, 3)).status == 200
    assert (asked.ask(log.body(0, 0)).status, asked.ask(log.body(0, 0)).body) == (409, "3\n")


def test_another_old_size_is_answered_with_the_size_held(asked: Asked) -> None:
    log = HandmadeLog(20)
    asked.ask(log.body(0, 10))
    for old, new in ((0, 10), (0, 20), (9, 20), (11, 20), (5, 5)):
        answer = asked.ask(log.body(old, new))
        assert (answer.status, answer.body, answer.content_type) == (409, "10\n", SIZE_TYPE)
        assert answer.cosigned is None
    fresh = Asked().ask(log.body(9, 20))
    assert (fresh.status, fresh.body, fresh.content_type) == (409, "0\n", SIZE_TYPE)


def test_an_old_size_beyond_the_checkpoints_is_malformed(asked: Asked) -> None:
    assert asked.ask(HandmadeLog(9).body(9, 8)).status == 400


def test_a_proof_that_does_not_lead_there_is_refused(asked: Asked) -> None:
    log = HandmadeLog(20)
    asked.ask(log.body(0, 7))
    good = AddCheckpoint.parse(log.body(7, 20))
    chance = random.Random(13)
    for _ in range(200):
        path = list(good.path)
        match chance.randrange(4):
            case 0:
                path[chance.randrange(len(path))] = chance.randbytes(32)
            case 1:
                del path[chance.randrange(len(path))]
            case 2:
                path.insert(chance.randrange(len(path) + 1), chance.choice(path))
            case 3:
                one, other = chance.sample(range(len(path)), 2)
                path[one], path[other] = path[other], path[one]
        answer = asked.ask(replace(good, path=tuple(path)).data)
        assert (answer.status, answer.cosigned) == (422, None)
    assert asked.ask(good.data).status == 200


def test_who_has_the_logs_key_gets_no_second_history(asked: Asked) -> None:
    log, fork = HandmadeLog(20), HandmadeLog(20, fork_at=8)
    asked.ask(log.body(0, 10))
    for old, new, status in ((10, 10, 422), (0, 10, 409), (10, 20, 422), (0, 20, 409), (8, 10, 409)):
        answer = asked.ask(fork.body(old, new))
        assert (answer.status, answer.cosigned) == (status, None)
        # Two roots of one size prove it; others only may.
        assert answer.fork == (fork.signed(10) if new == 10 else None)


@pytest.mark.parametrize(
    ("note", "status"),
    [
        (HandmadeLog(3, origin="example.org/other/log").signed(3), 404),
        (HandmadeLog(3).signed(3, [STRANGER]), 403),
        (HandmadeLog(3).signed(3, [SigningKey.from_seed(ORIGIN, bytes(32))]), 403),
        (HandmadeLog(3).signed(3, [SigningKey(LOG_KEY.verifier, bytes(32))]), 403),
        (HandmadeLog(3).signed(3, [LOG_KEY, SigningKey(LOG_KEY.verifier, bytes(32))]), 403),
        (HandmadeLog(3).signed(3, [STRANGER, LOG_KEY]), 200),
        (Note(HandmadeLog(4).checkpoint(4).text, HandmadeLog(3).signed(3).signatures), 403),
        (sign(f"{HandmadeLog(3).checkpoint(3).text}extension\n", [LOG_KEY]), 400),
    ],
    ids=["unknown", "stranger", "namesake", "forged", "one-forged", "with-others", "moved", "extension"],
)
def test_whose_signature_it_is(asked: Asked, note: Note, status: int) -> None:
    answer = asked.ask(AddCheckpoint(0, (), note).data)
    assert answer.status == status
    assert (answer.cosigned is None) == (status != 200)


def test_signatures_of_strangers_are_not_kept(asked: Asked) -> None:
    log = HandmadeLog(3)
    answer = asked.ask(AddCheckpoint(0, (), log.signed(3, [STRANGER, LOG_KEY])).data)
    assert answer.cosigned is not None
    assert [each.name for each in answer.cosigned.signatures] == [ORIGIN, KEY.verifier.name]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b"old 1\n", b"old -1\n"),
        lambda body: body.replace(b"\n", b"\r\n"),
        lambda body: body[:-30],
        lambda body: body.replace(b"old 1\n", b"old 1\n" + 64 * (b"A" * 43 + b"=\n")),
        lambda body: body + b"\xff",
    ],
)
def test_what_is_no_request_is_malformed(asked: Asked, change: object) -> None:
    assert callable(change)
    log = HandmadeLog(3)
    asked.ask(log.body(0, 1))
    assert asked.ask(change(log.body(1, 3))).status == 400
    assert asked.ask(log.body(1, 3)).status == 200


def test_no_mutant_of_a_request_is_cosigned_unless_it_says_the_same(asked: Asked) -> None:
    log = HandmadeLog(6)
    asked.ask(log.body(0, 3))
    good = log.body(3, 6)
    chance = random.Random(7)
    for _ in range(3000):
        at = chance.randrange(len(good))
        mutant = good[:at] + chance.randbytes(chance.randrange(3)) + good[at + chance.randrange(3) :]
        request = asked.core.read(mutant)
        if isinstance(request, Request):
            answer = asked.core.decide(request, asked.held[ORIGIN], NOW)
            assert answer.cosigned is None or request.checkpoint == log.checkpoint(6)


def test_a_log_may_have_two_keys_while_it_changes_them() -> None:
    new = SigningKey.from_seed(ORIGIN, bytes([0x22]) * 32)
    asked = Asked(LOG_KEY, new)
    cosigned = asked.ask(HandmadeLog(5).body(0, 5)).cosigned
    assert cosigned is not None
    assert asked.ask(HandmadeLog(9, key=new).body(5, 9)).status == 200
    # One that is started with the new key alone knows what it has cosigned before.
    assert Asked(new).core.held(ORIGIN, cosigned.data) == HandmadeLog(5).checkpoint(5)


def test_a_key_for_cosignatures_is_no_logs_key() -> None:
    with pytest.raises(NoteError, match="no log signs with it"):
        WitnessCore(KEY, [SigningKey.from_seed("a", bytes(32), KIND_COSIGNATURE).verifier])
