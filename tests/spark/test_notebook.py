"""spark/notebook.py: captures in programs and notebooks."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kcast.loadtest.capture.schema import TABLES
from kcast.spark import open_run
from kcast.spark.capture.captures import CaptureError
from kcast.spark.findings.pair_columns import PAIR_COLUMNS
from kcast.spark.notebook import OpenRun
from tests.support.big_capture import big_scenario, write_run
from tests.support.checkout import ROOT
from tests.support.quick_java import QUICK

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook") / "run"
    write_run(folder, [big_scenario(2000, name=name, k_prime=3) for name in ("one", "two")], 1)
    return folder


@pytest.fixture(scope="module")
def run(spark: SparkSession, capture: Path) -> Iterator[OpenRun]:
    with open_run(str(capture), spark=spark) as opened:
        yield opened


def test_tables_have_names_in_place_of_numbers(run: OpenRun) -> None:
    assert run.scenarios == ["one", "two"] and run.problems == ()
    for name, columns in TABLES.items():
        assert run.table(name).columns == ["run", "scenario", *(column.name for column in columns)]
    counted = {
        row["scenario"]: row["count"] for row in run.table("publish").groupBy("scenario").count().collect()
    }
    assert set(counted) == {"one", "two"} and min(counted.values()) > 0
    with pytest.raises(KeyError, match=r"there is no table copies, only .*deliver"):
        run.table("copies")


def test_tables_can_be_asked_in_sql(run: OpenRun) -> None:
    query = "SELECT scenario, count(DISTINCT msg_id) AS messages FROM publish GROUP BY scenario"
    told = {row["scenario"]: row["messages"] for row in run.sql(query).collect()}
    assert told == {
        name: run.table("publish").where(f"scenario = '{name}'").count() for name in ("one", "two")
    }


def test_findings_are_frames_of_all_scenarios(run: OpenRun) -> None:
    found = run.found("reliability")
    assert list(found["scenario"]) == ["one", "two"] and "cell" not in found
    assert ((found["low"] <= found["share"]) & (found["share"] <= found["high"])).all()
    assert found["share"].tolist() == [row["share"] for row in run.findings.table("reliability")]
    assert list(run.found("scenarios")["scenario"]) == ["one", "two"]
    with pytest.raises(KeyError, match=r"nothing is found of the name delivery, only .*reliability"):
        run.found("delivery")


def test_pairs_and_misses_have_names_and_are_views(run: OpenRun) -> None:
    assert run.pairs.columns == [column.name for column in PAIR_COLUMNS] == run.misses.columns
    reliability = run.found("reliability").set_index("scenario")
    query = "SELECT scenario, count(*) AS pairs, sum(int(cause = 'delivered')) AS came FROM pairs GROUP BY 1"
    told = {row["scenario"]: (row["pairs"], row["came"]) for row in run.sql(query).collect()}
    assert told == {
        name: (reliability.loc[name, "pairs"], reliability.loc[name, "delivered"]) for name in ("one", "two")
    }
    causes = "SELECT scenario, cause, count(*) AS misses FROM misses GROUP BY 1, 2"
    counted = {(row["scenario"], row["cause"]): row["misses"] for row in run.sql(causes).collect()}
    found = run.found("attribution").query("misses > 0")
    assert counted == {(row["scenario"], row["cause"]): row["misses"] for _, row in found.iterrows()}


def test_figures_are_drawn(run: OpenRun) -> None:
    assert run.figure("over_time").startswith("<svg ")
    with pytest.raises(KeyError, match="there is no figure pie, only delivery, latency, causes, over_time"):
        run.figure("pie")


def test_the_example_notebook_runs(
    spark: SparkSession, capture: Path, run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_run(str(capture), spark=spark)  # Spark has a current folder of its own
    opened.findings = run.findings  # of the same capture: it need not be analysed again
    monkeypatch.setattr("kcast.spark.notebook.open_run", lambda _: opened)
    notebook = json.loads((ROOT / "docs/examples/load-test.ipynb").read_text())
    shown: list[Any] = []
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), "outputs are stripped"
            shown.append(_run_cell("".join(cell["source"]), names))
    frames = [value for value in shown if hasattr(value, "columns")]
    pictures = [value for value in shown if hasattr(value, "_repr_svg_")]
    assert shown[0] == (["one", "two"], ())
    assert len(frames) == 5 and all(len(frame) for frame in frames)
    assert [picture._repr_svg_()[:5] for picture in pictures] == ["<svg "] * 2


def _run_cell(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell as a notebook does; returns the value of its last line, if that has one."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, "cell", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return None


def test_some_scenarios_can_be_chosen(spark: SparkSession, capture: Path) -> None:
    with open_run(str(capture), only=["t*"], spark=spark) as run:
        assert run.scenarios == ["two"]
        assert {row["scenario"] for row in run.table("publish").select("scenario").distinct().collect()} == {
            "two"
        }
    assert spark.range(3).count() == 3, "who gave the session keeps it"


def test_what_is_no_capture_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no such folder"):
        open_run(str(tmp_path / "none"), spark=spark)


def test_the_program_of_the_guide_starts_and_ends_a_spark_of_its_own(capture: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/analysis.md").read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=capture.parent,
        env={**os.environ, **QUICK},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.split()
    assert told.count("one") >= 3 and told.count("two") >= 3 and "given_events" in told


def test_without_the_extra_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['pyspark'] = None; from kcast.spark import open_run"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert (
        last.startswith("ModuleNotFoundError: pyspark is missing: ") and "pip install 'kcast[spark]'" in last
    )


def test_a_part_of_the_package_is_imported_without_spark() -> None:
    program = "import sys, kcast.spark.findings.findings; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
