"""The sync of a log over a simulated path, client/history/sync.py."""

from tests.support.sync_lab import SyncLab, make_entries

ADA, BOB, EVE = "AAAAAAAAAAA", "BBBBBBBBBBB", "EEEEEEEEEEE"


def test_who_lacks_entries_gets_them_from_who_has_them() -> None:
    entries = make_entries(2000, 5)
    lab = SyncLab()
    lab.open(BOB, entries)
    ada = lab.open(ADA, entries[:700] + entries[900:1200] + entries[1201:])
    at = lab.run(30.0, lambda: len(ada.shelf.index) == 2000)
    assert at < 3.0, (at, ada.drops, ada.ended)
