"""tests/support/side_by_side.py: what it names is there, and which tests stay together."""

import re

import pytest

from tests.docs.test_shell_blocks import PAGES as BLOCKS
from tests.docs.test_shell_blocks import typed
from tests.support.checkout import ROOT
from tests.support.side_by_side import ALONE, FIRST, LITTLE, PAGES, SESSION, group_of, turn_of


def test_what_it_names_is_there() -> None:
    assert (ROOT / PAGES).exists()
    assert [path for path in ALONE if not (ROOT / path).exists()] == []
    named = {name.partition("[")[2].rstrip("]") for name in FIRST if name.startswith(PAGES)}
    assert named <= {name for page in BLOCKS for name, _ in typed(page, "test-spark")}
    path, _, test = LITTLE.partition("::")
    assert f"def {test}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("marker", ["spark", "load", "containers", "smoke"])
def test_marked_tests_are_where_make_looks_for_them(marker: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    (places,) = re.findall(rf"^{marker.upper()} := (.+)$", makefile, re.MULTILINE)
    marked = re.compile(rf"pytest\.mark\.{marker}\b")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("tests/**/*.py")
        if marked.search(path.read_text())
    ]
    assert found
    assert [path for path in found if not path.startswith(tuple(places.split()))] == []


def test_all_that_use_the_session_stay_together() -> None:
    one, other = "tests/spark/test_invariance.py::test_a", "tests/spark/test_memory.py::test_b[x::y]"
    assert group_of(one) == group_of(other) == SESSION
    assert group_of(f"{ALONE[0]}::test_a") == group_of(f"{ALONE[0]}::test_b[1]") == ALONE[0]
    assert group_of(f"{PAGES}::test_a[1]") != group_of(f"{PAGES}::test_a[2]")
    assert turn_of(FIRST[0]) < turn_of(one) < turn_of(f"{PAGES}::test_a[another page]")
