"""docs/operations.md has every reason, every event of the log, and every option of `kcast serve`."""

import re
from types import SimpleNamespace
from typing import Any

from kcast.client.events import Drop as ClientDrop
from kcast.pubsub.drops import Drop
from kcast.pubsub.log import Losses
from kcast.pubsub.metrics import _REFUSALS
from kcast.pubsub.serve import command
from kcast.pubsub.server import Server
from tests.support.checkout import ROOT
from tests.support.project_files import modules

PAGE = (ROOT / "docs/operations.md").read_text()
PROTOCOL = (ROOT / "pubsub/PROTOCOL.md").read_text()

IN_BACKTICKS = re.compile(r"`([a-z-]+)`")
LOGGED = re.compile(r"log\.(?:info|warning|error)\(\s*\"([a-z-]+)\"")


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading row that begins with `heading`."""
    table = text.split(f"\n| {heading}", 1)[1].split("\n\n", 1)[0]
    lines = table.splitlines()[2:]
    return [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines]


def names(cells: list[str]) -> list[str]:
    """All that stands in backticks, in alphabetical order."""
    return sorted(name for cell in cells for name in IN_BACKTICKS.findall(cell))


def test_each_reason_of_a_server_is_explained() -> None:
    port: Any = SimpleNamespace(
        link_local_count=1, sieved_count=1, overflow_count=0, send_errors={}, receive_errors={}
    )
    of_sockets = Losses.of(Server(secret=bytes(32)), [port]).drops
    found = rows(PAGE, "reason | client is told | what it means")
    assert names([row[0] for row in found]) == sorted([*Drop, *of_sockets])
    assert [row[0] for row in found if not all(row[2:4])] == []


def test_each_refusal_is_explained_and_in_the_protocol() -> None:
    told = names([row[1] for row in rows(PAGE, "reason | client is told | what it means")])
    assert sorted(set(told)) == sorted(_REFUSALS)
    assert names([row[0] for row in rows(PROTOCOL, "reason | refused is")]) == sorted(_REFUSALS)


def test_each_reason_of_a_client_is_explained() -> None:
    found = rows(PAGE, "reason | what it means | what to do")
    assert names([row[0] for row in found]) == sorted(
        [*ClientDrop, "receive-buffer"]
    )  # the last: `kcast sub`


def test_each_event_of_the_log_is_explained() -> None:
    servers = [text for name, text in modules().items() if name.startswith("pubsub/")]
    logged = {event for text in servers for event in LOGGED.findall(text)}
    assert names([row[0] for row in rows(PAGE, "event | ")]) == sorted(logged)


def test_each_option_of_serve_is_there() -> None:
    shown = [option for option in command.params if not getattr(option, "hidden", False)]
    options = {name for option in shown for name in option.opts}
    assert sorted(name for name in options if not re.search(rf"{name}\b(?!-)", PAGE)) == []


# The check on the checks.


def test_tables_are_read_whole() -> None:
    page = (
        "\n| reason | meaning |\n|---|---|\n| `full` | `--capacity` |\n| `drain`, `work` | |\n\n| other |\n"
    )
    found = rows(page, "reason | meaning")
    assert found == [["`full`", "`--capacity`"], ["`drain`, `work`", ""]]
    assert names([row[0] for row in found]) == ["drain", "full", "work"]
