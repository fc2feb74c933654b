"""client/history/log.py with its guard, store and sync, over real client and server cores in virtual time."""

from kcast.client.history.entries import NotKept
from tests.support.log_lab import LogLab


def test_an_entry_is_on_disk_and_then_with_all_and_who_comes_late_gets_it_though_its_author_is_gone() -> None:
    lab = LogLab()
    ann, bob = lab.join(), lab.join()
    lab.run(3)
    first = ann.append(b"hi")
    lab.run(2)
    second = bob.append(b"hello")
    lab.run(2)
    assert first.result is not None and second.result is not None
    assert second.result.parents == (first.result.id,)
    assert (
        [entry.payload for entry in ann.entries()]
        == [entry.payload for entry in bob.entries()]
        == [b"hi", b"hello"]
    )
    lab.leave(ann)
    eve = lab.join()
    lab.run(20)
    assert [entry.payload for entry in eve.entries()] == [b"hi", b"hello"]
    assert eve.log.status().digest == bob.log.status().digest


def test_an_entry_is_kept_by_as_many_others_as_wanted_or_it_is_said_how_many_there_are() -> None:
    lab = LogLab()
    ann, bob = lab.join(), lab.join()
    lab.run(3)
    kept = ann.append(b"hi", confirm=1)
    lab.run(3)
    assert kept.result is not None and bob.entries()[0].id == kept.result.id
    alone = ann.append(b"hi", confirm=2)
    lab.run(6)
    assert isinstance(alone.error, NotKept) and alone.error.kept == 1


def test_who_comes_a_moment_later_gets_what_is_younger_than_what_holders_speak_of() -> None:
    lab = LogLab()
    ann = lab.join()
    lab.run(3)
    ann.append(b"hi")
    lab.run(0.5)
    eve = lab.join()
    outcome = eve.synced()
    lab.run(2)
    assert [entry.payload for entry in eve.entries()] == [b"hi"]
    assert outcome.result == (1, 1, True)
