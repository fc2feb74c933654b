"""The figures of a report, counted once more from a capture's files: plain SQL, by the documents alone.

docs/capture.md says what rows mean and how figures follow from them, spark/findings/tables.py what the
columns of the report's tables are. All that is written here follows from these two, and shares no code with
what `kcast load` and `kcast analyse` count by. DuckDB reads the files.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from kcast.loadtest.capture.schema import TABLES

Row = dict[str, Any]
Tables = dict[str, list[Row]]

TYPES: Mapping[str, str] = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "string": "VARCHAR",
    "list<int32>": "INTEGER[]",
}
S = 1_000_000_000

MACROS = """
-- Three significant figures in whole numbers, halves up.
CREATE MACRO unit(v) AS CAST(power(10, greatest(length(CAST(v AS VARCHAR)) - 3, 0)) AS BIGINT);
CREATE MACRO three(v) AS (v + unit(v) // 2) // unit(v) * unit(v);
-- The place of a percentile, of n in ascending order from 1; p in thousandths.
CREATE MACRO place(p, n) AS (p * n + 999) // 1000;
"""

# Pairs, their copies, and their first copies in time.
PAIRS = """
CREATE TABLE pair AS
SELECT DISTINCT msg_id, sub_id, topic_id, pub_id, t_intended_ns, t_send_ns
FROM publish JOIN intent USING (topic_id)
WHERE t_from_ns <= t_intended_ns AND t_intended_ns < t_to_ns;

CREATE TABLE copy AS
SELECT pair.*, server_id, t_user_ns, t_user_ns - t_intended_ns <= deadline_ns AS in_time
FROM pair JOIN deliver USING (msg_id, sub_id), given
WHERE injected IN (0, 3) AND server_id >= 0;

CREATE TABLE outcome AS
SELECT msg_id, sub_id, pair.topic_id, pair.t_intended_ns,
  count(copy.msg_id) AS copies,
  coalesce(bool_or(in_time), false) AS delivered,
  count(DISTINCT server_id) FILTER (WHERE in_time) AS servers,
  greatest(min(t_user_ns - pair.t_intended_ns) FILTER (WHERE in_time), 0) AS intended_ns,
  greatest(min(t_user_ns - pair.t_send_ns) FILTER (WHERE in_time), 0) AS sent_ns
FROM pair LEFT JOIN copy USING (msg_id, sub_id)
GROUP BY ALL;

CREATE TABLE latency_of AS
SELECT since, took_ns, three(took_ns) AS value_ns
FROM outcome UNPIVOT (took_ns FOR since IN (intended_ns AS 'intended', sent_ns AS 'sent')) WHERE delivered;
"""

FIGURES: Mapping[str, str] = {
    "scenarios": "SELECT count(*) AS messages FROM publish",
    "reliability": """
SELECT count(*) AS pairs, count(*) FILTER (WHERE delivered) AS delivered,
  count(*) FILTER (WHERE delivered) / nullif(count(*), 0) AS share
FROM outcome""",
    "latency": """
WITH placed AS (
  SELECT *, row_number() OVER by_value AS nth, count(*) OVER (PARTITION BY since) AS n
  FROM latency_of WINDOW by_value AS (PARTITION BY since ORDER BY value_ns)
)
SELECT since, count(n) AS count,
  three(CAST(floor(avg(took_ns) + 0.5) AS BIGINT)) / 1e6 AS mean_ms,
  max(value_ns) FILTER (WHERE nth = place(500, n)) / 1e6 AS p50_ms,
  max(value_ns) FILTER (WHERE nth = place(900, n)) / 1e6 AS p90_ms,
  max(value_ns) FILTER (WHERE nth = place(990, n)) / 1e6 AS p99_ms,
  max(value_ns) FILTER (WHERE nth = place(999, n)) / 1e6 AS p999_ms,
  max(value_ns) / 1e6 AS max_ms
FROM (VALUES ('intended'), ('sent')) AS every(since) LEFT JOIN placed USING (since)
GROUP BY since ORDER BY since""",
    "latency_buckets": """
SELECT since, value_ns, count(*) AS count FROM latency_of GROUP BY ALL ORDER BY ALL""",
    "over_time": """
WITH due AS (
  SELECT (t_intended_ns - t0_ns) // width_ns AS number, delivered, three(intended_ns) AS value_ns,
    row_number() OVER (PARTITION BY number, delivered ORDER BY intended_ns) AS nth,
    count(*) OVER (PARTITION BY number, delivered) AS n
  FROM outcome, loaded, width
), counted AS (
  SELECT number, count(*) AS pairs, count(*) FILTER (WHERE delivered) AS delivered,
    max(value_ns) FILTER (WHERE delivered AND nth = place(500, n)) / 1e6 AS p50_ms,
    max(value_ns) FILTER (WHERE delivered AND nth = place(990, n)) / 1e6 AS p99_ms
  FROM due GROUP BY number
), stretch AS (
  SELECT number, t0_ns + number * width_ns AS from_ns,
    least(from_ns + width_ns, greatest(from_ns + 1, t0_ns + duration_ns)) AS to_ns
  FROM counted, loaded, width
), down AS (
  SELECT number, sum(least(t_up_ns, to_ns) - greatest(t_down_ns, from_ns)) AS down_ns
  FROM stretch JOIN outage ON t_down_ns < to_ns AND from_ns < t_up_ns GROUP BY number
)
SELECT number * width_ns / 1e9 AS from_s, (number + 1) * width_ns / 1e9 AS to_s, pairs, delivered,
  delivered / pairs AS share, p50_ms, p99_ms, coalesce(down_ns, 0) / (to_ns - from_ns) AS servers_down
FROM counted JOIN stretch USING (number) LEFT JOIN down USING (number), width ORDER BY number""",
    "servers": "FROM living ORDER BY server_id",
    "balance": """
WITH alive AS (
  SELECT 'received lines' AS what, 0 AS place, received AS value FROM living
  UNION ALL SELECT 'forwarded copies', 1, forwarded FROM living
  UNION ALL SELECT 'leases', 2, leases FROM living
), apart AS (
  SELECT a.what, sum(abs(a.value - b.value)) AS differences FROM alive a JOIN alive b USING (what) GROUP BY 1
)
SELECT what, count(*) AS servers, sum(value) AS total, avg(value) AS mean,
  stddev_pop(value) / nullif(avg(value), 0) AS cv, max(value) / nullif(avg(value), 0) AS peak,
  any_value(differences) / (2 * count(*) * nullif(sum(value), 0)) AS gini
FROM alive JOIN apart USING (what) WHERE value IS NOT NULL GROUP BY what, place ORDER BY place""",
    "cost": """
SELECT messages, sendings, renewals, copies, copies - reached AS duplicates,
  copies / pairs AS copies_per_pair,
  sendings / messages AS sendings_per_message,
  (sendings + renewals + copies) / nullif(delivered, 0) AS lines_per_delivery,
  ((sendings + copies) * line_bytes + renewals * 12) / nullif(delivered, 0) AS bytes_per_delivery,
  renewals / nullif(renewals + sendings, 0) AS renewal_share
FROM (SELECT count(*) AS messages, avg(size_bytes) AS line_bytes FROM publish),
  (SELECT count(*) AS sendings FROM pub_tx WHERE injected <> 3),
  (SELECT count(*) AS renewals FROM subscribe, loaded
   WHERE injected <> 3 AND t0_ns <= t_tx_ns AND t_tx_ns < end_ns),
  (SELECT nullif(count(*), 0) AS pairs, count(*) FILTER (WHERE delivered) AS delivered,
     coalesce(sum(copies), 0) AS copies, count(*) FILTER (WHERE copies > 0) AS reached FROM outcome)
WHERE messages > 0""",
    "audience": """
WITH reach AS (
  SELECT msg_id, count(*) AS subscribers, bool_and(delivered) AS whole, NOT bool_or(delivered) AS nobody
  FROM outcome GROUP BY msg_id
), numbered AS (
  SELECT topic_id, msg_id, row_number() OVER (PARTITION BY topic_id ORDER BY t_intended_ns, msg_id) AS nth
  FROM (SELECT DISTINCT topic_id, msg_id, t_intended_ns FROM outcome)
), run_of AS (
  SELECT outcome.*, nth - row_number() OVER (PARTITION BY sub_id, topic_id ORDER BY nth) AS number
  FROM outcome JOIN numbered USING (topic_id, msg_id) WHERE NOT delivered
), deaf AS (
  SELECT sub_id, topic_id, count(*) AS messages, max(t_intended_ns) - min(t_intended_ns) AS lasted_ns
  FROM run_of GROUP BY sub_id, topic_id, number
  ORDER BY messages DESC, lasted_ns DESC, sub_id, topic_id LIMIT 1
)
SELECT count(*) AS messages, avg(subscribers) AS subscribers, count(*) FILTER (WHERE whole) AS all_reached,
  count(*) FILTER (WHERE whole) / count(*) AS share, count(*) FILTER (WHERE nobody) AS none_reached,
  coalesce((SELECT messages FROM deaf), 0) AS longest_deaf_messages,
  coalesce((SELECT lasted_ns FROM deaf), 0) / 1e9 AS longest_deaf_s,
  (SELECT sub_id FROM deaf) AS deaf_subscriber, (SELECT topic_id FROM deaf) AS deaf_topic
FROM reach HAVING count(*) > 0""",
}

# What each server did, those that did nothing included.
SERVERS = """
-- When the load began, and when it was over.
CREATE TABLE loaded AS
SELECT coalesce((SELECT min(t_from_ns) FROM "window"), begun_ns, min(t_intended_ns), 0) AS t0_ns,
  greatest((SELECT max(t_to_ns) FROM "window"), max(t_intended_ns)) AS end_ns
FROM given LEFT JOIN publish ON true GROUP BY begun_ns;

-- Those of which the capture tells anything; where no server has a tap, all.
CREATE TABLE living AS
WITH counted AS (
  SELECT server_id, count(*) FILTER (WHERE what = 'received') AS received,
    count(*) FILTER (WHERE what = 'forwarded') AS forwarded, count(*) FILTER (WHERE what = 'lease') AS leases
  FROM (
    SELECT server_id, 'received' AS what FROM server_rx WHERE msg_id >= 0
    UNION ALL SELECT server_id, 'forwarded' FROM deliver WHERE injected <> 3
    UNION ALL SELECT DISTINCT ON (server_id, sub_id, topic_id) server_id, 'lease' FROM lease
      WHERE change IN (1, 4) AND sub_id >= 0 AND topic_id >= 0
    UNION ALL SELECT server_id, 'life' FROM server_life
    UNION ALL SELECT server_id, 'untapped' FROM given, range(servers) AS ids(server_id)
      WHERE NOT EXISTS (FROM server_life)
  ) WHERE server_id >= 0 GROUP BY server_id
)
SELECT server_id, if(is_tapped, received, NULL) AS received, forwarded, if(is_tapped, leases, NULL) AS leases
FROM counted, (SELECT count(*) > 0 AS is_tapped FROM server_life);
"""


def recompute(folder: Path) -> Tables:
    """Returns the rows of each table for the capture of one scenario; `folder` has its scenario.json."""
    info = json.loads((folder / "scenario.json").read_text())
    with duckdb.connect(config={"threads": 1}) as database:
        _read(database, folder)
        _settings(database, info)
        for statements in (MACROS, PAIRS, SERVERS):
            database.execute(statements)
        return {table: _rows(database, query) for table, query in FIGURES.items()}


def _read(database: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Makes a table of each of the capture's."""
    for table, columns in TABLES.items():
        typed = ", ".join(f'"{column.name}" {TYPES[column.type]}' for column in columns)
        database.execute(f'CREATE TABLE "{table}" ({typed})')
        files = sorted(str(file) for file in folder.glob(f"table={table}/[!._]*.parquet"))
        if files:
            database.execute(
                f'INSERT INTO "{table}" BY NAME FROM read_parquet(?, hive_partitioning = false)', [files]
            )


def _settings(database: duckdb.DuckDBPyConnection, info: Mapping[str, Any]) -> None:
    """Makes a table of one row of what the scenario asks for."""
    scenario = info["scenario"]
    given = {
        "servers": scenario["servers"],
        "deadline_ns": round(scenario["deadline_s"] * S),
        "begun_ns": info.get("t0_ns"),
    }
    names = ", ".join(f"CAST(${name} AS BIGINT) AS {name}" for name in given)
    database.execute(f"CREATE TABLE given AS SELECT {names}", given)
    lengths = [width_ns(scenario), round(scenario["duration_s"] * S)]
    names = "CAST(? AS BIGINT) AS width_ns, CAST(? AS BIGINT) AS duration_ns"
    database.execute(f"CREATE TABLE width AS SELECT {names}", lengths)


def width_ns(scenario: Mapping[str, Any]) -> int:
    """Returns how long a stretch of time is in `over_time`."""
    tenths = (1, 2, 5, 10, 20, 50, 100, 200, 300, 600, 1200, 3000, 6000, 36000)
    return next((tenth for tenth in tenths if tenth * 6 >= scenario["duration_s"]), tenths[-1]) * S // 10


def _rows(database: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    cursor = database.execute(query)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def differences(table: str, expected: Sequence[Row], found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns each figure of a table that differs: where, what was recomputed, and what the report says."""
    if len(expected) != len(found):
        return [f"{table}: {len(expected)} rows recomputed, the report has {len(found)}"]
    return [
        f"{table}[{number}].{name}: {value!r} recomputed, the report says {there[name]!r} in {dict(there)}"
        for number, (here, there) in enumerate(zip(expected, found, strict=True))
        for name, value in here.items()
        if not _equal(value, there[name])
    ]


def _equal(here: Any, there: Any) -> bool:
    if here is None or there is None or isinstance(here, str):
        return bool(here == there)
    if isinstance(there, int):
        return bool(here == there)
    return bool(abs(float(here) - there) <= 1e-12 * max(1.0, abs(there)))
