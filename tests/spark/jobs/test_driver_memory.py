"""The source shows that rows are aggregated before they come to the driver, and where Python gets them.

`test_memory.py` measures the same.
"""

import ast
from collections.abc import Iterator
from functools import cache

from tests.support.checkout import ROOT

# Names that bring rows from Spark to the driver. Uses of such a name that are not Spark's stand in ALLOWED.
GATHERS = frozenset(
    {
        *("collect", "collectAsMap", "toPandas", "pandas_api", "toArrow", "toLocalIterator"),
        *("take", "takeOrdered", "takeSample", "head", "first", "tail", "foreach", "foreachPartition"),
    }
)
# Names that hand rows to Python, one by one or in batches.
PYTHONS = frozenset(
    {
        *("udf", "udtf", "pandas_udf", "arrow_udf", "mapInPandas", "mapInArrow"),
        *("applyInPandas", "applyInArrow", "rdd"),
    }
)
# Module and function -> the names used there, and why no rows of captures pass there.
ALLOWED: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("spark/capture/footers.py", "checked"): (
        ("mapInArrow", "collect", "mapInArrow", "collect"),
        "a row for each table of a cell, and one for each file that is empty",
    ),
    ("spark/judging/judge.py", "counts"): (("mapInArrow",), "parts of messages, counted there"),
    ("spark/judging/judge.py", "pairs"): (("mapInArrow",), "parts of messages, judged there"),
    ("spark/judging/judge.py", "_admissions"): (
        ("mapInArrow", "collect"),
        "a row for each life of a server and publisher",
    ),
    ("spark/judging/judge.py", "sums_of"): (
        ("collect", "mapInArrow"),
        "sums; it refuses what has too many rows for that",
    ),
    ("spark/simulation/run.py", "run_blocks"): (("collect",), "a row for each scene"),
}


def uses(source: str, path: str) -> Iterator[tuple[str, str, str, int]]:
    """Module, function, name and line of each use that gathers rows, or hands them to Python."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, str, str, int]]:
        for child in ast.iter_child_nodes(node):
            inner = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = child.name
            name = ""
            if isinstance(child, ast.Attribute):
                name = child.attr
            elif isinstance(child, ast.Name):
                name = child.id if child.id in PYTHONS or child.id in {"toPandas", "collect"} else ""
            elif isinstance(child, ast.alias):
                name = child.name
            if name in GATHERS | PYTHONS:
                yield path, inner, name, getattr(child, "lineno", 0)
            yield from walk(child, inner)

    yield from walk(ast.parse(source), "")


@cache
def found() -> tuple[tuple[str, str, str, int], ...]:
    paths = sorted((ROOT / "spark").rglob("*.py"))
    return tuple(use for path in paths for use in uses(path.read_text(), path.relative_to(ROOT).as_posix()))


def test_rows_come_to_the_driver_in_known_places_only() -> None:
    problems = [
        f"{path}:{line}: {function} uses {name}"
        for path, function, name, line in found()
        if (path, function) not in ALLOWED
    ]
    assert problems == []


def test_each_known_place_is_there_and_uses_no_more_than_it_may() -> None:
    for place, (names, _) in ALLOWED.items():
        assert tuple(use[2] for use in found() if use[:2] == place) == names


def test_each_way_to_use_one_is_found() -> None:
    for name in GATHERS | PYTHONS:
        source = f"def f(frame):\n    def g():\n        return frame.where('x').{name}\n"
        assert [use[1:3] for use in uses(source, "spark/x.py")] == [("g", name)]
    for other in (
        "from pyspark.sql.functions import pandas_udf",
        "@udf\ndef f(x): ...",
        "x = [frame.collect]",
    ):
        assert len(list(uses(other, "spark/x.py"))) == 1, other
    for none in ("collection.append(1)", "sf.collect_set('x')", "first = 1", "rows[first]"):
        assert list(uses(none, "spark/x.py")) == []
