"""loadtest/users/reachable.py: whether any server answers, on real sockets."""

import socket
from pathlib import Path
from threading import Thread

import pytest

from kcast.client.cluster import lab
from kcast.loadtest.users.reachable import any_answers
from tests.support.cluster_of_processes import ClusterOfProcesses


def test_one_server_that_answers_is_enough(tmp_path: Path) -> None:
    with ClusterOfProcesses(tmp_path, 3) as servers:
        for name in servers.names[:2]:
            servers.kill(name)
        assert any_answers(servers.cluster, 10.0)
        servers.kill(servers.names[2])
        assert not any_answers(servers.cluster, 0.5)


@pytest.mark.parametrize(
    ("by_server", "by_other", "is_answer"),
    [(b"weather rain\n", b"%: locust 0\n", False), (b"weather rain\n%: locust 0\n", b"", True)],
)
def test_only_a_pong_from_a_server_is_an_answer(by_server: bytes, by_other: bytes, is_answer: bool) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        for sock in (server, other):
            sock.bind(("127.0.0.1", 0))

        def answer() -> None:
            _, source = server.recvfrom(2048)
            server.sendto(by_server, source)
            other.sendto(by_other, source)

        thread = Thread(target=answer)
        thread.start()
        assert any_answers(lab([server.getsockname()]), 10.0 if is_answer else 0.5) is is_answer
        thread.join()
