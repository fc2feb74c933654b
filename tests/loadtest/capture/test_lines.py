from random import Random

import numpy as np

from kcast.client.messages.envelope import Envelope, format_envelope
from kcast.loadtest.capture.lines import Found, count_about, find, sizes_of
from kcast.loadtest.scenario import message_id, payload, topic_name
from kcast.pubsub.wire import publish_line

SEED = 20261120


def line(msg_id: int, topic_id: int = 12, size_bytes: int = 20, publisher: str = "abcdefghijk") -> bytes:
    text = payload(msg_id, size_bytes)
    return publish_line(topic_name(topic_id), format_envelope(Envelope(publisher, 17, text)))


def find_in(*bursts: bytes) -> Found:
    return find(bursts, sizes_of(bursts))


def messages(found: Found) -> list[tuple[int, int]]:
    return list(zip(found.bursts.tolist(), found.msg_ids.tolist(), strict=True))


def test_a_message_is_found_where_it_is() -> None:
    found = find_in(line(7), line(message_id(3, 5), topic_id=999_999) + line(8, size_bytes=900))
    assert messages(found) == [(0, 7), (1, 3 << 32 | 5), (1, 8)]
    texts = [found.data[start:end] for start, end in zip(found.starts, found.ends, strict=True)]
    assert b"".join(text + b"\n" for text in texts) == line(7) + line(message_id(3, 5), 999_999) + line(
        8, size_bytes=900
    )
    assert found.foreign == 0


def test_the_ids_of_a_warm_up_are_below_zero() -> None:
    assert messages(find_in(b"load/000001 " + b"f" * 16 + b"\n")) == [(0, -1)]


def test_lines_that_ask_for_leases_are_found_with_their_topics() -> None:
    found = find_in(b"%! nonce cookie -\nload/000012\nload/000000\n\n\n", b"load/999999\n")
    assert found.subscribe_bursts.tolist() == [0, 0, 1]
    assert found.subscribe_topics.tolist() == [12, 0, 999_999]
    assert (messages(found), found.foreign) == ([], 0)


def test_control_lines_and_padding_are_passed_over() -> None:
    for control in [b"%+ nonce 60 cookie 0\n", b"%~ nonce\n", b"\n", b"\n\n\n\n\n"]:
        found = find_in(control + line(1), control, line(2) + control)
        assert messages(found) == [(0, 1), (2, 2)]
        assert found.foreign == 0


def test_what_is_no_load_tests_is_counted() -> None:
    for foreign in [
        b"weather/oslo -3.5\n",
        b"weather/oslo\n",
        b"x\n",
        b"load/00001x\n",
        b"load/0000123\n",
        b"load/000001 \n",
        b"load/000001 fewer than 16\n",
        b"load/000001 %@abcdefghijk.1 000000000000000g\n",
        b"load/000001 %@abcdefghijk.1 00000000000000FF\n",  # as no load test writes it
        b"load/0000010000000000000000000000000000\n",
        b"Load/000001 %@abcdefghijk.1 0000000000000001\n",
    ]:
        found = find_in(line(1) + foreign + line(2), foreign)
        assert messages(found) == [(0, 1), (0, 2)]
        assert found.foreign == 2
        assert len(found.subscribe_topics) == 0


def test_a_last_line_without_lf_is_none_and_hurts_no_other() -> None:
    bursts = line(1) + line(2)[:-1], b"load/0000", b"", line(3), line(4)[:30]
    found = find_in(*bursts)
    assert messages(found) == [(0, 1), (3, 3)]
    assert found.foreign == 0


def test_nothing_is_found_in_nothing() -> None:
    for bursts in ((), (b"",), (b"", b""), (line(1), b""), (b"", line(1))):
        assert len(find_in(*bursts).msg_ids) == sum(map(bool, bursts)), bursts


def test_an_empty_burst_does_not_move_lines_to_its_neighbours() -> None:
    assert messages(find_in(line(1) + line(2), b"", line(3))) == [(0, 1), (0, 2), (2, 3)]


def test_lines_are_counted_without_looking_for_their_ids() -> None:
    assert count_about(line(1) + b"%+ x\n" + line(2) + b"load/000001\n") == 3


def test_whatever_the_bursts_each_line_is_found_once() -> None:
    rng = Random(SEED)
    for attempt in range(200):
        expected, asked, foreign, bursts = [], [], 0, []
        for number in range(rng.randrange(8)):
            burst = b""
            for _ in range(rng.choice((0, 1, 1, 2, 9))):
                kind = rng.random()
                if kind < 0.6:
                    msg_id = message_id(rng.randrange(1 << 31), rng.randrange(1 << 32))
                    burst += line(
                        msg_id, rng.randrange(10**6), rng.randrange(16, 300), "p" * rng.randrange(1, 9)
                    )
                    expected.append((number, msg_id))
                elif kind < 0.7:
                    asked.append((number, topic := rng.randrange(10**6)))
                    burst += topic_name(topic) + b"\n"
                elif kind < 0.8:
                    burst += rng.choice((b"%! a b -\n", b"%: a 3\n", b"\n"))
                else:
                    burst += (
                        rng.randbytes(rng.randrange(1, 40)).translate(None, b"\n%").rjust(1, b"x") + b"\n"
                    )
                    foreign += 1
            bursts.append(burst)
        found = find_in(*bursts)
        why = f"seed {SEED}, attempt {attempt}"
        assert messages(found) == expected, why
        subscribes = zip(found.subscribe_bursts.tolist(), found.subscribe_topics.tolist(), strict=True)
        assert list(subscribes) == asked, why
        assert found.foreign == foreign, why


def test_ids_are_signed_numbers_of_64_bits() -> None:
    assert find_in(line(message_id(2**31 - 1, 2**32 - 1))).msg_ids.tolist() == [np.iinfo(np.int64).max]
