"""loadtest/bench/own_servers.py: what servers say at their end."""

from kcast.hashring.policy import Policy
from kcast.loadtest.bench.own_servers import last_words, own_servers

LOGS = (
    '{"time": "t", "event": "drops", "drops": {"late": 2}, "text": "dropped late=2"}\n'
    '{"time": "t", "event": "end", "copies": 10, "drops": {"late": 2, "credit": 5, "work": 9}}\n',
    'Traceback: no JSON\n{"event": "end", "copies": 7, "drops": {"credit": 1}}\n{"event": "en',
    "",
)


def test_copies_and_drops_of_all_servers_are_added_up() -> None:
    words = last_words(LOGS)
    assert words.copies == 17
    assert words.drops == {"late": 2, "credit": 6}  # to be asked for work is no loss


def test_real_servers_say_it() -> None:
    with own_servers(2, Policy(2, 2, 2)) as own:
        assert len(own.cluster.servers) == 2 and own.cluster.policy == Policy(2, 2, 2)
        assert own.end() == (0, {})
