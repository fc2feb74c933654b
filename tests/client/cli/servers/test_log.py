"""`kcast servers log --audit`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("nacl")
pytest.importorskip("pymerkle")

from kcast.client.cli import main
from tests.support.list_publisher import ListPublisher


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
            "kcast servers log: example.org/lab/log has 4 entries; looked at 3 lists, 1 trust document and "
            f"10 proofs: all follow from the entries; its first trust document has the pin {publisher.pin}\n"
        )


def test_a_finding_is_a_line_and_an_exit_code(publisher: ListPublisher) -> None:
    (publisher.place.served / "list/2").unlink()
    shown = audit(str(publisher.place.file))
    assert shown.exit_code == 1
    assert shown.stdout == "list/2: it is not to be had: nobody can see what entry 2 shows\n"
    assert shown.stderr.endswith(": 1 finding\n")
    assert json.loads(audit(str(publisher.place.file), "--json").stdout) == {
        "where": "list/2",
        "text": "it is not to be had: nobody can see what entry 2 shows",
    }


def test_a_folder_without_a_log_is_one_line(tmp_path: Path) -> None:
    shown = audit(str(tmp_path))
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr == f"kcast servers log: {tmp_path}: no trust document, trust/1, can be used\n"
