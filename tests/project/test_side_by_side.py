"""tests/support/side_by_side.py: what it names is there, and which tests stay together."""

from tests.docs.test_shell_blocks import PAGES as BLOCKS
from tests.docs.test_shell_blocks import typed
from tests.support.checkout import ROOT
from tests.support.side_by_side import ALONE, FIRST, PAGES, SESSION, group_of, turn_of


def test_what_it_names_is_there() -> None:
    assert (ROOT / PAGES).exists()
    assert [path for path in ALONE if not (ROOT / path).exists()] == []
    named = {name.partition("[")[2].rstrip("]") for name in FIRST if name.startswith(PAGES)}
    assert named <= {name for page in BLOCKS for name, _ in typed(page, "test-spark")}


def test_all_that_use_the_session_stay_together() -> None:
    one, other = "tests/spark/watch/test_watch.py::test_a", "tests/spark/test_memory.py::test_b[x::y]"
    assert group_of(one) == group_of(other) == SESSION
    assert group_of(f"{ALONE[0]}::test_a") == group_of(f"{ALONE[0]}::test_b[1]") == ALONE[0]
    assert group_of(f"{PAGES}::test_a[1]") != group_of(f"{PAGES}::test_a[2]")
    assert turn_of(FIRST[0]) < turn_of(one) < turn_of(f"{PAGES}::test_a[another page]")
