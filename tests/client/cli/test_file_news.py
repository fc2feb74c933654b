"""client/cli/file_news.py: what commands say of a cluster file that changes."""

from kcast.client.cli.file_news import told
from kcast.client.events import ClusterChanged, ClusterRefused, GroupTrouble


def test_it_is_told_which_servers_come_and_go() -> None:
    changed = ClusterChanged(added=("192.0.2.8:7400",), removed=("192.0.2.7:7400", "192.0.2.6:7400"))
    assert told(changed) == (
        "the cluster file has changed: +192.0.2.8:7400, -192.0.2.7:7400, -192.0.2.6:7400"
    )
    assert told(ClusterChanged((), ())) == "the cluster file has changed: the same servers"


def test_it_is_told_why_a_file_is_not_used() -> None:
    refused = ClusterRefused("a.txt:3: expected IP:PORT, not 'x'")
    assert told(refused) == "a.txt:3: expected IP:PORT, not 'x'; going on with the cluster as it was"


def test_it_is_told_what_is_wrong_with_a_group() -> None:
    trouble = GroupTrouble("ops", "stale", "it ends on 2027-01-15")
    assert told(trouble) == "group ops: it ends on 2027-01-15 (stale)"
