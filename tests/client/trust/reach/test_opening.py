"""trust/reach/opening.py: a list in use at once, at first contact, or not at all, and what is said then."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nacl")

from kcast.client.cluster import ClusterError, facts_of
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.forms.bundle import format_bundle
from kcast.client.trust.reach.opening import open_list, refresh
from kcast.client.trust.state.places import folder_of
from tests.support.lists import DAY_S, FRESH_S, NAME, NOW_UNIX_S, VALID_S, Lists, hosts
from tests.support.published import drop, lists_at, write_files


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KCAST_TRUST_PATH", str(tmp_path / "trust"))
    yield


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    """Dropped on this machine, and published in a folder."""
    made = lists_at(NOW_UNIX_S, str(tmp_path / "published"))
    made.publish()
    drop(made, tmp_path / "trust")
    write_files(made, tmp_path / "published")
    return made


def test_at_first_contact_the_list_is_fetched_and_then_it_is_there(lists: Lists, tmp_path: Path) -> None:
    first = open_list(NAME, NOW_UNIX_S)
    assert len(first.cluster.servers) == 12 and first.troubles == ()
    shutil.rmtree(tmp_path / "published")
    shutil.rmtree(tmp_path / "trust")
    again = open_list(NAME, NOW_UNIX_S)
    assert again.standing == first.standing and again.troubles == ()


def test_what_is_told_at_the_start(lists: Lists, tmp_path: Path) -> None:
    """A clock that is behind what lies on the disk, and a list that names no place to fetch it from."""
    told = open_list(NAME, NOW_UNIX_S).told(NOW_UNIX_S - 3600)
    assert [each.fault for each in told] == ["clock"] and "slow by at least 60 min" in told[0].text
    shutil.rmtree(tmp_path / "state")
    by_hand = lists_at(NOW_UNIX_S)
    by_hand.publish()
    drop(by_hand, tmp_path / "trust").with_suffix(".bundle").write_bytes(format_bundle(by_hand.files))
    (trouble,) = open_list(NAME, NOW_UNIX_S).told(NOW_UNIX_S)
    assert trouble.fault == "by-hand" and "updates come by hand" in trouble.text


def test_a_bundle_beside_the_document_is_a_start_without_a_network(lists: Lists, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "published")
    with pytest.raises(ClusterError, match=f"^@{NAME}: there is no list of it here yet: .*no such folder"):
        open_list(NAME, NOW_UNIX_S)
    (tmp_path / "trust" / "lab.bundle").write_bytes(format_bundle(lists.files))
    assert len(open_list(NAME, NOW_UNIX_S).cluster.servers) == 12


def test_a_refused_first_list_is_told_with_its_fault(lists: Lists, tmp_path: Path) -> None:
    lists.publish(lists.cluster(hosts(2)))
    write_files(lists, tmp_path / "published")
    with pytest.raises(ClusterError, match=r"version 2 has 2 of the 3 hosts that it needs \(small\)$"):
        open_list(NAME, NOW_UNIX_S)


@pytest.mark.parametrize("content", [b"", b"kcast-trust 1\nname example.org/lab\n", None])
def test_a_dropped_file_that_is_no_document_is_told_by_its_name(
    lists: Lists, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "trust" / "lab.trust"
    if content is None:  # nobody has signed it
        content = path.read_bytes().partition(b"\n\n")[0] + b"\n\n\xe2\x80\x94 x AAAAAAAA\n"
    path.write_bytes(content)
    with pytest.raises(ClusterError) as caught:
        open_list(NAME, NOW_UNIX_S)
    expected = f"{path}: " if content else f"@{NAME} is not known here"
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value)


def damage(generation: Path) -> None:
    data = bytearray((generation / "list").read_bytes())
    data[len(data) // 2] ^= 1
    (generation / "list").unlink()  # it may be the same file as in the other generation
    (generation / "list").write_bytes(data)


def test_of_a_damaged_state_the_older_generation_is_used(lists: Lists, tmp_path: Path) -> None:
    open_list(NAME, NOW_UNIX_S)
    lists.publish(lists.cluster(hosts(13)))
    write_files(lists, tmp_path / "published")
    opened = open_list(NAME, NOW_UNIX_S)
    assert opened.update(NOW_UNIX_S, lambda: True).accepted is not None
    damage(folder_of(NAME) / "current")
    opened = open_list(NAME, NOW_UNIX_S)
    assert len(opened.cluster.servers) == 12
    (trouble,) = opened.troubles
    assert trouble.fault is ListFault.MALFORMED and trouble.text.endswith(
        "is damaged: an older one is in use"
    )
    # The next update mends it.
    assert opened.update(NOW_UNIX_S, lambda: True).accepted is not None
    opened = open_list(NAME, NOW_UNIX_S)
    assert len(opened.cluster.servers) == 13 and opened.troubles == ()


def test_where_no_list_is_left_it_is_fetched_anew_by_the_trust_that_is(lists: Lists, tmp_path: Path) -> None:
    open_list(NAME, NOW_UNIX_S)
    shutil.rmtree(tmp_path / "trust")
    for generation in folder_of(NAME).glob("*.*"):
        if (generation / "list").exists():
            damage(generation)
    opened = open_list(NAME, NOW_UNIX_S)
    assert len(opened.cluster.servers) == 12 and [each.fault for each in opened.troubles] == ["malformed"]


DUE_UNIX_S = NOW_UNIX_S + int(FRESH_S * 0.76)


def test_what_ends_soon_fetches_first_where_that_is_due_and_seldom(lists: Lists, tmp_path: Path) -> None:
    assert refresh(NAME, NOW_UNIX_S) == (), "there is no list yet, which the opening fetches"
    open_list(NAME, NOW_UNIX_S)
    lists.now_unix_s = DUE_UNIX_S
    lists.publish(lists.cluster(hosts(13)))
    write_files(lists, tmp_path / "published")
    assert refresh(NAME, DUE_UNIX_S - DAY_S) == ()
    assert len(open_list(NAME, DUE_UNIX_S - DAY_S).cluster.servers) == 12, "it was not due"
    assert refresh(NAME, DUE_UNIX_S) == ()
    assert len(open_list(NAME, DUE_UNIX_S).cluster.servers) == 13
    # The next one is refused, which is told; and then not tried again at once.
    later = DUE_UNIX_S + FRESH_S
    lists.publish(lists.cluster(hosts(2)))
    write_files(lists, tmp_path / "published")
    (trouble,) = refresh(NAME, later)
    assert (trouble.fault, trouble.kept) == ("small", 2)
    assert refresh(NAME, later + 3599) == ()
    assert len(refresh(NAME, later + 3600)) == 1
    # So is that one was taken without a comparison: whoever opens it then compares it with itself.
    lists.now_unix_s = DUE_UNIX_S + VALID_S + DAY_S
    lists.publish(lists.cluster(hosts(12, first=1000)))
    write_files(lists, tmp_path / "published")
    (trouble,) = refresh(NAME, lists.now_unix_s)
    assert (trouble.fault, trouble.kept) == ("churn", 4) and "which has expired" in trouble.text


def test_an_expired_list_is_told_or_refused(tmp_path: Path) -> None:
    made = lists_at(NOW_UNIX_S, str(tmp_path / "published"), expiry="refuse")
    made.publish()
    drop(made, tmp_path / "trust")
    write_files(made, tmp_path / "published")
    open_list(NAME, NOW_UNIX_S)
    after = NOW_UNIX_S + VALID_S + 1
    expired = "Its trust document forbids to use it, and no newer one can be had: .*\\(expired\\)"
    with pytest.raises(ClusterError, match=expired):
        open_list(NAME, after)
    # What is published meanwhile is fetched: no client runs that would.
    made.now_unix_s = after
    made.publish()
    write_files(made, tmp_path / "published")
    opened = open_list(NAME, after)
    assert facts_of(opened.cluster).version == 2
    assert [each.fault for each in opened.troubles] == [ListFault.CHURN], "it was not compared with the first"
    shutil.rmtree(tmp_path / "published")
    assert open_list(NAME, after).standing == opened.standing
    with pytest.raises(ClusterError, match=r"no newer one can be had: .*published: there is no such folder"):
        open_list(NAME, after + VALID_S + 1)


def test_a_bundle_dropped_beside_the_document_ends_the_refusal_of_an_expired_list(tmp_path: Path) -> None:
    made = lists_at(NOW_UNIX_S, expiry="refuse")
    made.publish()
    path = drop(made, tmp_path / "trust")
    path.with_suffix(".bundle").write_bytes(format_bundle(made.files))
    open_list(NAME, NOW_UNIX_S)
    made.now_unix_s = NOW_UNIX_S + VALID_S + 1
    made.publish()
    path.with_suffix(".bundle").write_bytes(format_bundle(made.files))
    assert facts_of(open_list(NAME, made.now_unix_s).cluster).version == 2


def test_a_name_that_is_nearly_known_is_told(lists: Lists) -> None:
    with pytest.raises(ClusterError) as caught:
        open_list("example.org/lap", NOW_UNIX_S)
    assert str(caught.value).startswith(f"@example.org/lap is not known here; did you mean {NAME}?")
