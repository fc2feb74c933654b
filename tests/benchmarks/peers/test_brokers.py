"""What is said to brokers, and what is heard from them."""

import socket
import threading
from collections.abc import Callable

import pytest

from tests.benchmarks.peers.mqtt import Mqtt
from tests.benchmarks.peers.nats import Nats
from tests.benchmarks.peers.resp import Redis
from tests.benchmarks.peers.session import Failed
from tests.benchmarks.peers.streams import Broker, await_question, greet
from tests.benchmarks.peers.workloads import LAST, SAMPLED, Ring, Workload, payload

BROKERS: list[Broker] = [Nats(), Redis(), Mqtt()]
TOPICS = [b"t00001", b"t00002"]

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> "Pair":
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    theirs.settimeout(5)
    return ours, theirs


def test_publishes_of_nats() -> None:
    assert Nats().publish(b"t00001", b"ab") == b"PUB t00001 2\r\nab\r\n"
    assert Nats().copy(b"t00001", b"ab") == b"MSG t00001 00001 2\r\nab\r\n"
    (greeting,) = Nats().greetings(TOPICS)
    assert greeting.endswith(b"SUB t00001 00001\r\nSUB t00002 00002\r\nPING\r\n")


def test_publishes_of_redis() -> None:
    redis = Redis()
    assert redis.publish(b"t00001", b"ab") == b"*3\r\n$7\r\nPUBLISH\r\n$6\r\nt00001\r\n$2\r\nab\r\n"
    assert redis.copy(b"t00001", b"ab") == b"*3\r\n$7\r\nmessage\r\n$6\r\nt00001\r\n$2\r\nab\r\n"
    assert redis.answer(TOPICS, 0) == b"*3\r\n$9\r\nsubscribe\r\n$6\r\nt00002\r\n:2\r\n"
    assert redis.greetings(())[-1] == b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n"


def test_packets_of_mqtt() -> None:
    mqtt = Mqtt()
    assert mqtt.publish(b"t00001", b"ab") == b"\x30\x0a\x00\x06t00001ab"
    # A length of 200 takes two digits, the first with the bit that says so.
    assert mqtt.publish(b"t00001", b"." * 192)[:3] == b"\x30\xc8\x01"
    connect, subscribe = mqtt.greetings([b"t00001"])
    assert connect == b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"
    assert subscribe == b"\x82\x0b\x00\x01\x00\x06t00001\x00"
    assert mqtt.answer([b"t00001"], 1) == b"\x90\x03\x00\x01\x00"


@pytest.mark.parametrize("size_bytes", [16, 100, 1000])
@pytest.mark.parametrize("broker", BROKERS, ids=lambda broker: type(broker).__name__)
def test_all_frames_are_equally_long_and_the_marks_are_only_in_payloads(
    broker: Broker, size_bytes: int
) -> None:
    workload = Workload(1000, 100, 10, size_bytes=size_bytes)
    assert Ring(workload, broker.publish)  # which refuses others
    plain = payload(size_bytes)
    copies = [broker.copy(workload.topic(number), plain) for number in range(1000)]
    assert len({len(copy) for copy in copies}) == 1
    assert all(copy.count(LAST) == 1 and SAMPLED not in copy for copy in copies)


def answer_in_pieces(
    sock: socket.socket, pieces: list[bytes], *, closes: bool = False
) -> Callable[[], bytes]:
    """Sends each piece when something has been heard. The function waits, and returns all that was heard."""
    heard: list[bytes] = []

    def run() -> None:
        for piece in pieces:
            heard.append(sock.recv(65_536))
            for byte in piece:
                sock.send(bytes((byte,)))
        if closes:
            sock.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> bytes:
        thread.join(5)
        return b"".join(heard)

    return wait


@pytest.mark.world
@pytest.mark.parametrize("topics", [TOPICS, []], ids=["subscriber", "publisher"])
@pytest.mark.parametrize("broker", BROKERS, ids=lambda broker: type(broker).__name__)
def test_a_greeting_waits_for_each_answer(pair: Pair, broker: Broker, topics: list[bytes]) -> None:
    ours, theirs = pair
    greetings = broker.greetings(topics)
    answers = [broker.answer(topics, step) for step in range(len(greetings))]
    heard = answer_in_pieces(theirs, [answer for answer in answers if answer])
    with ours, theirs:
        greet(ours, broker, topics)
    assert b"".join(greetings).startswith(heard())


@pytest.mark.world
def test_a_refused_greeting_fails_with_what_was_said(pair: Pair) -> None:
    ours, theirs = pair
    answer_in_pieces(theirs, [b"-ERR max number of clients reached\r\n"], closes=True)
    with ours, pytest.raises(Failed, match="max number of clients"):
        greet(ours, Redis(), TOPICS)


@pytest.mark.world
def test_what_nats_asks_is_answered(pair: Pair) -> None:
    ours, theirs = pair
    with ours, theirs:
        theirs.send(b"PING\r\n")
        await_question(ours, Nats())
        assert theirs.recv(100) == b"PONG\r\n"


@pytest.mark.world
def test_another_question_fails(pair: Pair) -> None:
    ours, theirs = pair
    with ours, theirs:
        theirs.send(b"-ERR 'Authorization Violation'\r\n")
        with pytest.raises(Failed, match="Authorization"):
            await_question(ours, Nats())
