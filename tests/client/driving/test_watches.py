"""driving/watches.py: who hears what comes on kcast's own topics, and what is said there."""

from unittest.mock import Mock

from kcast.client.clusters.watch import Listen, Say
from kcast.client.driving.watches import Watches

TOPIC = b"\0group/x"


def test_two_watches_listen_on_one_topic_until_the_last_one_leaves_and_say_no_name() -> None:
    core = Mock()
    watches, both = Watches(core), [Mock(look_at=0.0), Mock(look_at=0.0)]
    for watch in both:
        watch.look.return_value = [Listen((TOPIC,)), Say(TOPIC, b"head")]
        watches.add(watch)
    watches.look(0.0)
    core.publish.assert_called_with(TOPIC, b"head", 0.0, raw=True, is_own=True)
    while both:
        watches.hear(TOPIC, b"word", 1.0)
        assert [watch.hear.call_count for watch in both] == [3 - len(both)] * len(both)
        assert not core.unsubscribe.called
        both.pop().look.return_value = [Listen(())]
        watches.look(1.0)
    assert core.unsubscribe.call_count == 1 and TOPIC not in watches.topics
