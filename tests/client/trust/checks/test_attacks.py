"""Attacks on a signed list, one test a row, each with the fault that names it.

Elsewhere: a first contact without a pin or with a wrong one, signatures stripped from a known name, a slow
drip, and a lying `head=`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("nacl")

from kcast.client.cluster import ServerEntry, facts_of, format_cluster, host_key, hosts_of
from kcast.client.trust.checks import log_checks
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.verdicts import Accepted, Held, Verdict
from kcast.client.trust.forms.checkpoint import Checkpoint, LogProof, cosign
from kcast.client.trust.forms.note import Note, SigningKey, sign
from kcast.client.trust.forms.record import ListRecord, TrustRecord
from kcast.client.trust.forms.tiles import write_entries
from tests.support.lists import (
    DAY_S,
    FRESH_S,
    LOG,
    NAME,
    NOW_UNIX_S,
    OWNERS,
    SIGNERS,
    VALID_S,
    WITNESSES,
    Lists,
    document,
    hosts,
    judged,
    key,
    policy,
    refusal,
)


def published(count: int = 1, **changes: object) -> Lists:
    lists = Lists(document=document(**changes))
    for _ in range(count):
        lists.publish()
    return lists


def fault_of(verdict: Verdict) -> ListFault:
    return refusal(verdict).fault


def test_what_is_sound_is_accepted() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(14))
    verdict = judged(held, lists.files)
    assert isinstance(verdict, Accepted)
    assert len(verdict.cluster.servers) == 14
    assert [check.step for check in verdict.checks] == [
        *("trust", "checkpoint", "history", "list", "signers", "times", "servers", "meeting")
    ]
    assert all(check.is_ok for check in verdict.checks), verdict.checks


# --- Packing: a list full of the attacker's servers ----------------------------------------------------


def test_an_unlogged_list() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(13), is_logged=False)
    assert fault_of(lists.judged(held)) is ListFault.UNLOGGED


def test_one_signature_short() -> None:
    lists = published()
    lists.publish(keys=SIGNERS[:1])
    found = refusal(lists.judged())
    assert found.fault is ListFault.TOO_FEW_SIGNERS
    assert found.text == "version 2 is signed by 1 of the 2 signers that it takes"


def test_one_key_twice() -> None:
    """Under two names a key would count twice, if names were counted."""
    again = SigningKey.from_seed("example.org/lab/again", SIGNERS[0].seed)
    lists = published()
    lists.publish(keys=[SIGNERS[0], SIGNERS[0], again])
    assert fault_of(lists.judged()) is ListFault.TOO_FEW_SIGNERS


def test_stolen_keys_cannot_replace_most_hosts_at_once() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(hosts(12, first=1000)))
    found = refusal(lists.judged(held))
    assert found.fault is ListFault.CHURN
    assert found.text == "+12 of 12 hosts since version 1, where the trust document allows 25 % at once"


def test_a_version_may_be_excepted_from_churn_by_the_owners() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish_document(document(version=2, except_version=2), OWNERS[:3])
    lists.publish(lists.cluster(hosts(12, first=1000)))
    lists.accepted(held)
    lists.publish(lists.cluster(hosts(12, first=2000)))
    assert fault_of(lists.judged(held)) is ListFault.CHURN


def test_after_an_exception_lists_are_compared_with_the_one_that_was_excepted() -> None:
    lists = published()
    late = lists.accepted()
    lists.publish_document(document(version=2, except_version=2), OWNERS[:3])
    lists.publish(lists.cluster(hosts(12, first=1000)))
    held = lists.accepted(late)
    lists.publish(lists.cluster(hosts(12, first=1001)))
    assert lists.accepted(held).list == lists.accepted(late).list == lists.files["list/3"]
    lists.publish(lists.cluster(hosts(12, first=2000)))
    for each in (held, late):
        found = refusal(lists.judged(each))
        assert found.fault is ListFault.CHURN
        assert found.text.startswith("+12 of 12 hosts since version 2, where")
    del lists.files["list/2"]
    assert fault_of(lists.judged(late)) is ListFault.WITHHELD
    assert fault_of(lists.judged(held)) is ListFault.CHURN, "it holds the one that was excepted"


def test_many_versions_in_a_short_time_change_no_more_than_one() -> None:
    lists = published()
    honest = lists.cluster().hosts
    held, moved = lists.accepted(), 0

    def try_to_move(count: int) -> Held | None:
        lists.publish(lists.cluster(hosts(12, first=count)))
        verdict = lists.judged(held)
        if isinstance(verdict, Accepted):
            return verdict.held
        assert verdict.fault is ListFault.CHURN
        return None

    for _ in range(60):
        lists.now_unix_s += 60
        if (new := try_to_move(moved + 1)) is not None:
            held, moved = new, moved + 1
        elif (new := try_to_move(moved)) is not None:
            held = new
        assert len(hosts_of(hosts(12, first=moved)) & honest) >= 9
    lists.now_unix_s += 7 * DAY_S
    assert try_to_move(moved + 1) is not None


def test_a_packed_prefix() -> None:
    crowd = [("20.0.0.8", 7400), ("20.0.0.9", 7400)]
    servers = [*hosts(10), *(ServerEntry((address,), host_key(address)) for address in crowd)]
    lists = Lists()
    lists.publish(lists.cluster(servers))
    found = refusal(lists.judged())
    assert found.fault is ListFault.CROWDED
    assert found.text == "version 1 has 3 hosts in 20.0.0.0/24, where the trust document allows 1"


# --- Splitting: different people, different lists -----------------------------------------------------


def forked(liars: int, size_change: int = 0) -> tuple[Lists, Lists]:
    """A log that shows two histories after a first list, and witnesses of whom so many sign both."""
    one, other = published(), published()
    one.publish(one.cluster(13), witnesses=WITNESSES[:5])
    other.publish(other.cluster(14), witnesses=[*WITNESSES[:liars], *WITNESSES[5:]])
    for _ in range(size_change):
        other.publish(other.cluster(14), witnesses=[*WITNESSES[:liars], *WITNESSES[5:]])
    return one, other


def test_two_lists_of_one_version() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(13, version=1))
    found = refusal(lists.judged(held))
    assert found.fault is ListFault.FORK
    assert found.evidence["held.list"] == held.list


@pytest.mark.parametrize("longer", [0, 1, 3])
def test_a_rewritten_log(longer: int) -> None:
    one, other = forked(liars=3, size_change=longer)
    held = one.accepted()
    found = refusal(judged(held, other.files))
    assert found.fault is ListFault.FORK
    assert "shown.add-checkpoint" in found.evidence
    shown = [Note.parse(found.evidence[f"{which}.checkpoint"]) for which in ("held", "shown")]
    assert [Checkpoint.parse(note.text).size for note in shown] == [3, 3 + longer]


def test_a_rewritten_log_without_its_tiles_is_not_believed_either() -> None:
    one, other = forked(liars=3, size_change=1)
    held = one.accepted()
    files = {path: data for path, data in other.files.items() if not path.startswith(("tile/", "from/"))}
    assert fault_of(judged(held, files)) is ListFault.WITHHELD


def test_no_quorum() -> None:
    lists = published()
    lists.publish(witnesses=WITNESSES[:4])
    found = refusal(lists.judged())
    assert found.fault is ListFault.NO_QUORUM
    assert "4 of the 7 witnesses" in found.text


# --- Emptying ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2])
def test_a_small_list(servers: int) -> None:
    lists = Lists()
    lists.publish(lists.cluster(servers, min_servers=1))
    found = refusal(lists.judged())
    assert found.fault is ListFault.SMALL
    assert found.text == f"version 1 has {servers} of the 3 hosts that it needs"


def test_an_empty_list() -> None:
    lists = published()
    held = lists.accepted()
    text = Note.parse(lists.files["list/1"]).text
    empty = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("server"))
    data = sign(empty.replace("version 1", "version 2"), SIGNERS).data
    lists.publish(lists.cluster(), data=data)
    assert fault_of(lists.judged(held)) is ListFault.MALFORMED


def test_mass_removal() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(4))
    found = refusal(lists.judged(held))
    assert found.fault is ListFault.CHURN
    assert found.text.startswith("-8 of 12 hosts")


# --- Going back, standing still, jumping ahead --------------------------------------------------------


def test_a_rollback_of_the_log() -> None:
    lists = published()
    old = dict(lists.files)
    lists.publish()
    held = lists.accepted()
    assert fault_of(judged(held, old)) is ListFault.ROLLBACK


def test_a_rollback_of_the_list() -> None:
    """The log goes on, and its newest list has an older version."""
    lists = published(2)
    held = lists.accepted()
    lists.publish(lists.cluster(version=1))
    assert fault_of(lists.judged(held)) is ListFault.ROLLBACK


def test_an_old_list_with_a_new_checkpoint() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish()
    record = ListRecord.of("example.org/lab", 1, 1, lists.files["list/1"])
    proof = LogProof(record.data, 1, lists.inclusion(1), Note.parse(lists.files["checkpoint"]))
    lists.files["latest.tlog-proof"] = proof.data
    assert fault_of(lists.judged(held)) is ListFault.BEHIND


@pytest.mark.parametrize(("later", "fault"), [(3, None), (4, ListFault.BEHIND)])
def test_few_entries_after_the_list_are_looked_at(
    later: int, fault: ListFault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a log of many uses, or of a liar, would cost a client as much as it likes."""
    monkeypatch.setattr(log_checks, "LATER_ENTRIES_MAX", 3)
    lists = published()
    lists.entries += [b"another use"] * later
    record = ListRecord.of(NAME, 1, 1, lists.files["list/1"])
    note = lists.serve_tree(WITNESSES[:5])
    lists.files["latest.tlog-proof"] = LogProof(record.data, 1, lists.inclusion(1), note).data
    asked: list[str] = []
    verdict = judged(lists.newcomer(), lists.files, asked=asked)
    assert (None if isinstance(verdict, Accepted) else fault_of(verdict)) is fault
    assert any(path.startswith("tile/") for path in asked) is (fault is None)


def test_a_rollback_of_the_trust_document() -> None:
    """Documents only follow each other: an older one is not asked for, and an older signer is out."""
    lists = published()
    old = dict(lists.files)
    lists.publish_document(document(version=2, signers=document().signers[1:]), OWNERS[:3])
    lists.publish(keys=SIGNERS[1:])
    held = lists.accepted()
    assert fault_of(judged(held, old)) is ListFault.ROLLBACK
    assert fault_of(judged(replace(held, checkpoint=None, list=None), old)) is ListFault.TOO_FEW_SIGNERS


def test_a_fast_forward_and_the_way_out() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(version=20_000))
    assert fault_of(lists.judged(held)) is ListFault.FAST_FORWARD
    lists.publish(lists.cluster(version=10_002))
    assert fault_of(lists.judged(held)) is ListFault.FAST_FORWARD
    lists.publish(lists.cluster(version=10_001))
    lists.accepted(held)
    lists.publish(lists.cluster(version=9_000))  # as far as a thief can go
    victim = lists.accepted(held)
    lists.publish(lists.cluster(version=2))
    assert fault_of(lists.judged(victim)) is ListFault.ROLLBACK
    lists.publish_document(document(version=2, lists_from=2), OWNERS[:3])
    lists.publish(lists.cluster(version=2))
    found = lists.judged(victim)
    assert isinstance(found, Accepted) and facts_of(found.cluster).version == 2
    freed = found.held
    lists.publish(lists.cluster(version=1))
    assert fault_of(lists.judged(freed)) is ListFault.ROLLBACK


# --- Mirrors -------------------------------------------------------------------------------------------


def test_mix_and_match() -> None:
    """Files of two moments, each of them sound."""
    lists = published()
    held, old = lists.accepted(), dict(lists.files)
    lists.publish_document(document(version=2), OWNERS[:3])
    lists.publish(lists.cluster(13))
    new = lists.files
    without_document = {path: data for path, data in new.items() if path != "trust/2"}
    assert fault_of(judged(held, without_document)) is ListFault.TRUST
    other_list = {**new, "list/2": old["list/1"]}
    assert fault_of(judged(held, other_list)) is ListFault.WITHHELD
    old_log = {**old, "list/2": new["list/2"], "trust/2": new["trust/2"]}
    stored: list[bytes] = []
    verdict = judged(held, old_log, stored=stored)
    assert isinstance(verdict, Accepted)
    assert (verdict.held.list, stored) == (held.list, []), "a document that no log shows is not there"


@pytest.mark.parametrize("longer", [True, False])
def test_endless_data_at_every_fetch(longer: bool) -> None:
    """Each file is replaced by one without end: what is asked for is bounded, and refused."""
    lists = published(3)
    held = lists.accepted()
    lists.publish_document(document(version=2), OWNERS[:3])
    lists.publish(lists.cluster(13))
    lists.entries.append(b"of another use")
    asked: list[str] = []
    judged(held, {**lists.files, "from/4": b""}, asked=asked)
    assert {path.split("/")[0] for path in asked} == {"trust", "latest.tlog-proof", "from", "tile", "list"}
    for path in asked:
        if path not in lists.files:
            continue
        endless = bytes(20_000_000) if longer else lists.files[path] + b"\n" * 20_000_000
        verdict = judged(held, {**lists.files, "from/4": b"", path: endless})
        if path != "from/4":  # for which tiles stand in
            assert fault_of(verdict) in (ListFault.TOO_BIG, ListFault.TRUST), path


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: b"", lambda data: data[:40] + data[41:]]
)
def test_a_malicious_mirror(change: Callable[[bytes], bytes]) -> None:
    """Whatever it does to a file, no other list is used."""
    lists = published(2)
    held = lists.accepted()
    lists.publish_document(document(version=2), OWNERS[:3])
    lists.publish(lists.cluster(13))
    for path in lists.files:
        verdict = judged(held, {**lists.files, path: change(lists.files[path])})
        if isinstance(verdict, Accepted):
            assert verdict.held.list == lists.files["list/3"]
        verdict = judged(held, {other: data for other, data in lists.files.items() if other != path})
        if isinstance(verdict, Accepted):
            assert verdict.held.list == lists.files["list/3"]


# --- Stolen keys ---------------------------------------------------------------------------------------


def test_signers_below_the_threshold_can_do_nothing() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(13), keys=[SIGNERS[0], key("example.org/lab/signer-1", 0x77)])
    assert fault_of(lists.judged(held)) is ListFault.TOO_FEW_SIGNERS


def test_a_stolen_signer_is_thrown_out() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish_document(document(version=2, signers=document().signers[1:]), OWNERS[:3])
    lists.publish(lists.cluster(13), keys=SIGNERS[:2])
    assert fault_of(lists.judged(held)) is ListFault.TOO_FEW_SIGNERS
    lists.publish(lists.cluster(13), keys=SIGNERS[1:])
    assert isinstance(lists.judged(held), Accepted)


@pytest.mark.parametrize("owners", [0, 1, 2])
def test_owners_below_the_threshold_can_do_nothing(owners: int) -> None:
    lists = published()
    held = lists.accepted()
    thieves = tuple(key(f"thief-{index}", 0x60 + index).verifier for index in range(3))
    mine = [key(f"thief-{index}", 0x60 + index) for index in range(3)]
    lists.publish_document(document(version=2, own_owners=thieves), [*OWNERS[:owners], *mine])
    lists.publish(lists.cluster(13))
    assert fault_of(lists.judged(held)) is ListFault.TRUST


def test_owners_at_the_threshold_cannot_act_in_secret() -> None:
    lists = published()
    held = lists.accepted()
    thief = key("thief", 0x60)
    stolen = document(version=2, signers=(thief.verifier,), signer_threshold=1)
    lists.publish_document(stolen, OWNERS[:3], is_logged=False)
    lists.publish(lists.cluster(13), keys=[thief])
    assert fault_of(lists.judged(held)) is ListFault.TRUST
    lists.publish(lists.cluster(13, trust=1), keys=[thief])
    assert fault_of(lists.judged(held)) is ListFault.TOO_FEW_SIGNERS


@pytest.mark.parametrize("says", [1, 2])
def test_a_pin_of_a_document_that_is_kept_out_of_the_log_is_of_no_use(says: int) -> None:
    """Whoever has the owners' keys may give a victim a pin of his own: the log must show it too."""
    lists = published()
    lists.publish_document(document(version=2), OWNERS[:3], is_logged=False)
    lists.publish(lists.cluster(13, trust=says))
    newcomer = lists.newcomer(version=2)
    assert fault_of(lists.judged(newcomer)) is ListFault.WITHHELD, "its proof is not handed out"
    size = len(lists.entries)
    record = TrustRecord.of(NAME, 2, lists.trust[1])
    for index in (size - 1, size, 2**62):
        path = lists.inclusion(min(index, size - 1))
        proof = LogProof(record.data, index, path, Note.parse(lists.files["checkpoint"]))
        lists.files["trust/2.tlog-proof"] = proof.data
        found = refusal(lists.judged(newcomer))
        assert found.fault is ListFault.UNLOGGED
        assert found.text == "trust document 2 is not in the public log"


# --- Clocks --------------------------------------------------------------------------------------------


def test_two_lying_witnesses_cannot_move_the_clock() -> None:
    lists = published()
    note = Note.parse(lists.files["checkpoint"]).text
    bare = sign(note, [LOG])
    times = [lists.now_unix_s + 1000 * DAY_S] * 2 + [lists.now_unix_s] * 5
    cosigned = bare.with_signatures(cosign(bare, each, at) for each, at in zip(WITNESSES, times, strict=True))
    proof = LogProof.parse(lists.files["latest.tlog-proof"])
    lists.files["latest.tlog-proof"] = replace(proof, checkpoint=cosigned).data
    verdict = lists.judged()
    assert isinstance(verdict, Accepted)
    assert verdict.warnings == ()


HOUR_S, YEAR_S = 3600, 365 * DAY_S


@pytest.mark.parametrize("is_witnessed", [True, False])
def test_a_clock_that_is_wrong_switches_no_check_off_in_silence(is_witnessed: bool) -> None:
    """Stolen keys replace all hosts at once, while the clock is an hour or a year off, either way."""
    witnesses = WITNESSES[:5] if is_witnessed else []
    for off_s in (-YEAR_S, -HOUR_S, 0, HOUR_S, YEAR_S):
        lists = Lists(document=document(policy=policy(len(witnesses))))
        lists.publish(witnesses=witnesses)
        held, now_unix_s = lists.accepted(), lists.now_unix_s + off_s
        same = judged(held, lists.files, now_unix_s)
        assert isinstance(same, Accepted), "what was in force is not early because a clock is slow"
        assert (ListFault.CLOCK in [warning.fault for warning in same.warnings]) == (off_s < 0)
        assert ("ahead of the clock" in same.checks[1].text) == (is_witnessed and off_s < 0)
        lists.publish(lists.cluster(hosts(12, first=1000)), witnesses=witnesses)
        verdict = judged(held, lists.files, now_unix_s)
        if is_witnessed or off_s < YEAR_S:
            assert fault_of(verdict) is ListFault.CHURN, off_s
            continue
        assert isinstance(verdict, Accepted)
        (line,) = (check for check in verdict.checks if check.step == "servers")
        assert not line.is_ok and "not compared" in line.text and "'kcast servers trust URL PIN'" in line.text
        assert ListFault.CHURN in [warning.fault for warning in verdict.warnings]


def test_lists_expire_by_the_later_of_the_clock_and_what_witnesses_prove() -> None:
    lists = published()
    lists.now_unix_s += VALID_S + 1
    proof = LogProof.parse(lists.files["latest.tlog-proof"])
    later = lists.serve_tree(WITNESSES[:5])
    for note, now_unix_s in ((later, NOW_UNIX_S), (proof.checkpoint, lists.now_unix_s)):
        lists.files["latest.tlog-proof"] = replace(proof, checkpoint=note).data
        verdict = judged(lists.newcomer(), lists.files, now_unix_s)
        assert isinstance(verdict, Accepted)
        faults = [warning.fault for warning in verdict.warnings]
        assert faults == [ListFault.CLOCK, ListFault.EXPIRED][note is not later :]
        assert [check.step for check in verdict.checks if check.is_ok is False][-1] == "times"


def test_what_was_not_compared_is_not_ok() -> None:
    lists = published()
    first = lists.judged()
    assert isinstance(first, Accepted)
    assert {check.step for check in first.checks if check.is_ok is None} == {"history", "servers", "meeting"}
    lists.publish_document(document(version=2, except_version=2), OWNERS[:3])
    lists.publish(lists.cluster(hosts(12, first=1000)))
    verdict = lists.judged(first.held)
    assert isinstance(verdict, Accepted)
    assert [check.step for check in verdict.checks if not check.is_ok] == ["servers", "meeting"]
    assert verdict.checks[-2].text.endswith("12 removed; not compared, as its owners say")
    # What was taken because the one before had expired is in use now, or waits: nothing vouches for it yet.
    for wait_s in (0, DAY_S):
        lists = published()
        held = lists.accepted()
        lists.now_unix_s += VALID_S + DAY_S
        lists.publish(lists.cluster(hosts(12, first=1000), valid_after_s=lists.now_unix_s + wait_s))
        held = lists.accepted(held)
        verdict = lists.judged(held)
        (line,) = (check for check in verdict.checks if check.step == "servers")
        assert line.is_ok is None and line.text.endswith("; not compared with a valid one before it")


def test_a_list_that_holds_later_leaves_the_one_before_in_use() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(15, valid_after_s=lists.now_unix_s + 7 * DAY_S))
    for each in (held, lists.newcomer()):
        verdict = judged(each, lists.files)
        assert isinstance(verdict, Accepted), verdict
        assert len(verdict.cluster.servers) == 12
        assert verdict.upcoming is not None
        assert len(verdict.upcoming.servers) == 15


def test_a_change_that_is_too_large_at_once_is_told() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(hosts(12, first=3)))
    verdict = judged(held, lists.files)
    assert isinstance(verdict, Accepted)
    assert [warning.fault for warning in verdict.warnings] == [ListFault.APART]
    assert [check.step for check in verdict.checks if not check.is_ok] == ["meeting"]
    lists.publish(lists.cluster(hosts(12, first=0), valid_after_s=lists.now_unix_s + 7 * DAY_S))
    held = verdict.held
    staged = judged(held, lists.files)
    assert isinstance(staged, Accepted)
    assert staged.warnings == ()


def test_a_one_person_list_needs_no_witnesses() -> None:
    lists = Lists(
        document=document(policy=policy(0), own_owners=(), owner_threshold=1, signer_threshold=1),
        owners=SIGNERS[:1],
    )
    lists.publish(keys=SIGNERS[:1], witnesses=())
    assert isinstance(lists.judged(), Accepted)


def test_a_fast_forward_cannot_be_undone_below_where_the_owners_begin_to_count() -> None:
    lists = published()
    lists.publish_document(document(version=2, lists_from=5), OWNERS[:3])
    lists.publish(lists.cluster(version=3))
    found = refusal(judged(lists.newcomer(), lists.files))
    assert found.fault is ListFault.ROLLBACK
    assert found.text == "version 3 is older than the first one, 5"


def test_owners_may_move_to_another_log() -> None:
    """Its history is its own: it is shorter, and need not extend that of the one before."""
    lists = published(3)
    held = lists.accepted()
    lists.log = key("example.org/lab/log-2", 0x21)
    lists.entries.clear()
    lists.publish_document(document(version=2, policy=policy(log=lists.log)), OWNERS[:3])
    lists.publish(lists.cluster(13))
    verdict = lists.judged(held)
    assert isinstance(verdict, Accepted), verdict
    (said,) = (check for check in verdict.checks if check.step == "history")
    text = "the log is example.org/lab/log-2 now, and was example.org/lab/log"
    assert (said.text, said.is_ok) == (text, None)


def test_what_a_mirror_says_of_later_entries_is_compared_with_the_log() -> None:
    """Else it could hand out an older list, and say that the newer one in the log were another use of it."""
    lists = published(2)
    record = ListRecord.of(NAME, 1, 1, lists.files["list/1"])
    note = Note.parse(lists.files["checkpoint"])
    lists.files["latest.tlog-proof"] = LogProof(record.data, 1, lists.inclusion(1), note).data
    assert fault_of(lists.judged()) is ListFault.BEHIND
    (path,) = (each for each in lists.files if each.startswith("tile/entries/") and each.endswith(".p/3"))
    lists.files[path] = write_entries([*lists.entries[:2], b"another use"])
    found = refusal(lists.judged())
    assert found.fault is ListFault.WITHHELD
    assert found.text == "entry 2 is not the one that the log has"
    lists.files[path] = write_entries(lists.entries[:2])
    found = refusal(lists.judged())
    assert found.fault is ListFault.WITHHELD
    assert f"{path} is missing or too short" in found.text


def newly_shown(lists: Lists, record: bytes, index: int) -> Verdict:
    """What a newcomer says of a tree as it is now, where the proof is of this entry of it."""
    note = lists.serve_tree(WITNESSES[:5])
    lists.files["latest.tlog-proof"] = LogProof(record, index, lists.inclusion(index), note).data
    return lists.judged()


def test_what_follows_the_list_in_the_log_may_be_a_document_or_the_list_of_another_name() -> None:
    lists = published()
    record = ListRecord.of(NAME, 1, 1, lists.files["list/1"]).data
    lists.publish_document(document(version=2), OWNERS[:3])
    assert isinstance(newly_shown(lists, record, 1), Accepted)
    lists.entries.append(ListRecord.of("example.org/other", 2, 1, b"").data)
    assert isinstance(newly_shown(lists, record, 1), Accepted)
    lists.entries.append(ListRecord.of(NAME, 2, 1, b"").data)
    assert fault_of(newly_shown(lists, record, 1)) is ListFault.BEHIND


def test_a_list_has_the_hash_and_the_size_that_the_log_says() -> None:
    lists = published()
    data = lists.files["list/1"]
    lists.files["list/1"] = data.replace(b"20.0.0.7", b"20.0.0.8")
    assert fault_of(lists.judged()) is ListFault.WITHHELD
    lists.files["list/1"] = data
    record = ListRecord.of(NAME, 1, 1, data)
    lists.entries.append(replace(record, size_bytes=len(data) + 1).data)
    assert fault_of(newly_shown(lists, lists.entries[-1], 2)) is ListFault.WITHHELD


def test_an_exception_from_churn_is_for_no_version_before_it() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish_document(document(version=2, except_version=3), OWNERS[:3])
    lists.publish(lists.cluster(hosts(12, first=1000)))
    assert fault_of(lists.judged(held)) is ListFault.CHURN


def test_the_record_of_a_document_is_none_of_a_list() -> None:
    lists = published()
    found = refusal(newly_shown(lists, TrustRecord.of(NAME, 1, lists.trust[0]).data, 0))
    assert found.fault is ListFault.MALFORMED
    assert found.text == "latest.tlog-proof: expected the record of a list"


def test_a_checkpoint_under_which_the_logs_signature_fails() -> None:
    lists = published()
    note = Note.parse(lists.files["checkpoint"])
    other = sign("another text\n", [LOG]).signatures[0]
    bad = replace(note, signatures=(other, *note.signatures[1:]))
    proof = LogProof.parse(lists.files["latest.tlog-proof"])
    lists.files["latest.tlog-proof"] = replace(proof, checkpoint=bad).data
    found = refusal(lists.judged())
    assert found.fault is ListFault.BAD_SIGNATURE
    assert "the signature of example.org/lab/log is not one of this text" in found.text


# --- Records -------------------------------------------------------------------------------------------


def test_the_list_of_another_name_in_the_same_log() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(lists.cluster(name="example.org/other"))
    found = refusal(lists.judged(held))
    assert found.fault is ListFault.WRONG_NAME
    assert found.text == f"it is a list of example.org/other, and not of {NAME}"


def test_a_list_that_is_longer_than_any_list_is_not_asked_for() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish(data=b"x" * (16 * 1024 * 1024 + 1))
    asked: list[str] = []
    assert fault_of(judged(held, lists.files, lists.now_unix_s, asked=asked)) is ListFault.TOO_BIG
    assert "list/2" not in asked


@pytest.mark.parametrize("changes", [{"version": 3}, {"trust": 2}, {"name": "example.org/other"}])
def test_a_list_that_is_not_what_its_record_says(changes: dict[str, Any]) -> None:
    lists = published()
    held = lists.accepted()
    other = lists.cluster(**changes)
    lists.publish(data=sign(format_cluster(other), SIGNERS[:2]).data)
    found = refusal(lists.judged(held))
    assert found.fault is ListFault.MALFORMED
    assert found.text == "list/2 is not what its record in the log says"


def test_a_list_without_what_makes_it_signed() -> None:
    lists = published()
    held = lists.accepted()
    text = format_cluster(replace(lists.cluster(), signed=None))
    lists.publish(data=sign(text, SIGNERS[:2]).data)
    found = refusal(lists.judged(held))
    assert found.fault is ListFault.MALFORMED
    assert "expected 'version', 'trust', 'valid-after'" in found.text


def test_a_checkpoint_that_the_log_has_not_signed() -> None:
    """Witnesses cosign what some key of the log has signed; clients know one."""
    lists = published()
    held = lists.accepted()
    lists.log = SigningKey.from_seed(LOG.verifier.name, b"a thief's".ljust(32))
    lists.publish()
    found = refusal(lists.judged(held))
    assert found.fault is ListFault.BAD_SIGNATURE
    assert found.text == f"the checkpoint is not signed by the log {LOG.verifier.name}"


def test_a_checkpoint_of_another_log_with_the_same_key() -> None:
    lists = published()
    held = lists.accepted()
    lists.publish()
    proof = LogProof.parse(lists.files["latest.tlog-proof"])
    tree = Checkpoint.parse(proof.checkpoint.text)
    note = sign(replace(tree, origin="example.org/other/log").text, [LOG])
    note = note.with_signatures(cosign(note, each, lists.now_unix_s) for each in WITNESSES[:5])
    lists.files["latest.tlog-proof"] = replace(proof, checkpoint=note).data
    assert fault_of(lists.judged(held)) is ListFault.BAD_SIGNATURE


# --- Edges ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after_s", "fault"),
    [
        (FRESH_S, None),
        (FRESH_S + 1, ListFault.STALE),
        (VALID_S, ListFault.STALE),
        (VALID_S + 1, ListFault.EXPIRED),
    ],
)
def test_times_count_to_their_last_second_and_refuse_is_for_what_has_expired(
    after_s: int, fault: ListFault | None
) -> None:
    for expiry in ("warn", "refuse"):
        lists = published(expiry=expiry)
        verdict = judged(lists.accepted(), lists.files, lists.now_unix_s + after_s)
        if fault is ListFault.EXPIRED and expiry == "refuse":
            assert fault_of(verdict) is fault
        else:
            assert isinstance(verdict, Accepted)
            assert [warning.fault for warning in verdict.warnings] == ([fault] if fault else [])


def test_lists_by_epochs_of_0_4_are_refused_in_one_line_and_pins_from_then_hold() -> None:
    lists = Lists(document=document(admission="epoch"))
    lists.publish()
    found = refusal(lists.judged())
    assert found.fault is ListFault.TRUST and "rotate --admission now' with kcast 0.4 first" in found.text
    assert [check.step for check in found.checks if not check.is_ok] == ["trust"]
    lists.publish_document(document(version=2), OWNERS[:3])
    text = format_cluster(lists.cluster())
    for from_unix_s, count in ((NOW_UNIX_S, 1), (NOW_UNIX_S + 1, 0)):  # the epoch before, and one to come
        lines = f"salt aa from={from_unix_s}\nsalt-reveal 0a0b0c0d {'01' * 32} in=1\n"
        salted = sign(text.replace("server ", f"{lines}server ", 1), SIGNERS[:2]).data
        lists.publish(data=salted)
        verdict = lists.judged()
        assert isinstance(verdict, Accepted) == bool(count), verdict
        if isinstance(verdict, Accepted):
            assert verdict.cluster.salt == b"\xaa"
        else:
            assert refusal(verdict).fault is ListFault.MALFORMED
        text = format_cluster(lists.cluster())
