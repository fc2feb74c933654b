"""spark/notebook.py: captures in programs and notebooks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kcast.loadtest.capture.schema import TABLES
from kcast.spark import open_run
from kcast.spark.capture.captures import CaptureError
from kcast.spark.notebook import OpenRun
from tests.support.big_capture import big_scenario, write_run
from tests.support.checkout import ROOT

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook") / "run"
    write_run(folder, [big_scenario(2000, name=name, k_prime=3) for name in ("one", "two")], 1)
    return folder


@pytest.fixture(scope="module")
def run(spark: SparkSession, capture: Path) -> OpenRun:
    return open_run(str(capture), spark=spark)


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
