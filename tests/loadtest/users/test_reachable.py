"""loadtest/users/reachable.py: whether any server answers, on real sockets."""

import socket
from pathlib import Path
from threading import Thread

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


def test_only_a_pong_from_a_server_is_an_answer() -> None:
    """Not a line of another kind, and not the right one from somebody else."""
    for first, asked_itself in ((b"weather rain\n", False), (b"", True)):
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        ):
            for sock in (server, other):
                sock.bind(("127.0.0.1", 0))

            def answer(server: socket.socket, answering: socket.socket, first: bytes) -> None:
                data, source = server.recvfrom(2048)
                nonce = data.split()[1]
                server.sendto(first or b"%: another 0\n", source)
                answering.sendto(b"%%: %b 0\n" % nonce, source)

            answering = server if asked_itself else other
            thread = Thread(target=answer, args=(server, answering, first))
            thread.start()
            within_s = 10.0 if asked_itself else 0.5
            assert any_answers(lab([server.getsockname()]), within_s) is asked_itself
            thread.join()
