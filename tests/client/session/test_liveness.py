"""client/session/liveness.py, and the session that follows its table."""

import logging
from itertools import product

import pytest

from kcast.client.session.liveness import TRANSITIONS, Liveness, Sign
from kcast.client.session.session import Session
from tests.support.fake_server import V4, V6, Talk
from tests.support.liveness_table import TOLD, Row

WAY_TO = {
    Liveness.ALIVE: (),
    Liveness.SUSPECTED: (Sign.SILENCE,),
    Liveness.LOST: (Sign.SILENCE, Sign.THIRD_SILENCE),
}


@pytest.mark.parametrize(("state", "sign"), list(product(Liveness, Sign)))
def test_session_moves_along_the_table_and_tells_the_log(
    state: Liveness, sign: Sign, caplog: pytest.LogCaptureFixture
) -> None:
    session = Talk().session
    for each in WAY_TO[state]:
        session._see(each)
    assert session.liveness is state
    caplog.set_level(logging.DEBUG, "kcast")
    after = TRANSITIONS.get((state, sign), state)
    assert session._see(sign) == (after is not state)
    assert session.liveness is after
    told = [f"192.0.2.1:7400: {state} -> {after} ({sign})"] if after is not state else []
    assert [record.getMessage() for record in caplog.records] == told
    assert {record.name for record in caplog.records} <= {"kcast.client.session.session"}


def test_each_row_comes_about_by_what_a_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is silent for one question, then for ever, then answers."""
    taken: set[Row] = set()
    see = Session._see

    def noted(session: Session, sign: Sign) -> bool:
        before = session.liveness
        changed = see(session, sign)
        if changed:
            taken.add((before, sign, session.liveness))
        return changed

    monkeypatch.setattr(Session, "_see", noted)
    talk = Talk()
    talk.want(b"t")
    states = []
    for is_up, for_s in ((False, 1.5), (True, 5), (False, 100), (True, 100)):
        talk.server.is_up = is_up
        talk.run(for_s)
        states.append(talk.session.liveness)
    assert states == [Liveness.SUSPECTED, Liveness.ALIVE, Liveness.LOST, Liveness.ALIVE]
    assert taken == set(TOLD)


def test_price_and_draining_leave_it_alone() -> None:
    talk = Talk()
    talk.server.bits, talk.server.attributes = 60, {"drain": "1"}
    talk.want(b"t")
    talk.run(1)
    session = talk.session
    assert (session.liveness, session.is_lost, session.is_draining) == (Liveness.ALIVE, True, True)


def test_server_without_an_address_for_us_begins_lost() -> None:
    assert Talk(addresses=(V6,), families=(4,)).session.liveness is Liveness.LOST
    assert Talk(addresses=(V6, V4), families=(4,)).session.liveness is Liveness.ALIVE
