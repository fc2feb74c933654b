"""client/session/session.py: a server that lies, or a path that seems to, is not asked in a loop.

What a server may answer to a request is a challenge, a receipt and a refusal. None of them, in whatever
order, has the client send at the rate of round trips, or compute for ever. PROTOCOL §5.8, §5.11, §6.3, §7.3.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kcast.client.events import Outcome
from kcast.client.session.lease_requests import ASK_INTERVAL_S, PAUSE_S_MAX
from kcast.client.session.liveness import Change
from kcast.pubsub import wire
from tests.support.fake_server import Asked, FakeServer, Talk, topics_of

TOPICS = topics_of(100)
ALL = (1 << 63) - 1

# What is answered to the k-th request: None is the truth.
Lie = Callable[["Liar", int, Asked], list[wire.Reply] | None]


@dataclass
class Liar(FakeServer):
    """A server that answers as it should but where `lie` has another answer."""

    lie: Lie = lambda liar, count, asked: None
    count: int = 0
    serial: int = 0

    def answer(self, asked: Asked, now: float) -> list[wire.Reply]:
        if asked.verb != "!":
            return super().answer(asked, now)
        self.count += 1
        lie = self.lie(self, self.count, asked)
        return super().answer(asked, now) if lie is None else lie

    def cookie(self) -> bytes:
        self.serial += 1
        return b"L%031d" % self.serial

    def challenge(self, asked: Asked, bits: int = 0) -> list[wire.Reply]:
        return [wire.Challenge(asked.nonce, self.cookie(), bits)]

    def receipt(self, asked: Asked, ttl_s: int = 60, bits: int = 0) -> list[wire.Reply]:
        return [wire.Receipt(asked.nonce, ttl_s, self.cookie(), bits)]

    def refusal(self, asked: Asked, reason: str, lines: int | None = None, bits: int = 0) -> list[wire.Reply]:
        return [wire.Refusal(asked.nonce, reason, lines, {"bits": str(bits)} if reason == "work" else {})]


def in_turn(*reasons: str) -> Lie:
    """`=`, `+`, or a reason to refuse."""

    def lie(liar: Liar, count: int, asked: Asked) -> list[wire.Reply]:
        what = reasons[count % len(reasons)]
        if what == "=":
            return liar.challenge(asked)
        return liar.receipt(asked) if what == "+" else liar.refusal(asked, what, bits=1)

    return lie


def told(lie: Lie, *, rtt_s: float = 0.01, bits: int = 0) -> tuple[Talk, Liar]:
    liar = Liar(lie=lie, bits=bits)
    return Talk(liar, rtt_s=rtt_s), liar


LIES: dict[str, Lie] = {
    "%=": in_turn("="),
    "%= and %+": in_turn("=", "+"),
    "%= and %+ twice": in_turn("=", "+", "+"),
    "%= and full": in_turn("=", "full"),
    "%= and rate": in_turn("=", "rate"),
    "%= and size": in_turn("=", "size"),
    "%= and work": in_turn("=", "work"),
    "%= after many": in_turn("=", *["size"] * 5, *["full"] * 5),
    "size": in_turn("size"),
    "work": in_turn("work"),
    "%= and a price of 0 and 30": lambda liar, count, asked: liar.challenge(asked, 30 * (count % 2)),
    "work without a stamp, %= with one": lambda liar, count, asked: (
        liar.challenge(asked) if asked.stamp else liar.refusal(asked, "work", bits=1)
    ),
    "work with a price that rises": lambda liar, count, asked: liar.refusal(
        asked, "work", bits=1 + count % 8
    ),
    "work with a price of 0 and 1": lambda liar, count, asked: liar.refusal(asked, "work", bits=count % 2),
    "%+ with a price, and work": lambda liar, count, asked: (
        liar.receipt(asked, bits=count % 2) + liar.refusal(asked, "work", ALL, bits=1)
    ),
    "%+ to publishes, %= to leases": lambda liar, count, asked: (
        liar.challenge(asked) if asked.topics else liar.receipt(asked)
    ),
    "%= to publishes, %+ to leases": lambda liar, count, asked: (
        liar.receipt(asked) if asked.topics else liar.challenge(asked)
    ),
    "a ttl of 1, then %=": lambda liar, count, asked: (
        liar.receipt(asked, ttl_s=1) if count % 4 == 0 else liar.challenge(asked)
    ),
    "refusals of nothing": lambda liar, count, asked: liar.refusal(asked, "full", 0),
}


@pytest.mark.parametrize("topic_count", [1, 100])
@pytest.mark.parametrize("lie", LIES)
def test_a_lying_server_is_not_asked_in_a_loop(lie: str, topic_count: int) -> None:
    talk, _ = told(LIES[lie], rtt_s=0.002)
    talk.want(*TOPICS[:topic_count])
    talk.run(60, tries_per_s=10**6)
    since = talk.now
    assert len(talk.asked) <= 20 * 60
    talk.run(60, tries_per_s=10**6)
    assert len([asked for asked in talk.asked if asked.at > since]) <= 20 * 60


# --- Forgotten again and again (§6.3) -----------------------------------------------------------------


def forgetful(topic_count: int = 100) -> tuple[Talk, Liar]:
    """A session that has been answered with `%=` for five minutes."""
    talk, liar = told(in_turn("="))
    talk.want(*TOPICS[:topic_count])
    talk.run(300)
    talk.asked.clear()
    return talk, liar


def test_a_server_that_forgets_us_each_time_is_asked_one_thing_each_interval_or_so() -> None:
    talk, _ = forgetful()
    talk.run(100)
    assert len(talk.asked) == pytest.approx(100 / (0.8 * ASK_INTERVAL_S), abs=1)


def test_it_is_believed_as_soon_as_it_takes_a_cookie() -> None:
    talk, liar = forgetful()
    liar.lie = in_turn("+")
    talk.run(ASK_INTERVAL_S + 0.1)
    assert all(map(talk.session.is_leased, TOPICS))
    assert len(talk.asked) == 2


def test_publishes_that_are_refused_too_do_not_put_off_the_question() -> None:
    """Each is answered by `%=`; leases are asked for all the same, once an interval."""
    talk, _ = forgetful(1)
    for number in range(300):
        talk.session.publish(b"t m\n", number, True)
        talk.run(0.1)
    times = [asked.at for asked in talk.asked if asked.topics]
    assert len(times) == pytest.approx(30 / (0.8 * ASK_INTERVAL_S), abs=1)
    assert {outcome for _, outcome in talk.outcomes()} == {Outcome.NO_ANSWER}


def test_a_time_without_it_makes_the_next_one_a_first_one() -> None:
    talk, liar = forgetful(1)
    liar.lie = in_turn("+")
    talk.run(60)
    liar.lie = lambda liar, count, asked: None  # it knows none of the liar's cookies
    talk.asked.clear()
    while not talk.asked:
        talk.run(0.1)
    first, again = talk.asked[:2]
    assert again.at - first.at == pytest.approx(0.01)
    liar.restart()
    talk.session.publish(b"t m\n", 1, True)
    talk.run(0.6)
    assert talk.is_leased(TOPICS[0]), "and a second one is soon forgiven, too"


def test_the_cookie_of_a_former_era_is_shown_no_more() -> None:
    """What is asked later may be answered before; then what `%=` brings is the cookie there is."""
    talk = Talk()
    talk.want(b"t")
    (ask,) = talk.send()
    talk.reply(wire.Challenge(ask.nonce, b"A" * 32, 0))
    (early,) = talk.send()
    talk.now += 0.1
    talk.session.publish(b"t m\n", 1, True)
    (late,) = talk.send()
    talk.reply(wire.Receipt(late.nonce, 60, b"B" * 32, 0))
    talk.reply(wire.Challenge(early.nonce, b"C" * 32, 0))
    (again,) = talk.send()
    assert (again.cookie, again.topics) == (b"C" * 32, [b"t"])
    talk.reply(wire.Receipt(again.nonce, 60, b"D" * 32, 0))
    assert talk.session.is_leased(b"t")


# --- Stamps that buy nothing (§5.11) ------------------------------------------------------------------


def refused_if_stamped(reason: str) -> Lie:
    def lie(liar: Liar, count: int, asked: Asked) -> list[wire.Reply]:
        if reason == "=" and asked.stamp:
            return liar.challenge(asked, 4)
        return liar.refusal(asked, reason if asked.stamp else "work", bits=4)

    return lie


@pytest.mark.parametrize("reason", ["=", "full", "rate", "size", "work", "unheard-of"])
def test_a_server_that_sells_nothing_is_worked_for_less_and_less(reason: str) -> None:
    talk, _ = told(refused_if_stamped(reason), bits=4, rtt_s=0.0)
    talk.want(*topics_of(300))
    talk.run(3600, tries_per_s=10**6)
    stamps = {asked.stamp + asked.cookie for asked in talk.asked if asked.stamp}
    assert 10 < len(stamps) <= 3600 / PAUSE_S_MAX + 12


def test_a_stamp_that_buys_ends_the_pause() -> None:
    """One that was refused for want of room is sent again every interval, so it hears of room in time."""
    topics = topics_of(40, 200)
    talk = Talk(FakeServer(bits=4, refused=dict.fromkeys(topics, "full")))
    talk.want(*topics)
    talk.run(600, tries_per_s=10**6)
    for _ in range(5):
        talk.run(33, tries_per_s=10**6)
        assert not talk.session.is_minting
    talk.server.refused = {}
    talk.run(ASK_INTERVAL_S + 0.5, tries_per_s=10**6)
    assert talk.is_leased(*topics)


# --- Refusals that name nothing (§5.8) ----------------------------------------------------------------


@pytest.mark.parametrize("reason", ["full", "rate", "work", "unheard-of"])
@pytest.mark.parametrize(("lines", "refused"), [(0, []), (1, [b"t"]), (4, []), (3, [b"t", b"u"])])
def test_what_a_refusal_does_not_name_is_asked_for_an_interval_later(
    reason: str, lines: int, refused: list[bytes]
) -> None:
    talk, liar = told(lambda liar, count, asked: liar.refusal(asked, reason, lines), rtt_s=0.0)
    talk.want(b"t", b"u")
    talk.exchange()
    assert talk.notices() == [(Change.REFUSED, topic, reason) for topic in refused]
    liar.lie = lambda liar, count, asked: None
    talk.run(ASK_INTERVAL_S - 0.1)
    assert not talk.session.is_leased(b"t")
    talk.run(0.2)
    assert talk.is_leased(b"t", b"u")
