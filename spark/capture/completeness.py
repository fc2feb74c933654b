"""Whether a scenario's tables are complete: with one missing, figures would look sound and be wrong. Pure."""

from collections.abc import Iterator, Mapping

from kcast.client.cli.common import count_of
from kcast.loadtest.capture.manifest import Stored
from kcast.loadtest.scenario import Scenario


def shortfalls(
    scenario: Scenario,
    found: Mapping[str, Stored],
    written: Mapping[str, Stored] | None,
    *,
    scheduled: int,
    copies: int,
    cut_off: bool,
) -> list[str]:
    """What is missing, or too much: a clause each, none if all is there.

    `found` is what there is, by table; `written` what the run says that it wrote (`manifest.stored`), None
    for a run that does not say. Then it is guessed from the number of messages `scheduled` (window), the
    `copies` that clients counted at least (client_stat), and whether datagrams were `cut_off` by outages.
    """
    if written is not None:
        return [
            f"{table} has {_amount(found[table])}, but {_amount(expected)} were written"
            for table, expected in written.items()
            if found[table] != expected
        ]
    return [
        f"{table} is missing"
        for table in _needed(scenario, found, scheduled, copies, cut_off)
        if not found[table].rows
    ]


def _needed(
    scenario: Scenario, found: Mapping[str, Stored], scheduled: int, copies: int, cut_off: bool
) -> Iterator[str]:
    """The tables of which the run must have written rows."""
    if scheduled or found["pub_tx"].rows:
        yield "publish"
    if found["publish"].rows:
        yield from ("window", "pub_tx")
    yield from ("member", "client_stat", "process_stat", "clock")
    if scenario.subscribing_users:
        yield from ("intent", "subscribe")
    if copies:
        yield "deliver"
    if cut_off and scenario.outages != "none":
        yield "outage"
    if scenario.backend != "file":  # whose servers have taps
        yield from ("server_life", "server_stat")
        if found["deliver"].rows or copies:
            yield from ("server_rx", "lease")


def _amount(stored: Stored) -> str:
    return f"{count_of(stored.rows, 'row')} in {count_of(stored.files, 'file')}"
