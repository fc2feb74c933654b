"""Salts that are promised before addresses are known, and servers that wait for them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("nacl")

from kcast.client.cluster import Cluster
from kcast.client.trust.checks import salts
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.verdicts import Accepted, Held
from kcast.client.trust.forms.note import SigningKey
from tests.support.lists import NAME, SIGNERS, Lists, document, hosts, judged, refusal

FIRST_SALT = b"salt"
EVIL = hosts(1, first=500)


def commitments(salt: bytes) -> tuple[tuple[str, str], ...]:
    return tuple(
        (each.verifier.key_id.hex(), salts.commitment_to(salts.part_of(each.seed, NAME, salt)))
        for each in SIGNERS
    )


def reveals(
    version: int, salt: bytes, keys: Sequence[SigningKey] = SIGNERS
) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (each.verifier.key_id.hex(), salts.part_of(each.seed, NAME, salt).hex(), version) for each in keys
    )


def next_salt(keys: Sequence[SigningKey] = SIGNERS, salt: bytes = FIRST_SALT) -> bytes:
    return salts.salt_of({each.verifier.key_id.hex(): salts.part_of(each.seed, NAME, salt) for each in keys})


def epochs() -> Lists:
    """A list with admission by epochs: 12 servers, and two more that wait."""
    lists = Lists(document=document(admission="epoch"))
    lists.publish(lists.cluster(commitments=commitments(FIRST_SALT)))
    lists.publish(lists.cluster(commitments=commitments(FIRST_SALT), pending=hosts(2, first=12)))
    return lists


def second_epoch(lists: Lists, servers: int = 14, **changes: Any) -> Cluster:
    """The list that begins the second epoch, with these changes."""
    usual: dict[str, Any] = {
        "reveals": reveals(2, FIRST_SALT),
        "commitments": commitments(next_salt()),
        "next_salts": ((next_salt(), lists.now_unix_s + 7 * 86_400),),
    }
    return lists.cluster(changes.pop("entries", servers), **{**usual, **changes})


def held_by(lists: Lists) -> tuple[Held, Held]:
    """What a client holds that has followed, and what one holds that has missed the list before."""
    followed, missed = Lists.accepted(lists), lists.newcomer()
    return followed, missed


def test_servers_enter_with_the_next_salt() -> None:
    lists = epochs()
    holders = held_by(lists)
    lists.publish(second_epoch(lists))
    for held in holders:
        verdict = judged(held, lists.files)
        assert isinstance(verdict, Accepted), verdict
        assert "salt" in [check.step for check in verdict.checks]
    late = replace(holders[0], list=None, proof=None)
    assert isinstance(judged(late, lists.files), Accepted)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"reveals": reveals(2, b"another")}, "shows another part of the salt than version 2 had promised"),
        ({"reveals": (("00112233", "00" * 32, 2),)}, "had not promised"),
        ({"reveals": reveals(2, FIRST_SALT, SIGNERS[:1])}, "1 signers show their part"),
        (
            {"reveals": reveals(1, FIRST_SALT, SIGNERS[:1]) + reveals(2, FIRST_SALT, SIGNERS[1:])},
            "it shows parts that versions 2 and 1 promised: one is expected",
        ),
        ({"next_salts": ((b"0123456789abcdef", 1_790_604_800),)}, "its salt is not the one"),
        ({"entries": (*hosts(14), *EVIL)}, "20.1.244.7:7400 was not pending in version 2"),
    ],
)
def test_what_breaks_the_rule_is_refused(changes: dict[str, Any], says: str) -> None:
    lists = epochs()
    holders = held_by(lists)
    lists.publish(second_epoch(lists, **changes))
    for held in holders:
        found = refusal(judged(held, lists.files))
        assert found.fault is ListFault.SALT
        assert says in found.text


def test_nobody_enters_within_an_epoch() -> None:
    lists = epochs()
    held, _ = held_by(lists)
    lists.publish(lists.cluster(13, commitments=commitments(FIRST_SALT)))
    found = refusal(judged(held, lists.files))
    assert found.fault is ListFault.SALT
    assert "entered within an epoch" in found.text


def test_a_salt_does_not_change_without_parts() -> None:
    lists = epochs()
    held, _ = held_by(lists)
    lists.publish(lists.cluster(12, salt=b"chosen", commitments=commitments(FIRST_SALT)))
    assert refusal(judged(held, lists.files)).fault is ListFault.SALT


def test_a_salt_does_not_change_within_an_epoch_whoever_shows_parts() -> None:
    """Signers could else choose among the salts that subsets of the parts make."""
    lists = epochs()
    lists.publish(second_epoch(lists))
    held = lists.accepted()
    other = next_salt(SIGNERS[:2])
    lists.publish(
        second_epoch(
            lists,
            reveals=reveals(2, FIRST_SALT, SIGNERS[:2]),
            next_salts=((other, lists.now_unix_s + 7 * 86_400),),
        )
    )
    found = refusal(judged(held, lists.files))
    assert found.fault is ListFault.SALT
    assert found.text == "version 4: its salt is another one than that of version 3, in the same epoch"


def test_epochs_do_not_go_back() -> None:
    lists = epochs()
    lists.publish(second_epoch(lists))
    held = lists.accepted()
    lists.publish(lists.cluster(14, commitments=commitments(FIRST_SALT)))
    found = refusal(judged(held, lists.files))
    assert found.fault is ListFault.SALT
    assert found.text == "version 4: its salt rests on no version, and that of version 3 on version 2"


def test_a_client_that_missed_an_epoch_reads_its_last_list() -> None:
    lists = epochs()
    held, _ = held_by(lists)
    lists.publish(second_epoch(lists))
    third = next_salt(salt=next_salt())
    lists.publish(
        lists.cluster(
            hosts(14),
            salt=next_salt(),
            reveals=reveals(3, next_salt()),
            next_salts=((third, lists.now_unix_s + 14 * 86_400),),
        )
    )
    asked: list[str] = []
    verdict = judged(held, lists.files, asked=asked)
    assert isinstance(verdict, Accepted), verdict
    assert "list/3" in asked
    hidden = {path: data for path, data in lists.files.items() if path != "list/3"}
    assert refusal(judged(held, hidden)).fault is ListFault.WITHHELD


def test_a_basis_that_is_not_in_the_log_is_refused() -> None:
    """A list that was never published could promise anything afterwards."""
    lists = epochs()
    forged = lists.cluster(12, commitments=commitments(FIRST_SALT), pending=(*hosts(2, first=12), *EVIL))
    lists.publish(forged, is_logged=False)
    lists.publish(second_epoch(lists, entries=(*hosts(14), *EVIL), reveals=reveals(3, FIRST_SALT)))
    assert refusal(lists.judged()).fault is ListFault.UNLOGGED


def test_a_basis_that_a_mirror_has_changed_is_withheld() -> None:
    lists = epochs()
    other = lists.files["list/1"]
    lists.publish(second_epoch(lists))
    found = refusal(judged(lists.newcomer(), {**lists.files, "list/2": other}))
    assert (found.fault, found.text) == (ListFault.WITHHELD, "list/2 is another list: try another source")
    changed = lists.files["list/2"].replace(b"valid-until 1", b"valid-until 2")
    found = refusal(judged(lists.newcomer(), {**lists.files, "list/2": changed}))
    assert found.fault is ListFault.WITHHELD
    assert found.text == "list/2 is not what its proof is of: try another source"


def test_a_salt_needs_all_parts_in_the_order_of_their_keys() -> None:
    parts = {"bb": bytes(32), "aa": bytes([1]) * 32}
    assert salts.salt_of(parts) == salts.salt_of(dict(reversed(parts.items())))
    assert len(salts.salt_of(parts)) == 16
