"""spark/judging/named_pairs.py: each pair with names and causes, in files that agree with the findings."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kcast.loadtest.capture.folder import open_run as open_folder
from kcast.loadtest.results.attribution import attribute
from kcast.loadtest.results.causes import Cause
from kcast.spark.analysis import analyse
from kcast.spark.capture.captures import open_captures
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.pair_columns import PAIR_COLUMNS
from tests.support.big_capture import big_scenario, write_run

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs") / "run"
    write_run(folder, [big_scenario(4000, name=name, k_prime=k) for name, k in (("one", 1), ("three", 3))], 2)
    return folder


@pytest.fixture(scope="module")
def out(run: Path) -> Path:
    return run.parent / "a folder with [brackets]"


@pytest.fixture(scope="module")
def found(spark: SparkSession, run: Path, out: Path) -> Findings:
    return analyse(spark, open_captures(spark, [str(run)]), pairs_into=out)


@pytest.fixture(scope="module")
def pairs(found: Findings, out: Path) -> pa.Table:
    assert found.table("reliability")
    return pq.read_table(out / "pairs")


def test_the_files_have_the_columns_that_are_documented(pairs: pa.Table, out: Path) -> None:
    names = [column.name for column in PAIR_COLUMNS]
    kinds = {"int": pa.types.is_integer, "float": pa.types.is_floating, "str": pa.types.is_string}
    assert pairs.column_names == names == pq.read_table(out / "misses").column_names
    for column in PAIR_COLUMNS:
        assert kinds[column.type](pairs.schema.field(column.name).type), column.name


def test_each_pair_is_what_a_load_test_says_of_it(pairs: pa.Table, run: Path) -> None:
    whole = open_folder(run)
    for folder in whole.scenarios:
        judged = attribute(folder)
        own = pairs.filter(pa.compute.equal(pairs["scenario"], folder.scenario.name))
        own = own.sort_by([("msg_id", "ascending"), ("subscriber", "ascending")]).to_pydict()
        assert set(own["run"]) == {whole.run_id}
        assert own["msg_id"] == judged.msg_ids.tolist()
        assert own["subscriber"] == judged.sub_ids.tolist()
        assert own["topic"] == judged.topics.tolist()
        assert own["publisher"] == [msg >> 32 for msg in own["msg_id"]]
        assert own["number"] == [msg & 0xFFFFFFFF for msg in own["msg_id"]]
        assert own["cause"] == [Cause(cause).label for cause in judged.causes.tolist()]
        assert own["latency_ns"] == [None if ns < 0 else ns for ns in judged.latencies_ns.tolist()]
        assert own["copies"] == judged.copies_of.tolist()
        assert own["heard"] == judged.heard.tolist()
        assert own["chances"] == judged.chances.tolist()
        assert min(own["due_s"]) >= 0 and max(own["due_s"]) <= folder.scenario.duration_s


def test_misses_are_the_pairs_that_were_missed(pairs: pa.Table, out: Path) -> None:
    misses = pq.read_table(out / "misses").to_pylist()
    assert len(misses) > 20
    expected = [row for row in pairs.to_pylist() if row["cause"] != "delivered"]
    assert sorted(misses, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("of", ["topic", "subscriber"])
def test_the_tables_of_misses_are_the_sums_of_pairs(found: Findings, pairs: pa.Table, of: str) -> None:
    every, missed = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    causes = Counter[tuple[str, int, str]]()
    for row in pairs.to_pylist():
        key = row["scenario"], row[of]
        every[key] += 1
        if row["cause"] != "delivered":
            missed[key] += 1
            causes[*key, row["cause"]] += 1
    names = {row["cell"]: row["scenario"] for row in found.table("scenarios")}
    table = found.table(f"misses_by_{of}")
    assert {(names[row["cell"]], row[of]): row["misses"] for row in table} == missed
    for row in table:
        key = names[row["cell"]], row[of]
        assert row["pairs"] == every[key] and row["share"] == missed[key] / every[key]
        assert row["cause_misses"] == causes[*key, row["cause"]]
        assert row["cause_misses"] == max(causes[*key, cause.label] for cause in Cause)
    by_cell = [(row["cell"], -row["misses"], row[of]) for row in table]
    assert by_cell == sorted(by_cell)
