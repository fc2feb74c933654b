from pathlib import Path

from kcast.spark.session.failures import first_line, worst_lines


def test_a_complaint_is_one_line() -> None:
    assert first_line(ValueError("\n  too bad \n\tat org.apache.spark.X\n")) == "too bad"
    assert first_line(ValueError("")) == "ValueError"
    assert first_line(ValueError("x" * 1000)) == "x" * 297 + "..."


def test_of_a_log_the_lines_that_tell_of_trouble_are_told(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    assert worst_lines(None) == worst_lines(log) == ""
    log.write_text("")
    assert worst_lines(log) == ""
    log.write_text("WARNING: Using incubator modules\nall is well\n")
    assert worst_lines(log) == "WARNING: Using incubator modules | all is well"
    log.write_text(
        'Exception in thread "main" java.lang.X: no\n\tat java.lang.Error.y(Z)\nInvalid heap size: 9x\n'
    )
    assert worst_lines(log) == "java.lang.X: no | Invalid heap size: 9x"


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("Error: old\n" + "fine\n" * 50_000 + "Error: new\n")
    assert worst_lines(log) == "Error: new"
