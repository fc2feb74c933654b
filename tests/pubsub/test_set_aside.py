"""pubsub/set_aside.py: who is set aside, and what is tried."""

from kcast.pubsub.set_aside import (
    ASIDE_MAX,
    FORGET_S,
    REFUSED,
    TRIAL_S_MAX,
    TRIAL_S_MIN,
    UNRESOLVED,
    SetAside,
)

NOW = 1000.0
ONE, SAME_IP, OTHER = ("192.0.2.1", 1), ("192.0.2.1", 2), ("192.0.2.2", 1)


def unresolved(*ips: str) -> SetAside:
    aside = SetAside()
    aside.learn((), ips, NOW)
    return aside


def test_nobody_is_set_aside_at_first() -> None:
    aside = SetAside()
    assert not aside
    assert aside.reason(ONE) == ""


def test_an_unresolved_neighbour_is_set_aside_with_all_its_ports() -> None:
    aside = unresolved("192.0.2.1")
    assert [aside.reason(each) for each in (ONE, SAME_IP, OTHER)] == [UNRESOLVED, UNRESOLVED, ""]
    assert aside.has_unresolved


def test_a_refused_address_is_set_aside_alone() -> None:
    aside = SetAside()
    aside.refused(ONE, NOW)
    assert [aside.reason(each) for each in (ONE, SAME_IP)] == [REFUSED, ""]
    assert not aside.has_unresolved
    aside.accepted(ONE)
    aside.accepted(OTHER)
    assert not aside


def test_it_tells_whether_any_of_many_is_set_aside() -> None:
    aside = unresolved("192.0.2.1")
    aside.refused(OTHER, NOW)
    third, same_ip = ("192.0.2.3", 1), (OTHER[0], 9)
    assert [aside.concerns(some) for some in ([third, ONE], [SAME_IP], [third, OTHER])] == [True] * 3
    assert [aside.concerns(some) for some in ([], [third, same_ip])] == [False] * 2


def test_a_neighbour_that_answers_is_back() -> None:
    aside = unresolved("192.0.2.1", "192.0.2.2")
    aside.learn(("192.0.2.1", "192.0.2.9"), ("192.0.2.2",), NOW + 1)
    assert [aside.reason(each) for each in (ONE, OTHER)] == ["", UNRESOLVED]


def test_a_neighbour_of_whom_the_kernel_knows_nothing_more_stays_aside() -> None:
    aside = unresolved("192.0.2.1")
    aside.learn((), (), NOW + 1)
    assert aside.reason(ONE) == UNRESOLVED


def test_trials_come_ever_more_seldom() -> None:
    """And all ports of a neighbour share them."""
    aside = unresolved("192.0.2.1")
    aside.refused(OTHER, NOW)
    steps = 10_000
    for ports in ((ONE, SAME_IP), (OTHER, OTHER)):
        tried = [n for n in range(steps) if aside.try_now(ports[n % 2], NOW + n / 1000)]
        pauses = [(after - before) / 1000 for before, after in zip([0, *tried], tried, strict=False)]
        assert pauses[0] == TRIAL_S_MIN
        assert pauses[1] == 2 * TRIAL_S_MIN
        assert set(pauses[4:]) == {TRIAL_S_MAX}
        assert len(tried) <= steps / 1000 / TRIAL_S_MAX + 3


def test_being_found_again_changes_no_trial() -> None:
    aside = unresolved("192.0.2.1")
    assert aside.try_now(ONE, NOW + TRIAL_S_MIN)
    aside.learn((), ("192.0.2.1",), NOW + TRIAL_S_MIN)
    assert not aside.try_now(ONE, NOW + 2 * TRIAL_S_MIN)


def test_who_is_sent_nothing_is_forgotten() -> None:
    aside = unresolved("192.0.2.1", "192.0.2.2")
    aside.refused(("192.0.2.3", 1), NOW)
    now = NOW
    while now < NOW + FORGET_S + 2:
        now += 0.1
        aside.try_now(ONE, now)
        aside.sweep(now)
    assert len(aside) == 1
    assert aside.reason(ONE) == UNRESOLVED


def test_their_number_is_bounded() -> None:
    """Whoever forges sources to which the kernel refuses to send pushes out no neighbour."""
    aside = unresolved("192.0.2.1")
    for number in range(ASIDE_MAX + 10):
        aside.refused(("198.51.100.1", number), NOW)
    assert len(aside) == ASIDE_MAX + 1
    assert aside.reason(ONE) == UNRESOLVED
    assert aside.reason(("198.51.100.1", 9)) == ""
    assert aside.reason(("198.51.100.1", 10)) == REFUSED
    aside.learn((), [f"2001:db8::{number:x}" for number in range(ASIDE_MAX + 10)], NOW)
    assert len(aside) == 2 * ASIDE_MAX
