"""trust/state/standing.py: what is verified again at the start, and what a damaged state is found by."""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.checks.verdicts import Accepted, Held
from kcast.client.trust.forms.note import NoteError
from kcast.client.trust.state.standing import Standing, is_sound, standing_of
from tests.support.lists import (
    DAY_S,
    FRESH_S,
    NAME,
    NOW_UNIX_S,
    OWNERS,
    WITNESSES,
    Lists,
    document,
    hosts,
    policy,
)


@pytest.fixture
def lists() -> Lists:
    made = Lists()
    made.publish()
    return made


def test_what_a_judge_has_accepted_stands(lists: Lists) -> None:
    held = lists.accepted()
    standing = standing_of(held)
    assert standing.cluster.name == NAME and standing.former == ()
    assert standing.checkpoint.size == len(lists.entries)
    verdict = lists.judged()
    assert isinstance(verdict, Accepted) and Standing.of(verdict) == standing
    assert standing_of(replace(held)) is standing, "what was verified last is not verified again"


def test_every_flipped_bit_is_found(lists: Lists) -> None:
    held = lists.accepted()
    fields = ("trust", "list", "proof", "list_trust")
    for name in fields:
        data = getattr(held, name)
        for at in range(0, len(data), 7):
            mutant = bytearray(data)
            mutant[at] ^= 1 << at % 8
            given: dict[str, Any] = {name: bytes(mutant)}
            changed = replace(held, **given)
            if is_sound(changed, NAME):
                # Signatures of unknown keys mean nothing, and what is left are enough.
                assert standing_of(changed).cluster == standing_of(held).cluster


def test_states_that_are_mixed_do_not_stand(lists: Lists) -> None:
    first = lists.accepted()
    lists.publish(lists.cluster(hosts(13)))
    second = lists.accepted(first)
    assert is_sound(second, NAME) and second.former == (first.list,)
    for mixed in (
        replace(second, list=first.list),
        replace(second, proof=first.proof),
        replace(second, list=None, proof=None, trust=b""),
        replace(second, list_trust=None),
        replace(second, checkpoint=b"x"),
    ):
        assert not is_sound(mixed, NAME)
    with pytest.raises(NoteError, match="the list is not the one that is in the log"):
        standing_of(replace(second, proof=first.proof))


def test_after_a_new_trust_document_the_list_before_it_stands(lists: Lists) -> None:
    """The signers are others now, and no list of theirs has come."""
    held = lists.accepted()
    others = tuple(each.verifier for each in OWNERS[3:])
    lists.publish_document(document(version=2, signers=others), OWNERS)
    standing = standing_of(replace(held, trust=lists.trust[1]))
    assert standing.document.version == 2 and standing.cluster == standing_of(held).cluster
    assert not is_sound(replace(held, trust=lists.trust[1], list_trust=lists.trust[1]), NAME)


@pytest.mark.parametrize("needed", [5, 0])
def test_a_clock_that_is_wrong_is_seen_by_what_lies_on_the_disk(needed: int) -> None:
    lists = Lists(document=document(policy=policy(needed)))
    lists.publish(witnesses=WITNESSES[:needed])
    held = lists.accepted()
    standing = standing_of(held)
    year_s = 365 * DAY_S
    rows = ((-year_s, "clock"), (-3600, "clock"), (-600, ""), (0, ""), (3600, ""), (year_s, "expired"))
    for off_s, faults in rows:
        at = NOW_UNIX_S + off_s
        assert " ".join(each.fault for each in standing.troubles(at)) == faults, off_s
        assert standing.is_due(at, 0.75) == bool(faults), off_s
        assert standing.present(at) is standing.cluster
    # The next one waits: that is no fault of the clock, and the one before is.
    later = NOW_UNIX_S + FRESH_S
    lists.publish(
        lists.cluster(hosts(13), valid_after_s=later, fresh_until_s=later + FRESH_S),
        witnesses=WITNESSES[:needed],
    )
    standing = standing_of(lists.accepted(held))
    assert standing.troubles(NOW_UNIX_S) == [] and not standing.is_due(NOW_UNIX_S, 0.75)
    assert [each.fault for each in standing.troubles(NOW_UNIX_S - 3600)] == ["clock"]
    assert standing.is_due(NOW_UNIX_S - 3600, 0.75)
    assert len(standing.present(NOW_UNIX_S).servers) == 12 and standing.present(later) is standing.cluster


def test_a_trust_document_alone_is_sound_if_its_owners_have_signed_it(lists: Lists) -> None:
    assert is_sound(lists.newcomer(), NAME)
    assert not is_sound(Held(lists.trust[0].partition(b"\n\n")[0] + b"\n\n"), NAME)
    assert not is_sound(Held(b""), NAME)
