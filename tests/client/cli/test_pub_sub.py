"""`kcast pub` and `kcast sub`, as processes on clusters of real servers, some of them killed."""

import base64
import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kcast.client.cli import main
from kcast.client.cli.telling import listed_drops
from kcast.client.clusters.view import View
from kcast.client.events import Drop
from kcast.client.messages.lines import room
from kcast.hashring.policy import Policy
from tests.support.checkout import ROOT
from tests.support.cluster_of_processes import KCAST, ClusterOfProcesses, Command
from tests.support.serve_process import NEEDS_IPV6

FILES = ("LICENSE", "README.md", "pubsub/PROTOCOL.md")
TEXT = b"".join((ROOT / name).read_bytes() for name in FILES).splitlines(keepends=True)[:600]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Six servers that all tests of this module may use, and none may kill."""
    with ClusterOfProcesses(tmp_path_factory.mktemp("cluster"), 6) as running:
        yield running


def run(*arguments: str | bytes) -> Result:
    """A command within this process."""
    return CliRunner().invoke(main, [os.fsdecode(argument) for argument in arguments])


def subscriber(cluster: ClusterOfProcesses, *arguments: str, stdout: int = subprocess.PIPE) -> Command:
    return Command("sub", "--cluster", str(cluster.file), *arguments, stdout=stdout)


def publisher(cluster: ClusterOfProcesses, *arguments: str | bytes) -> Command:
    return Command("pub", "--cluster", str(cluster.file), *arguments, stdin=subprocess.PIPE)


def publish(cluster: ClusterOfProcesses, *arguments: str | bytes, stdin: bytes | None = None) -> bytes:
    """Publishes and asserts that it went well; standard output.

    Without anything to read it does so within this process, which spares the time to start one; but JSON is
    written to a descriptor.
    """
    if stdin is None and "--json" not in arguments:
        ended = run("pub", "--cluster", str(cluster.file), *arguments)
        assert ended.exit_code == 0, ended.stderr
        return ended.stdout_bytes
    with publisher(cluster, *arguments) as command:
        command.feed(stdin or b"")
        code, output, errors = command.end()
    assert code == 0, errors
    return output


# --- Addresses that are silent -----------------------------------------------------------------------


@NEEDS_IPV6
def test_a_first_address_that_is_silent_costs_no_message(tmp_path: Path) -> None:
    with ClusterOfProcesses(tmp_path, 3, Policy(3, 2, 3)) as cluster, ExitStack() as stack:
        for _, port in (server.addresses[0] for server in cluster.cluster.servers):
            mute = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
            mute.bind(("::1", port))
        listed = re.sub(r"(?m)^server (\S+):(\d+)", r"server [::1]:\2,\1:\2", cluster.file.read_text())
        cluster.file.write_text(listed)
        with subscriber(cluster, "t", "--count", "7", "--timeout", "20") as sub:
            sub.await_error(b"leased on 3 of 3")
            publish(cluster, "t", "one")
            publish(cluster, "t", "two", "--repeat", "3")
            publish(cluster, "t", "--rate", "2", stdin=b"a\nb\nc\n")
            publish(cluster, "t", stdin=b"d\ne\n")
            assert sub.end()[:2] == (0, b"one\ntwo\na\nb\nc\nd\ne\n")
        for name in cluster.names:
            cluster.kill(name)
        failed = run("pub", "--cluster", str(cluster.file), "t", "x")
        assert failed.exit_code == 1
        for _, port in (server.addresses[0] for server in cluster.cluster.servers):
            assert f"[::1]:{port} and 127.0.0.1:{port}" in failed.stderr


# --- Round trips -------------------------------------------------------------------------------------


def test_a_message_arrives(cluster: ClusterOfProcesses) -> None:
    with subscriber(cluster, "weather/oslo", "--count", "1") as sub:
        sub.await_error(b"kcast sub: leased on 5 of 5\n")
        with publisher(cluster, "weather/oslo", "rain, 4 degrees") as pub:
            assert pub.end() == (0, b"", b"kcast pub: published 1 message: receipts from 3 servers each\n")
        assert sub.end() == (0, b"rain, 4 degrees\n", b"kcast sub: leased on 5 of 5\n")


def test_topics_stand_before_payloads(cluster: ClusterOfProcesses) -> None:
    with subscriber(cluster, "--count", "2", "a", "-t", "b c") as sub:
        sub.await_error(b"leased on 5 of 5 for a\n")
        sub.await_error(b"leased on 5 of 5 for b c\n")
        publish(cluster, "a", "1")
        sub.await_lines(1)
        publish(cluster, "b c", "2")
        assert sub.end()[:2] == (0, b"a\t1\nb c\t2\n")


def test_times_stand_before_messages_and_before_what_is_said_of_leases(cluster: ClusterOfProcesses) -> None:
    before = time.time()
    with subscriber(cluster, "timed", "--time", "--json", "--count", "1") as wrong:
        assert wrong.end()[0] == 2
    with (
        subscriber(cluster, "timed", "--time", "-v", "-C", "1") as sub,
        subscriber(cluster, "timed", "--json", "-C", "1") as as_json,
    ):
        sub.await_error(b"leased on 5 of 5\n")
        as_json.await_error(b"leased on 5 of 5\n")
        told = json.loads(publish(cluster, "timed", "--json", "now"))
        code, output, errors = sub.end()
        at, topic, payload = output.decode().rstrip("\n").split("\t")
        assert (code, topic, payload) == (0, "timed", "now")
        said_at, _, said = errors.decode().partition(" ")
        assert said == "kcast sub: leased on 5 of 5\n"
        times = [said_at, at, json.loads(as_json.end()[1])["time"], told["time"]]
    for text in times:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
        assert before - 1 < datetime.fromisoformat(text).timestamp() < time.time() + 1


def test_the_options_of_mosquitto_do_the_same(cluster: ClusterOfProcesses) -> None:
    form = r"%t: %p (%l)\0"
    with subscriber(cluster, "-t", "mosquitto", "-C", "5", "-W", "20", "-N", "-F", form) as sub:
        sub.await_error(b"leased on 5 of 5\n")
        publish(cluster, "-t", "mosquitto", "-m", "-5")
        sub.await_output(b"mosquitto: -5 (2)\0")
        publish(cluster, "mosquitto", "-n")
        sub.await_output(b"mosquitto:  (0)\0")
        publish(cluster, "-t", "mosquitto", "-s", stdin=b"two\nlines\n")
        sub.await_output(b"mosquitto: two\\nlines\\n (10)\0")
        publish(cluster, "-t", "mosquitto", "-l", stdin=b"a line\n")
        sub.await_output(b"mosquitto: a line (6)\0")
        file = cluster.file.parent / "message"
        file.write_bytes(b"\x00\nfile")
        publish(cluster, "-t", "mosquitto", "-f", str(file))
        code, output, _ = sub.end()
        assert (code, output.endswith(b"\0mosquitto: \\x00\\nfile (6)\0"), output.count(b"mosquitto: ")) == (
            0,
            True,
            5,
        )


def test_who_means_a_pattern_hears_at_once_that_there_are_none(cluster: ClusterOfProcesses) -> None:
    topic = "weather/#"
    with (
        subscriber(cluster, topic, "-W", "0.5") as sub,
        subscriber(cluster, topic, "-W", "0.5", "--literal") as quiet,
    ):
        assert sub.end() == (
            0,
            b"",
            f"kcast sub: {topic} is one topic, and no pattern: topics are exact here. Name each topic, or "
            "publish on a common one too (docs/wildcards.md); --literal if it is meant\n"
            "kcast sub: leased on 5 of 5\n".encode(),
        )
        assert quiet.end() == (0, b"", b"kcast sub: leased on 5 of 5\n")


def test_json_has_stable_keys(cluster: ClusterOfProcesses) -> None:
    with subscriber(cluster, "--json", "--count", "3", "json") as sub:
        sub.await_error(b"leased on")
        told = json.loads(publish(cluster, "json", "--json", "h\u00e6\x1b\n"))
        sub.await_lines(1)
        publish(cluster, "json", b"\xff\xfe")
        sub.await_lines(2)
        publish(cluster, "json", "--raw", "%20 as it is")
        code, output, _ = sub.end()
    assert code == 0
    assert output.isascii() and b"\x1b" not in output
    enveloped, binary, raw = map(json.loads, output.splitlines())
    assert set(told) == {"time", "line", "topic", "seq", "receipts", "audience", "servers"}
    assert told["audience"] == 1
    assert (told["line"], told["topic"], told["seq"], told["receipts"]) == (None, "json", 1, 3)
    assert set(told["servers"].values()) == {"receipt"} and set(told["servers"]) <= set(cluster.names)
    plain = {"time", "topic", "payload", "publisher", "seq", "attributes", "server"}
    assert set(enveloped) == plain | {"sender", "group", "sent_at"}
    assert (enveloped["sender"], enveloped["group"], enveloped["sent_at"]) == (None, None, None)
    assert (enveloped["topic"], enveloped["payload"], enveloped["seq"]) == ("json", "h\u00e6\x1b\n", 1)
    assert enveloped["server"] in cluster.names and len(enveloped["publisher"]) == 11
    assert "payload" not in binary
    assert base64.b64decode(binary["payload_base64"]) == b"\xff\xfe"
    assert (raw["payload"], raw["publisher"], raw["seq"]) == ("%20 as it is", None, None)


def test_a_line_feed_makes_no_second_message(cluster: ClusterOfProcesses) -> None:
    with (
        subscriber(cluster, "lines", "--count", "1") as one,
        subscriber(cluster, "lines", "--count", "1", "--raw") as raw,
    ):
        one.await_error(b"leased on")
        raw.await_error(b"leased on")
        publish(cluster, "lines", b"two\nlines \\ \xff\r")
        assert one.end()[:2] == (0, b"two\\nlines \\ \xff\r\n")
        assert raw.end()[:2] == (0, b"two\nlines \\ \xff\r\n")


def test_lines_of_any_bytes_arrive_as_they_are(cluster: ClusterOfProcesses) -> None:
    data = b"\n\n" + bytes(byte for byte in range(256) if byte != 0x0A) + b"\r\n%41 %\nno line feed"
    with subscriber(cluster, "binary", "--count", "5") as sub:
        sub.await_error(b"leased on")
        publish(cluster, "binary", "-l", stdin=data)
        assert sub.end()[:2] == (0, data + b"\n")


LARGE = b"x\0" * 1000


@pytest.mark.parametrize(
    ("data", "options", "messages", "complaint"),
    [
        (b"a\n\0b\nc", [], [b"a\\n\0b\\nc"], b""),
        (b"a\n\0b\nc", ["-l"], [b"a", b"\0b", b"c"], b""),
        (b"no line feed", [], [b"no line feed"], b""),
        (b"a\nb\0" + LARGE, [], [], b"2004 bytes"),
        (b"x" * 2000, [], [], b"it has no LF, so all of it is one message, as with -f"),
    ],
)
def test_what_is_no_text_is_one_message(
    cluster: ClusterOfProcesses, data: bytes, options: list[str], messages: list[bytes], complaint: bytes
) -> None:
    with subscriber(cluster, "file") as sub, publisher(cluster, "file", *options) as pub:
        sub.await_error(b"leased on 5 of 5\n")
        pub.feed(data)
        code, _, errors = pub.end()
        assert (code, complaint in errors, b"as with -f" in errors) == (
            bool(complaint),
            True,
            bool(complaint),
        )
        sub.await_lines(len(messages))
        assert sub.output == b"".join(message + b"\n" for message in messages)


def test_a_nul_after_lines_ends_it_and_a_slow_first_line_stays_one(cluster: ClusterOfProcesses) -> None:
    with subscriber(cluster, "slow2") as sub, publisher(cluster, "slow2") as pub:
        sub.await_error(b"leased on 5 of 5\n")
        pub.feed(b"begun", close=False)
        pub.feed(b" and ended\n", close=False)
        sub.await_lines(1)
        pub.feed(b"no \0 text\n")
        code, _, errors = pub.end()
        assert (code, sub.output) == (1, b"begun and ended\n")
        assert b"NUL byte in line 2" in errors and b"-f FILE" in errors
        with publisher(cluster, "slow2") as fast:
            fast.feed(b"".join(b"%029d\n" % number for number in range(3000)) + b"\0\n")
            code, _, errors = fast.end()
        found = re.search(rb"NUL byte in line (\d+)", errors)
        assert code == 1 and found is not None
        sub.await_lines(int(found[1]))  # with the one of before


def test_lines_with_topics_and_topics_from_a_file(cluster: ClusterOfProcesses) -> None:
    file = cluster.file.parent / "topics"
    file.write_bytes(b"\xef\xbb\xbfs/0\r\n\na b\r\n" + b"".join(b"s/%d\n" % each for each in range(1, 299)))
    data = b"s/0 rain, 4 degrees\na%20b 5 %\nno-space\n 6\ns/298 \n"
    with subscriber(cluster, "--topics-from", str(file), "-C", "3") as sub:
        sub.await_error(b"kcast sub: leased on 5 of 5 servers for 300 topics\n")
        with publisher(cluster, "--lines", "topic-message") as pub:
            pub.feed(data)
            code, _, errors = pub.end()
        ended, output, told = sub.end()
    assert (ended, sorted(output.splitlines()), told.count(b"\n")) == (
        0,
        [b"a b\t5 %", b"s/0\train, 4 degrees", b"s/298\t"],
        1,
    )
    assert code == 1 and b"2 lines malformed, not sent" in errors
    assert [line.split(b": ")[1] for line in errors.splitlines()[:2]] == [b"line 3", b"line 4"]
    file.write_bytes(b"good\n" + b"x" * 256 + b"\n")
    wrong = run("sub", "--cluster", str(cluster.file), "--topics-from", str(file)).stderr
    assert "topic too long" in wrong


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_servers_that_refuse_for_their_rate_slow_it_and_lose_nothing(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    data = b"".join(b"%d\n" % number for number in range(2000))
    limits = ["--publish-rate", "500"]
    with ExitStack() as stack:
        cluster = stack.enter_context(ClusterOfProcesses(tmp_path, 2, Policy(2, 2, 2), options=limits))
        sub = stack.enter_context(subscriber(cluster, "t", "-C", "2000"))
        sub.await_error(b"leased on 2 of 2\n")
        pub = stack.enter_context(publisher(cluster, "t", *options))
        pub.feed(data)
        code, _, errors = pub.end()
        assert (code, errors) == (0, b"kcast pub: published 2000 messages: receipts from 2 servers each\n")
        ended, output, _ = sub.end()
    assert ended == 0 and sorted(output.splitlines()) == sorted(data.splitlines())


def test_repeats_are_one_message(cluster: ClusterOfProcesses) -> None:
    with subscriber(cluster, "repeats", "--count", "2") as sub:
        sub.await_error(b"leased on")
        with publisher(cluster, "repeats", "--repeat", "2", "one") as pub:
            code, _, errors = pub.end()
        assert (code, errors) == (0, b"kcast pub: published 1 message: receipts from 5 servers each\n")
        publish(cluster, "repeats", "two")
        assert sub.end()[:2] == (0, b"one\ntwo\n")


def test_the_cluster_file_may_be_named_by_the_environment(cluster: ClusterOfProcesses) -> None:
    result = CliRunner().invoke(main, ["pub", "t", "m"], env={"KCAST_CLUSTER": str(cluster.file)})
    assert (result.exit_code, result.stderr) == (
        0,
        "kcast pub: published 1 message: receipts from 3 servers each; nobody is subscribed\n",
    )


def test_who_publishes_to_nobody_is_told_so(cluster: ClusterOfProcesses) -> None:
    """The exit code is that of receipts all the same."""
    with publisher(cluster, "nobody", "--json") as pub:
        pub.feed(b"one\ntwo\n", close=False)
        pub.await_lines(2)
        with subscriber(cluster, "nobody", "--count", "1") as sub:
            sub.await_error(b"leased on 5 of 5\n")
            pub.feed(b"three\n")
            code, output, errors = pub.end()
            assert sub.end()[0] == 0
    assert [json.loads(line)["audience"] for line in output.splitlines()] == [0, 0, 1]
    assert (code, errors) == (
        0,
        b"kcast pub: published 3 messages: receipts from 3 servers each; 2 of them while nobody was "
        b"subscribed\n",
    )


def test_servers_that_hide_the_audience_say_nothing_of_it(tmp_path: Path) -> None:
    with ClusterOfProcesses(tmp_path, 3, Policy(3, 3, 3), options=["--hide-audience"]) as cluster:
        with publisher(cluster, "t", "x") as pub:
            assert pub.end() == (0, b"", b"kcast pub: published 1 message: receipts from 3 servers each\n")
        assert json.loads(publish(cluster, "t", "--json", "x"))["audience"] is None


def test_a_line_goes_out_before_the_next_is_there(cluster: ClusterOfProcesses) -> None:
    with subscriber(cluster, "slow") as sub, publisher(cluster, "slow") as pub:
        sub.await_error(b"leased on")
        for number in range(1, 4):
            pub.feed(b"line\n", close=False)
            sub.await_lines(number)


def test_a_slow_reader_loses_nothing(cluster: ClusterOfProcesses) -> None:
    """More than a pipe holds waits in the subscriber, which must not stop to renew and receive."""
    data = b"".join(b"%04d %s\n" % (number, b"x" * 95) for number in range(1500))
    with subscriber(cluster, "flood", "--count", "1500") as sub:
        sub.await_error(b"leased on")
        publish(cluster, "flood", "--rate", "0", stdin=data)
        code, output, errors = sub.end()
    assert (code, output, errors) == (0, data, b"kcast sub: leased on 5 of 5\n")


# --- Servers killed ----------------------------------------------------------------------------------


def test_a_text_arrives_complete_while_servers_are_killed(tmp_path: Path) -> None:
    with ClusterOfProcesses(tmp_path, 6) as cluster, ExitStack() as stack:
        sub = stack.enter_context(subscriber(cluster, "text", "--count", "600"))
        sub.await_error(b"leased on 5 of 5\n")
        pub = stack.enter_context(publisher(cluster, "text"))
        pub.feed(b"".join(TEXT[:300]), close=False)
        sub.await_lines(100)
        for name in cluster.names[1:3]:
            cluster.kill(name)
        pub.feed(b"".join(TEXT[300:]))
        code, _, errors = pub.end()
        assert code == 0, errors
        assert errors.startswith(b"kcast pub: published 600 messages: receipts from ")
        code, output, errors = sub.end()
    assert code == 0, errors
    assert sorted(output.splitlines(keepends=True)) == sorted(TEXT)


def test_a_server_that_comes_up_later_answers_and_one_that_was_there_answers_again(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(ClusterOfProcesses(tmp_path, 2, Policy(2, 2, 2), ttl_s=2))
        there, later = cluster.names
        cluster.kill(later)
        sub = stack.enter_context(subscriber(cluster, "t"))
        sub.await_error(b"kcast sub: no answer from %s\n" % later.encode())
        cluster.restart(later)
        sub.await_error(b"kcast sub: %s answers\n" % later.encode())
        for name in (there, later):
            cluster.kill(name)
            sub.await_error(b"kcast sub: lost %s: it does not answer\n" % name.encode())
            sub.await_error(b"kcast sub: leased on 1 of 2\n")
            cluster.restart(name)
            sub.await_error(b"kcast sub: %s answers again\n" % name.encode())


# --- Ends --------------------------------------------------------------------------------------------


def test_a_timeout_before_the_count_is_a_failure(cluster: ClusterOfProcesses) -> None:
    with ExitStack() as stack:
        pub = stack.enter_context(publisher(cluster, "count", "--json"))
        pub.feed(b"before\n", close=False)
        pub.await_lines(1)  # so that it is quick once the time runs
        sub = stack.enter_context(subscriber(cluster, "count", "--count", "3", "--timeout", "3"))
        sub.await_error(b"leased on")
        pub.feed(b"m\n")
        assert sub.end() == (
            1,
            b"m\n",
            b"kcast sub: leased on 5 of 5\nkcast sub: 1 of 3 messages came within 3 s\n",
        )


def test_a_timeout_without_a_count_is_an_end(cluster: ClusterOfProcesses) -> None:
    with subscriber(cluster, "timeout", "--timeout", "2") as sub:
        code, output, errors = sub.end()
    assert (code, output) == (0, b""), errors


def test_no_server_answers(tmp_path: Path) -> None:
    with ClusterOfProcesses(tmp_path, 3, Policy(3, 3, 3)) as cluster:
        for name in cluster.names:
            cluster.kill(name)
        order = ", ".join(server.name for server in View(cluster.cluster).servers(b"t"))
        why = f"no server of lab answers (tried {order}); 'kcast doctor' finds out why".encode()
        with publisher(cluster, "t", "m") as pub:
            assert pub.end() == (1, b"", b"kcast pub: 1 message got no receipt: %s\n" % why)
        with publisher(cluster, "t") as pub:
            pub.feed(b"line\n" * 10_000)
            code, _, errors = pub.end()
        assert code == 1
        complaint = rb"kcast pub: \d+ messages got no receipt: %s; the rest of the input was not read\n"
        assert re.fullmatch(complaint % re.escape(why), errors)
        with subscriber(cluster, "t") as forever, subscriber(cluster, "t", "--timeout", "0.5") as sub:
            assert sub.end() == (1, b"", b"kcast sub: leased on 0 of 3\nkcast sub: %s\n" % why)
            with subscriber(cluster, "t", "--timeout", "0.5", "--count", "1") as counting:
                assert counting.end() == (
                    1,
                    b"",
                    b"kcast sub: leased on 0 of 3\nkcast sub: 0 of 1 message came within 0.5 s: %s\n" % why,
                )
            forever.await_error(b"kcast sub: %s; still trying\n" % why)
            *lost, last = forever.errors.splitlines()
            assert last == b"kcast sub: %s; still trying" % why
            # They were never there, so they cannot be lost.
            assert sorted(lost) == sorted(
                b"kcast sub: no answer from %s" % name.encode() for name in cluster.names
            )
            assert forever.process.poll() is None


def test_a_publisher_says_once_that_no_server_answers_any_more(tmp_path: Path) -> None:
    with (
        ClusterOfProcesses(tmp_path, 2, Policy(2, 2, 2)) as cluster,
        publisher(cluster, "t", "--json") as pub,
    ):
        pub.feed(b"one\n", close=False)
        pub.await_lines(1)
        for name in cluster.names:
            cluster.kill(name)
        pub.feed(b"two\n", close=False)
        pub.await_error(b"; still trying\n")
        pub.feed(b"three\n")
        code, _, errors = pub.end()
    assert code == 1
    assert errors.count(b"; still trying\n") == 1
    assert b"2 of 3 messages got no receipt" in errors


def test_a_reader_that_leaves_ends_it_quietly(cluster: ClusterOfProcesses) -> None:
    """As `kcast sub | head -1`: at once, without waiting for a second message."""
    reading, writing = os.pipe()
    with subscriber(cluster, "head", stdout=writing) as sub, os.fdopen(reading, "rb", 0) as reader:
        os.close(writing)
        sub.await_error(b"leased on")
        publish(cluster, "head", "m")
        assert reader.read(2) == b"m\n"
        reader.close()
        assert sub.end() == (0, b"", b"kcast sub: leased on 5 of 5\n")


def test_the_reader_of_a_socket_or_a_terminal_leaves_too(cluster: ClusterOfProcesses) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tcp = socket.create_connection(listener.getsockname()), listener.accept()[0]
    tcp[1].send(b"what nobody reads")
    pairs = [tuple(each.detach() for each in pair) for pair in (tcp, socket.socketpair())]
    for reading, writing in (*pairs, pty.openpty()):
        with subscriber(cluster, "head", stdout=writing) as sub:
            os.close(writing)
            sub.await_error(b"leased on")
            assert sub.process.poll() is None
            os.close(reading)
            assert sub.end()[0] == 0


def test_sigterm_is_as_ctrl_c(cluster: ClusterOfProcesses) -> None:
    """Also where Ctrl-C is ignored, as in the background of a script."""
    for program in (KCAST, ("sh", "-c", "trap '' INT; exec \"$@\"", "sh", *KCAST)):
        options = "--cluster", str(cluster.file), "ended"
        with (
            Command("sub", *options, program=program) as sub,
            Command("pub", *options, "--json", program=program, stdin=subprocess.PIPE) as pub,
        ):
            sub.await_error(b"leased on 5 of 5")
            pub.feed(b"x\n", close=False)
            pub.await_lines(1)
            sub.await_lines(1)
            for command in (pub, sub):
                command.process.send_signal(signal.SIGTERM)
            code, _, errors = pub.end()
            assert (code, sub.end()[0]) == (143, 143)
            assert errors == b"kcast pub: published 1 message: receipts from 3 servers each\n"


def test_a_reader_that_leaves_before_the_count_is_a_failure(cluster: ClusterOfProcesses) -> None:
    reading, writing = os.pipe()
    with subscriber(cluster, "head", "--count", "2", stdout=writing) as sub:
        os.close(writing)
        sub.await_error(b"leased on")
        os.close(reading)
        assert sub.end() == (1, b"", b"kcast sub: leased on 5 of 5\n")


def test_ctrl_c_ends_a_subscriber(cluster: ClusterOfProcesses) -> None:
    with subscriber(cluster, "interrupted", "--hold", "10") as sub:
        sub.await_error(b"leased on")
        publish(cluster, "interrupted", "m")
        sub.await_lines(1)
        sub.process.send_signal(signal.SIGINT)
        assert sub.end() == (130, b"m\n", b"kcast sub: leased on 5 of 5\n")


def test_ctrl_c_ends_a_publisher(cluster: ClusterOfProcesses) -> None:
    with subscriber(cluster, "interrupted2") as sub, publisher(cluster, "interrupted2") as pub:
        sub.await_error(b"leased on")
        pub.feed(b"one\n", close=False)
        sub.await_lines(1)
        pub.process.send_signal(signal.SIGINT)
        code, output, errors = pub.end()
    assert (code, output) == (130, b"")
    assert errors in (
        b"kcast pub: published 1 message: receipts from 3 servers each\n",
        b"kcast pub: 1 message had no receipt yet\n",  # a copy may be here before the last receipt
    )


# --- Terminals ---------------------------------------------------------------------------------------


def test_pipes_get_bytes_unless_a_format_is_asked_for(cluster: ClusterOfProcesses) -> None:
    printed = {
        (): b"a\x1b[2Jb\\nc\td\xc2\x9b\xff\n",
        ("--raw",): b"a\x1b[2Jb\nc\td\xc2\x9b\xff\n",
        ("--format", "%p"): b"a\\x1b[2Jb\\nc\\td\\x9b\\xff\n",
    }
    with ExitStack() as stack:
        subs = [stack.enter_context(subscriber(cluster, "pipe", "-C", "1", *options)) for options in printed]
        for sub in subs:
            sub.await_error(b"leased on")
        publish(cluster, "pipe", b"a\x1b[2Jb\nc\td\xc2\x9b\xff")
        assert [sub.end()[:2] for sub in subs] == [(0, data) for data in printed.values()]


def test_control_characters_do_not_reach_a_terminal(cluster: ClusterOfProcesses) -> None:
    for options, shown in (
        ((), b"a\\x1b[2Jb\\nc\\td\\x9b\\x7f\xc3\xa6\\xff\n"),
        (("--raw",), b"a\\x1b[2Jb\nc\\td\\x9b\\x7f\xc3\xa6\\xff\n"),
    ):
        master, slave = pty.openpty()
        with ExitStack() as stack:
            terminal = stack.enter_context(os.fdopen(master, "rb", 0))
            sub = stack.enter_context(subscriber(cluster, "terminal", "--count", "1", *options, stdout=slave))
            os.close(slave)
            sub.await_error(b"leased on")
            publish(cluster, "terminal", b"a\x1b[2Jb\nc\td\xc2\x9b\x7f\xc3\xa6\xff")
            seen = b""
            while not seen.endswith(b"\\xff\r\n"):
                seen += terminal.read(1000)
            assert sub.end()[0] == 0
        assert seen.replace(b"\r\n", b"\n") == shown


# --- Bad input ---------------------------------------------------------------------------------------


TOO_LARGE = (
    "message too large: %d bytes. The topic leaves room for %d bytes of text, of which %% and control "
    "bytes count three times, or for any %d; send less, or split it"
)


def test_a_message_too_large_is_told_what_fits(cluster: ClusterOfProcesses) -> None:
    for options, fits in (((), room(b"t", seq=1)), (("--raw",), room(b"t", seq=None))):
        told = run("pub", "--cluster", str(cluster.file), "t", "x" * 2000, *options)
        assert (told.exit_code, told.stderr) == (1, f"kcast pub: {TOO_LARGE % (2000, *fits)}\n")


def test_lines_too_large_are_told_and_the_rest_goes_on(cluster: ClusterOfProcesses) -> None:
    data = b"first\n" + b"x" * 1500 + b"\n" + b"y" * 200_000 + b"\nlast"
    with subscriber(cluster, "large", "--count", "2") as sub:
        sub.await_error(b"leased on")
        with publisher(cluster, "large") as pub:
            pub.feed(data)
            code, _, errors = pub.end()
        assert sub.end()[:2] == (0, b"first\nlast\n")
    second, third, *summary = errors.decode().splitlines()
    assert second == "kcast pub: line 2: " + TOO_LARGE % (1500, *room(b"large", seq=2))
    assert third == "kcast pub: line 3: " + TOO_LARGE % (200_000, *room(b"large"))
    assert summary == [
        "kcast pub: published 2 messages: receipts from 3 servers each",
        "kcast pub: 2 lines too large, not sent",
    ]
    assert code == 1


HEADER = "kcast-cluster 1\n"
SERVER = "server 127.0.0.1:7401\n"


VERBS = (("pub", "t"), ("sub", "t"), ("where", "t"), ("ping",))


def test_a_wrong_cluster_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.cluster"
    for text, complaint in {
        b"": ":1: expected 'kcast-cluster 1' as the first line, but there is none",
        b"servers\n": ":1: expected 'kcast-cluster 1' as the first line, not 'servers'",
        b"\xff\xfe\x00": ":1: not UTF-8 text; is it a cluster file?",
        f"{HEADER}server 127.0.0.1\n".encode(): ":2: expected IP:PORT or [IPv6]:PORT, not '127.0.0.1'",
        f"{HEADER}{SERVER}{SERVER}".encode(): ":3: 127.0.0.1:7401 stands in line 2 already",
        f"{HEADER}sevrer 127.0.0.1:1\n".encode(): ":2: expected one of name, policy, ",
    }.items():
        file.write_bytes(text)
        told = run("where", "--cluster", str(file), "t")
        assert told.stderr.startswith(f"kcast where: {file}{complaint}")
        assert (told.exit_code, told.stdout, told.stderr.count("\n")) == (1, "", 1)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "no"
    for verb, *arguments in VERBS:
        told = run(verb, "--cluster", str(missing), *arguments)
        assert (told.exit_code, told.stderr) == (1, f"kcast {verb}: {missing}: No such file or directory\n")
        result = CliRunner().invoke(main, [verb, *arguments], env={"KCAST_CLUSTER": str(missing)})
        assert result.stderr == f"kcast {verb}: KCAST_CLUSTER: {missing}: No such file or directory\n"
    assert (
        run("where", "--cluster", str(tmp_path), "t").stderr == f"kcast where: {tmp_path}: Is a directory\n"
    )


def test_no_cluster_file_is_one_line() -> None:
    for verb, *arguments in VERBS:
        result = CliRunner().invoke(main, [verb, *arguments], env={"KCAST_CLUSTER": None})
        assert result.stderr == (
            f"kcast {verb}: no cluster: give --cluster FILE, set KCAST_CLUSTER to it, or name it with 'kcast "
            "context add'. A cluster file begins with the line 'kcast-cluster 1'; then each server has a "
            "line 'server IP:PORT'. If all servers are on one machine, add a line 'lab'\n"
        )
        assert result.exit_code == 2


ONE_HOST = "server 127.0.0.1:1\nserver 127.0.0.1:2\nserver 127.0.0.1:3\n"


def test_too_few_hosts_for_the_policy_are_told(tmp_path: Path) -> None:
    for facts, warning in (
        (
            ONE_HOST,
            "3 servers on 1 host count as one (the policy wants 5 hosts, there is 1); "
            "for several hosts on one machine add a line 'lab'",
        ),
        (
            "lab\n" + ONE_HOST,
            "the policy wants 5 hosts, there are 3; without a line 'policy' it is 5/3/5, and for 3 hosts you "
            "can write 'policy k=3 publish=2 subscribe=3'",
        ),
        ("policy k=1 publish=1 subscribe=1\n" + ONE_HOST, None),
        ("policy scheme=S\n" + ONE_HOST, None),
    ):
        file = tmp_path / "few.txt"
        file.write_text(HEADER + facts)
        errors = run("ping", "--cluster", str(file), "--count", "1", "--timeout", "0.1").stderr.splitlines()
        expected = [] if warning is None else [f"kcast ping: {file}: {warning}"]
        assert errors[: len(expected)] == expected
        assert "the policy wants" not in "".join(errors[len(expected) :])


def test_a_topic_that_is_not_allowed_is_one_line() -> None:
    too_long = "topic too long: 258 bytes encoded, at most 255 (spaces, % and bytes outside printable ASCII "
    for verb in ("pub", "sub", "where"):
        for topic, complaint in (
            ("", "a topic must not be empty"),
            ("\u00e6" * 43, f"{too_long}take 3 each)"),
        ):
            result = run(verb, "--cluster", "not-read-yet", topic)
            assert (result.exit_code, result.stdout) == (1, "")
            assert result.stderr == f"kcast {verb}: {complaint}\n"


def test_input_that_cannot_be_read_is_one_line(cluster: ClusterOfProcesses, tmp_path: Path) -> None:
    with (
        (tmp_path / "only-for-writing").open("wb") as file,
        Command("pub", "--cluster", str(cluster.file), "t", stdin=file) as pub,
    ):
        assert pub.end() == (1, b"", b"kcast pub: standard input: Bad file descriptor\n")


def test_help_has_an_example() -> None:
    for verb in ("pub", "sub", "where", "ping", "plan", "health", "doctor", "top"):
        told = run(verb, "--help")
        assert told.exit_code == 0
        assert "Example" in told.stdout and f"  kcast {verb}" in told.stdout


def test_only_what_is_lost_by_being_dropped_is_told() -> None:
    normal = {Drop.UNASKED_REPLY: 3, Drop.NOT_SUBSCRIBED: 5, Drop.SLOW_CONSUMER: 0}
    assert listed_drops(normal, 0) == ""
    lost = normal | {Drop.SLOW_CONSUMER: 2, Drop.UNKNOWN_SOURCE: 1}
    assert listed_drops(lost, 4) == "receive-buffer=4 slow-consumer=2 unknown-source=1"
