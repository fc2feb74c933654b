"""A scenario's conditions in words: what was taken away on purpose, and how many copies it sent. Pure.

All of it is as planned: chance may have taken down more servers, or fewer, while the test ran.
"""

from collections.abc import Sequence

from kcast.loadtest.charts.words import brief_percent, count, listed
from kcast.spark.findings.findings import Row

_FRACTIONS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 10: "a tenth", 20: "a twentieth"}
_BY = {"kill": ", killed and started again", "stall": ", halted"}


def while_words(row: Row) -> str:
    """What was against the messages: `a tenth of the servers were down and 2 % of packets were lost ...`.

    `row` is of the table `scenarios`. Where nothing was, that is said.
    """
    found = [words for words in (_outages(row), _losses(row), _views(row)) if words]
    return listed(found) if found else "all servers were up and no packet was lost on purpose"


def copies(row: Row) -> str:
    """How many copies of a message a subscriber is to get, and of how many servers: `3 copies of 5`."""
    times = f", each sent {row['repeat']} times" if row["repeat"] > 1 else ""
    if row["scheme"] == "R":
        return f"{row['publish']:,} of {row['servers']:,} servers on each side{times}"
    used = min(row["publish"], row["subscribe"])
    if used == row["k"] > 1:
        return f"all {used:,} copies{times}"
    of = f" of {row['k']:,}" if row["k"] > 1 else ""
    return f"{count(used, 'copy', 'copies')}{of}{times}"


def setting(row: Row) -> list[str]:
    """Facts of the test for those who would repeat it: servers, clients, outages, losses, length."""
    servers = count(row["servers"], "server")
    places = {"processes": "processes of one machine", "lab": "in one process", "containers": "containers"}
    where = places.get(row["backend"], "")
    return [
        servers + (f" ({where})" if where else ""),
        f"{count(row['publishers'], 'publisher')} and {count(row['subscribers'], 'subscriber')}",
        _outages(row) or "no outages",
        _losses(row) or "no packet lost on purpose",
        *([_views(row)] if _views(row) else []),
        *([] if row["duration_s"] is None else [f"{row['duration_s']:g}\N{NO-BREAK SPACE}s of load"]),
    ]


def _outages(row: Row) -> str:
    by = _BY.get(row["by"], "")
    if row["down"] is None:
        return ""
    match row["outages"]:
        case "independent":
            return f"{_part(row['down'], 'of the servers')} were down{by}"
        case "exact":
            down = round(row["down"] * row["servers"])
            return f"{down:,} of {count(row['servers'], 'server')} {'was' if down == 1 else 'were'} down{by}"
        case "zones":
            return f"{_part(row['down'], 'of the zones')} were down, with all their servers{by}"
        case "rolling":
            return f"one server after the other was down{by}"
        case _:
            return ""


def _losses(row: Row) -> str:
    there, back = row["loss_in"], row["loss_out"]
    if there == back:
        return f"{brief_percent(there)} of packets were lost each way" if there else ""
    if there and back:
        return f"{brief_percent(there)} of packets were lost to servers and {brief_percent(back)} to clients"
    which = "servers" if there else "clients"
    return f"{brief_percent(there or back)} of packets were lost on the way to {which}"


def _views(row: Row) -> str:
    return (
        ""
        if row["known"] in (1, None)
        else f"each client knew only {brief_percent(row['known'])} of the servers"
    )


def _part(share: float, of: str) -> str:
    for parts, words in _FRACTIONS.items():
        if abs(share * parts - 1) < 1e-6:
            return f"{words} {of}"
    return f"{brief_percent(share)} {of}"


def common(rows: Sequence[Row]) -> str:
    """The conditions that all scenarios share, as `while_words`; empty where they differ."""
    found = {while_words(row) for row in rows}
    return found.pop() if len(found) == 1 else ""
