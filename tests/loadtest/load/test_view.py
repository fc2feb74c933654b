"""loadtest/load/view.py and .report: what is shown while a run goes on, and at its end."""

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from kcast.loadtest.load import report
from kcast.loadtest.load.view import Watcher, figures
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.results.summary import Summary
from kcast.loadtest.results.verdicts import Health, Verdict
from kcast.loadtest.scenario import Scenario

if TYPE_CHECKING:
    from kcast.loadtest.users.progress import Progress

SCENARIO = Scenario(name="5-3-5", duration_s=10.0)


def progress(**changes: Any) -> "Progress":
    told: Progress = {
        "phase": "running",
        "t0_ns": 1,
        "t_s": 5.0,
        "users": 24,
        "ready": 24,
        "published": 1234,
        "delivered": 9_990,
        "missed": 10,
        "late": 0,
        "latency_p50_ms": 0.4123,
        "latency_p99_ms": 2.06,
        "publish_delay_p99_ms": 0.1,
        "copies": 30_000,
        "overflows": 0,
        "slow_consumer": 0,
        "send_errors": 0,
        "lag_max_ms": 3.0,
        "rows_waiting": 0,
        "rows_lost": 0,
        "error": "",
    }
    return cast("Progress", {**told, **changes})


def summary(name: str = "5-3-5", **changes: Any) -> Summary:
    plain = Summary(
        scenario=SCENARIO.with_(name=name, outages="independent", outage=0.1),
        status="complete",
        messages=2000,
        pairs=20_000,
        delivered=19_000,
        share=0.95,
        low=0.945,
        high=0.955,
        trials=4000.0,
        trials_given_outages=9000.0,
        predicted=0.951,
        prediction_note="",
        interval_note="",
        expected=None,
        expected_low=None,
        expected_high=None,
        causes={"down": 300, "loss-in": 700},
        paths={},
        copies=57_000,
        duplicates=38_000,
        latency=Percentiles.of(np.arange(1, 19_001, dtype=np.int64) * 1000),
        publish_delay=Percentiles(),
        health=Health(2000, 2000, 0, 0, 1.0, 0.0, 0, 0, 0, 0),
        delivery_verdict=Verdict(),
        latency_verdict=Verdict(),
    )
    return replace(plain, **changes)


NO_DELIVERY = summary("3-3-3", delivery_verdict=Verdict(("5 pairs were lost", "a row was lost")))
NO_LATENCY = summary("s", latency_verdict=Verdict(("messages left late",)))


# --- While it runs -----------------------------------------------------------------------------------


def test_live_figures_are_one_line() -> None:
    cases: list[Any] = [
        ({}, "1,234 published, delivered 99.90 %, p50 0.412 ms, p99 2.06 ms"),
        ({"phase": "waiting", "ready": 3}, "3 of 24 users ready"),
        ({"delivered": 0, "missed": 0}, "1,234 published, delivered -, p50 0.412 ms, p99 2.06 ms"),
        (
            {"lag_max_ms": 80.0, "overflows": 7, "rows_lost": 1000},
            "1,234 published, delivered 99.90 %, p50 0.412 ms, p99 2.06 ms, lag 80.0 ms, 7 overflows, "
            "1,000 rows lost",
        ),
    ]
    for changes, text in cases:
        assert figures(progress(**changes)) == text


def test_in_a_pipe_there_is_a_line_for_each_phase_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with Watcher(stream) as watcher:
        watcher.say("capture: x")
        watcher.begin(SCENARIO, 2, 9)
        watcher.phase("starting 12 servers")
        watcher.progress(progress(phase="starting"))
        for _ in range(25):
            now[0] += 1
            watcher.progress(progress())
        watcher.progress(progress(phase="settling"))
        watcher.progress(progress(phase="done"))
        watcher.end("delivered all")
    lines = stream.getvalue().splitlines()
    assert lines[:2] == [
        "  0.0 s  capture: x",
        "  0.0 s  5-3-5 (2 of 9): 12 servers, policy 5/3/5, 100 messages/s for 10 s, 20 subscribers",
    ]
    assert [line[:7] for line in lines[2:]] == ["  1.0 s", " 11.0 s", " 21.0 s", " 25.0 s", " 25.0 s"]
    assert lines[-1].endswith("delivered all")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_there_is_a_bar_for_each_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Watcher(stream) as watcher:
        watcher.say("[capture]: x")
        for number in (1, 2):
            watcher.begin(SCENARIO, number, 2)
            watcher.phase("starting 12 servers")
            watcher.progress(progress(phase="waiting", t0_ns=0, t_s=-1e9))
            watcher.progress(progress(t_s=99.0))
            watcher.end(f"came to end {number}")
    shown = stream.getvalue()
    for text in ("[capture]: x", "1/2 5-3-5", "2/2 5-3-5", "came to end 1", "came to end 2"):
        assert text in shown


# --- At its end --------------------------------------------------------------------------------------


def test_the_table_has_a_line_for_each_scenario() -> None:
    results = {each.name: each for each in (summary(), NO_DELIVERY, NO_LATENCY)}
    *heads, first, second, third = report.delivery_table(results)
    assert heads[-1].split()[:5] == ["scenario", "pairs", "delivered", "interval", "beforehand"]
    assert first.split() == [
        *("5-3-5", "20,000", "95.00", "%", "94.50-95.50", "95.10", "%", "-", "2.85", "yes"),
    ]
    assert second.endswith("  NO") and third.endswith("  yes")


def test_latencies_have_a_table_of_their_own() -> None:
    silent = summary("silent", latency=Percentiles())
    head, first, second, third = report.latency_table(
        {each.name: each for each in (summary(), NO_DELIVERY, NO_LATENCY)} | {"silent": silent}
    )
    assert head.split() == ["latency", "p50", "ms", "p99", "ms", "p99.9", "ms", "valid"]
    assert first.split() == ["5-3-5", "9.50", "18.8", "19.0", "yes"]
    assert second.endswith("  yes") and third.endswith("  no")
    assert report.latency_table({"silent": silent}) == []


def test_the_table_says_what_is_beyond_the_interval_or_has_no_prediction() -> None:
    results = {
        "a": summary(predicted=0.97),
        "d": summary(predicted=0.97, expected=0.951, expected_low=0.948, expected_high=0.953),
        "e": summary(predicted=0.97, expected=0.955, expected_low=0.953, expected_high=0.957),
        "b": summary(predicted=None, prediction_note="there is none"),
        "c": summary(pairs=0, delivered=0, share=0.0, copies=0, causes={}, latency=Percentiles()),
    }
    lines = report.delivery_table(results)
    begin = next(place for place, line in enumerate(lines) if line.startswith("scenario")) + 1
    first, fourth, fifth, second, third, *notes = lines[begin:]
    told = [line.replace(" %", "%").split() for line in (first, fourth, fifth, second)]
    assert [line[4:6] for line in told] == [
        ["97.00%*", "-"],
        ["97.00%", "95.10%"],
        ["97.00%", "95.50%*"],
        ["-"] * 2,
    ]
    assert third.split()[1] == "0" and third.endswith("  yes")
    assert notes == [
        "theory beforehand: there is none",
        "two theories: beforehand, before outages; given what happened, after them",
        "* differs from what was measured; by chance one in twenty does",
    ]


def test_causes_come_with_their_shares_the_most_frequent_first() -> None:
    whole = summary("all", delivered=20_000, share=1.0, causes={})
    assert report.causes({"5-3-5": summary(), "all": whole}) == [
        "5-3-5  1,000 missed: loss-in 700 (70.0%), down 300 (30.0%)"
    ]


def test_each_reason_is_told_and_decides_the_exit_code() -> None:
    assert report.not_valid({each.name: each for each in (NO_DELIVERY, NO_LATENCY)}) == [
        "NOT VALID: delivery of 3-3-3: 5 pairs were lost",
        "NOT VALID: delivery of 3-3-3: a row was lost",
        "latency of s cannot be trusted: messages left late",
    ]
    for is_strict, code in ((False, 0), (True, 4)):
        assert report.exit_code([summary()], is_strict=is_strict) == 0
        assert report.exit_code([summary(), NO_LATENCY], is_strict=is_strict) == code
        assert report.exit_code([NO_LATENCY, NO_DELIVERY, summary()], is_strict=is_strict) == 3
    assert "NOT VALID" in report.headline(NO_DELIVERY)
    assert report.headline(NO_LATENCY).endswith("latency cannot be trusted")
    assert "NOT" not in report.headline(summary())


def test_all_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    results = {each.name: each for each in (summary(), NO_DELIVERY)}
    report.print_results(results, Path("here"), is_strict=False, as_json=False)
    text = capsys.readouterr().out
    assert "latency" in text and "1,000 missed" in text and "NOT VALID: delivery of 3-3-3" in text
    assert text.endswith("\ncapture: here\n")


@pytest.mark.parametrize(("is_strict", "code"), [(False, 0), (True, 4)])
def test_json_is_one_object_a_line(is_strict: bool, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    results = {each.name: each for each in (summary(), NO_LATENCY)}
    report.print_results(results, Path("here"), is_strict=is_strict, as_json=True)
    first, second, run = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["type"], first["name"], first["pairs"]) == ("scenario", "5-3-5", 20_000)
    assert second["latency_verdict"] == {"valid": False, "reasons": ["messages left late"]}
    assert run == {"type": "run", "folder": "here", "scenarios": ["5-3-5", "s"], "exit_code": code}


# --- Names of others ---------------------------------------------------------------------------------

HOSTILE = "a\x1b[2J\x7f\x9b31m\r\u202e"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.mark.parametrize("as_json", [False, True])
def test_results_of_another_s_capture_cannot_act_on_a_terminal(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = summary(HOSTILE, delivery_verdict=Verdict((HOSTILE,)))
    report.print_results({HOSTILE: odd}, Path(HOSTILE), is_strict=False, as_json=as_json)
    text = capsys.readouterr().out
    assert CONTROLS.search(text) is None
    assert text.count("\\u001b" if as_json else "\\x1b") > 3


def test_progress_cannot_act_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    for stream in (io.StringIO(), Terminal()):
        with Watcher(stream) as watcher:
            watcher.begin(SCENARIO.with_(name=HOSTILE), 1, 2)
            watcher.say(HOSTILE)
            watcher.end(HOSTILE)
        shown = re.sub(r"\x1b\[\??[0-9;]*[A-Za-z]|\r", "", stream.getvalue())  # rich's own
        assert CONTROLS.search(shown) is None and HOSTILE not in stream.getvalue()
        assert "a\\x1b[2J" in stream.getvalue()
