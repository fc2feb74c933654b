"""`kcast servers log`, and with `--audit`."""

import json
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("nacl")
pytest.importorskip("pymerkle")

from kcast.client.cli import main
from kcast.client.cluster import FILE_BYTES_MAX
from kcast.client.trust.checks.verdicts import Held
from kcast.client.trust.forms.record import ListRecord
from kcast.client.trust.forms.tiles import write_entries
from kcast.client.trust.reach.opening import open_list
from kcast.client.trust.reach.sources import FolderSource
from kcast.client.trust.state.store import Store
from tests.support.list_publisher import ListPublisher
from tests.support.lists import NAME, Lists, hosts
from tests.support.published import AT_NAME, drop, lists_at, write_files


def audit(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["servers", "log", "--audit", *arguments])


@pytest.fixture
def publisher(tmp_path: Path) -> ListPublisher:
    publisher = ListPublisher(tmp_path)
    for _ in range(3):
        publisher.publish()
        publisher.now_s += 3600
    return publisher


def test_it_says_what_it_looked_at(publisher: ListPublisher) -> None:
    for what in (publisher.place.file, publisher.place.served):
        shown = audit(str(what))
        assert (shown.exit_code, shown.stdout) == (0, "")
        assert shown.stderr == (
            "kcast servers log: example.org/lab/log has 4 entries; looked at 3 lists and 1 trust "
            f"document: all follow from the entries; its first trust document has the pin {publisher.pin}\n"
        )


def test_a_finding_is_a_line_and_an_exit_code(publisher: ListPublisher) -> None:
    (publisher.place.served / "list/2").unlink()
    shown = audit(str(publisher.place.file))
    assert shown.exit_code == 1
    assert shown.stdout == "list/2: it is missing: nobody can see what entry 2 shows\n"
    assert shown.stderr.endswith(": 1 finding\n")
    assert json.loads(audit(str(publisher.place.file), "--json").stdout) == {
        "where": "list/2",
        "text": "it is missing: nobody can see what entry 2 shows",
    }


def test_a_folder_without_a_log_is_one_line(tmp_path: Path) -> None:
    shown = audit(str(tmp_path))
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr == f"kcast servers log: {tmp_path}: no trust document, trust/1, can be used\n"


# --- What is printed ---------------------------------------------------------------------------------------


def log(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["servers", "log", *arguments])


def said(shown: Result) -> str:
    """What is said in one line where nothing can be printed."""
    assert (shown.exit_code, shown.stdout, shown.stderr.count("\n")) == (1, "", 1), shown.output
    return shown.stderr


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lists:
    """A list that this user trusts and has used; its log has three entries."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KCAST_TRUST_PATH", str(tmp_path / "trust"))
    now_unix_s = int(time.time())
    lists = lists_at(now_unix_s, str(tmp_path / "published"))
    lists.publish()
    lists.publish()
    drop(lists, tmp_path / "trust")
    write_files(lists, tmp_path / "published")
    open_list(NAME, now_unix_s)
    return lists


def test_of_a_trusted_name_all_that_is_printed_is_checked(lists: Lists) -> None:
    shown = log(AT_NAME)
    assert [line.split()[:3] for line in shown.stdout.splitlines()[1:]] == [
        ["0", "trust", "1"],
        ["1", "list", "1"],
        ["2", "list", "2"],
    ]
    assert shown.stderr == f"kcast servers log: {NAME}/log has 3 entries; shown and checked: 3\n"
    assert log(AT_NAME, "--json").stderr == ""


def test_an_entry_that_the_log_does_not_have_is_not_printed(lists: Lists, tmp_path: Path) -> None:
    _, first, second = lists.entries
    path = tmp_path / "published/tile/entries/000.p/3"
    path.write_bytes(
        write_entries([lists.entries[0], first, first.replace(b"version 1\n", b"version 2\n", 1)])
    )
    assert second != first
    assert "entry 2 is not the one that the log has (withheld)" in said(log(AT_NAME))


def test_another_history_is_told_and_its_evidence_kept(lists: Lists, tmp_path: Path) -> None:
    other = deepcopy(lists)
    lists.publish()
    write_files(lists, tmp_path / "published")
    open_list(NAME, lists.now_unix_s).update(lists.now_unix_s, lambda: True)
    other.publish(other.cluster(hosts(13)))
    write_files(other, tmp_path / "published")
    told = said(log(AT_NAME))
    assert "the log shows 4 entries that do not begin with the 4 that it showed before" in told
    (folder,) = (Store(NAME).folder / "evidence").iterdir()
    assert told.endswith(f"(fork); what it has signed is kept in {folder}\n")


def test_the_log_of_a_list_that_is_refused_can_be_read(lists: Lists, tmp_path: Path) -> None:
    lists.publish(lists.cluster(hosts(1)))
    write_files(lists, tmp_path / "published")
    assert log(AT_NAME).stdout.splitlines()[-1].split()[:6] == ["3", "list", "3", "1", "0", "11"]


def test_of_a_folder_it_is_said_that_nothing_was_checked(lists: Lists, tmp_path: Path) -> None:
    told = (
        f"kcast servers log: {NAME}/log has 3 entries; shown: 3; nothing of it was checked: give @NAME of a "
        "list that you trust, or --audit\n"
    )
    for json_or_not in ((), ("--json",)):
        shown = log(str(tmp_path / "published"), *json_or_not)
        assert (shown.exit_code, shown.stderr) == (0, told)


def test_no_more_than_a_list_can_have_is_read(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, int] = {}
    get = FolderSource.get

    def watched(self: FolderSource, path: str, bytes_max: int) -> bytes | None:
        asked[path] = bytes_max
        return get(self, path, bytes_max)

    made_up = replace(ListRecord.of(NAME, 3, 1, b""), size_bytes=10**18)
    lists.entries.append(made_up.data)
    lists.version = 3
    lists.publish()
    write_files(lists, tmp_path / "published")
    monkeypatch.setattr(FolderSource, "get", watched)
    for what in (AT_NAME, str(tmp_path / "published")):
        asked.clear()
        assert log(what).exit_code == 0
        assert asked["list/3"] == FILE_BYTES_MAX


def test_a_list_that_cannot_be_read_is_shown_without_its_hosts(lists: Lists, tmp_path: Path) -> None:
    lists.entries.append(ListRecord.of(NAME, 3, 1, b"\xff").data)
    lists.files["list/3"] = b"\xff"
    lists.version = 3
    lists.publish()
    write_files(lists, tmp_path / "published")
    row = json.loads(log(AT_NAME, "--json").stdout.splitlines()[3])
    assert (row["version"], row["hosts"]) == (3, None)


def test_where_nothing_says_where_the_log_lies_that_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Store(NAME).begin(Held(lists_at(int(time.time())).trust[0]))
    for arguments in ((AT_NAME,), (AT_NAME, "--audit")):
        assert "nothing says where its log lies: give a URL or a folder" in said(log(*arguments))


def test_verify_tells_of_a_clock_that_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What witnesses have signed is a year ahead of this machine: nothing is early by that."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KCAST_TRUST_PATH", str(tmp_path / "trust"))
    ahead = lists_at(int(time.time()) + 365 * 86_400, str(tmp_path / "published"))
    ahead.publish()
    drop(ahead, tmp_path / "trust")
    write_files(ahead, tmp_path / "published")
    open_list(NAME, ahead.now_unix_s)
    for what in (AT_NAME, str(tmp_path / "published"), str(tmp_path / "published" / "list" / "1")):
        shown = CliRunner().invoke(main, ["servers", "verify", what, "--json"])
        checks = [json.loads(line) for line in shown.stdout.splitlines()]
        (clock,) = (check for check in checks if check.get("step") == "clock")
        assert not clock["ok"] and "the clock of this machine is slow by at least" in clock["text"]
        assert checks[-1]["ok"], what
