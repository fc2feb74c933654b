"""`kcast servers show`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kcast.client.cli import main

LIST = """kcast-cluster 1
name   example
policy k=5 publish=3 subscribe=5
server 192.0.2.7:7400
server 192.0.2.7:7401
server 192.0.2.8:7400
"""


def show(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["servers", "show", *arguments])


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "example.cluster"
    path.write_text(LIST)
    return str(path)


def test_it_prints_what_the_list_says(file: str) -> None:
    assert show(file).stdout.splitlines() == [
        "name     example",
        "policy   5/3/5",
        "hosts    2 hosts, 3 servers",
        "servers  192.0.2.7:7400",
        "         192.0.2.7:7401",
        "         192.0.2.8:7400",
    ]


def test_json_has_the_same(file: str) -> None:
    assert json.loads(show(file, "--json").stdout) == {
        "name": "example",
        "policy": "5/3/5",
        "hosts": 2,
        "servers": ["192.0.2.7:7400", "192.0.2.7:7401", "192.0.2.8:7400"],
    }
