"""`kcast servers witness`, as a command and as real processes; seven of them, with a quorum of five."""

import signal
from contextlib import ExitStack, closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from click.testing import CliRunner, Result

from kcast.client.cli import main
from kcast.client.cli.servers.witness import Following
from kcast.client.trust.forms.note import SigningKey, VerifierKey
from kcast.client.trust.forms.quorum import PolicyReader
from kcast.client.trust.publisher.cosigning import Asked, collect
from kcast.client.trust.witness.witness import Witness
from kcast.client.trust.witness.witnessing import WitnessCore
from tests.support.handmade_log import ORIGIN, HandmadeLog
from tests.support.lists import LOG as LOG_KEY
from tests.support.lists import OWNERS, WITNESSES, Lists
from tests.support.witness_process import WAIT_S, WitnessProcess

pytestmark = pytest.mark.world

LOG = HandmadeLog(50)
VKEY = str(LOG_KEY.verifier)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["servers", "witness", *arguments])


# --- The command -------------------------------------------------------------------------------------


def test_without_a_log_it_makes_its_key_and_says_the_line_for_a_trust_document(tmp_path: Path) -> None:
    arguments = ("w0.example.net", "--state", str(tmp_path / "w0"))
    first, second = run(*arguments), run(*arguments, "--url", "https://w0.example.net/kcast")
    assert (first.exit_code, second.exit_code) == (0, 0)
    word, name, vkey, url = first.stdout.split()
    assert (word, name, url) == ("witness", "w0.example.net", "http://127.0.0.1:7480")
    assert VerifierKey.parse(vkey).name == "w0.example.net"
    assert second.stdout.split() == ["witness", name, vkey, "https://w0.example.net/kcast"]
    assert first.stderr == (
        "kcast servers witness: the line is for a trust document; give --log VKEY to run the witness\n"
    )
    # The line is one that a trust document takes.
    reader = PolicyReader()
    for line in (f"log {VKEY}", first.stdout.removesuffix("\n"), "quorum w0.example.net"):
        reader.read(line.split(" "))
    assert reader.policy().needed == 1


def test_its_state_is_kept_where_state_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run("example.net/w 0".replace(" ", ""))
    assert (tmp_path / "kcast/witness/example.net%2Fw0/example.net%2Fw0.pem").is_file()


@pytest.mark.parametrize(
    ("arguments", "words", "exit_code"),
    [
        (("a+b",), "give a name without spaces and '+', such as w0.example.net", 2),
        (("w0", "--log", "x"), "--log: expected NAME+KEYID+BASE64, not 'x'", 2),
        (("w0", "--log", VKEY[:-1]), "--log: expected base64", 2),
        (("w0", "--trust", "/dev/null"), "--trust: /dev/null: expected a signed note", 2),
        (("w0", "--trust", "@example.org/none"), "@example.org/none is not known here; give the file", 2),
        (("w0", "--trust", "/none"), "/none: No such file or directory", 1),
        (("w0", "--listen", "example.org:80"), "names are not looked up", 2),
        (("w0", "--listen", "127.0.0.1"), "expected IP:PORT or [IPv6]:PORT", 2),
        (("w0", "--state", "/dev/null"), "/dev/null: Not a directory", 1),
        (("w0", "--state", "/dev/null/w0"), "/dev/null", 1),
        (("w0", "--state", "/proc/w0"), "/proc/w0: ", 1),
        (("w0", "--state", "/"), "/: has other files in it; give another --state", 1),
        (("w0", "--log", VKEY, "--listen", "192.0.2.1:7480"), "192.0.2.1:7480 cannot be served on", 1),
    ],
)
def test_wrong_inputs_are_one_line(
    arguments: tuple[str, ...], words: str, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("kcast servers witness: ")
    assert words in result.stderr


# --- One process ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_sums_up(tmp_path: Path, number: signal.Signals) -> None:
    with WitnessProcess("w0", ("--log", VKEY), tmp_path / "w0") as witness:
        for size in (5, 9):
            (asked,) = ask([witness], size).values()
            assert asked.cosignatures
        with closing(HTTPConnection(witness.url.removeprefix("http://"), timeout=WAIT_S)) as stranger:
            stranger.request("POST", "/add-checkpoint", b"junk")
            assert stranger.getresponse().status == 400
        told = witness.stop(number).splitlines()
        assert witness.process.returncode == 0
    assert told == [
        "kcast servers witness: its key is new: owners put the line above into their trust documents",
        f"kcast servers witness: serving 1 log on {witness.url}",
        # The second question began with the size that was not known.
        f"kcast servers witness: cosigned: 2; told what it holds: 1; refused: malformed=1; {ORIGIN}: 9",
    ]


def test_a_second_process_keeps_out_and_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with WitnessProcess("w0", ("--log", VKEY), tmp_path / "w0") as witness:
        second = run("w0", "--log", VKEY, "--state", str(witness.folder))
        assert (second.exit_code, second.stdout) == (1, "")
        assert second.stderr == (
            f"kcast servers witness: {witness.folder}: another witness uses it; give another --state\n"
        )
        port = witness.url.rpartition(":")[2]
        third = run("w1", "--log", VKEY, "--state", str(tmp_path / "w1"), "--listen", f"127.0.0.1:{port}")
        assert (third.exit_code, third.stdout) == (1, "")
        assert third.stderr == (
            f"kcast servers witness: 127.0.0.1:{port} is in use; give --listen another port\n"
        )


@pytest.mark.parametrize("is_known", [False, True])
def test_it_takes_the_log_of_a_trust_document(
    tmp_path: Path, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab.trust").write_bytes(Lists().files["trust/1"])
    monkeypatch.setenv("KCAST_TRUST_PATH", str(tmp_path))
    given = "@example.org/lab" if is_known else str(tmp_path / "lab.trust")
    with WitnessProcess("w0", ("--trust", given), tmp_path / "w0") as witness:
        (asked,) = ask([witness], 5).values()
        assert asked.cosignatures


# --- Seven, of which five are needed -------------------------------------------------------------------


def ask(
    witnesses: list[WitnessProcess], size: int, log: HandmadeLog = LOG, deadline_s: float = WAIT_S
) -> dict[VerifierKey, Asked]:
    return collect(
        log.signed(size), {each.key: each.url for each in witnesses}, log.path, deadline_s=deadline_s
    )


@pytest.mark.rest
def test_a_list_is_published_with_five_of_seven_and_not_with_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pymerkle")
    monkeypatch.chdir(tmp_path)
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))

    def servers(*arguments: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(main, ["servers", *arguments])
        assert result.exit_code == exit_code, result.output
        return result.output

    servers("init", "example.org/lab", *(f"127.0.0.1:{port}" for port in (7401, 7402, 7403)))
    with ExitStack() as stack:
        witnesses = [
            stack.enter_context(
                WitnessProcess(f"w{number}", ("--trust", "@example.org/lab"), tmp_path / f"w{number}")
            )
            for number in range(7)
        ]
        lines = [f"{each.name} {each.key} {each.url}" for each in witnesses]
        servers("rotate", "lab.cluster", *(f"--witness={line}" for line in lines), "--quorum", "5")
        servers("publish", "lab.cluster")
        assert "cosigned by 7 of 7 (5 needed)" in servers("verify", "@example.org/lab")
        for each in witnesses[:2]:
            each.stop(signal.SIGKILL)
        servers("add", "lab.cluster", "127.0.0.1:7404")
        told = servers("publish", "lab.cluster")
        assert "version 3 of example.org/lab is published" in told
        for each in witnesses[:2]:
            assert f"{each.name} has not cosigned: {each.url}/add-checkpoint: Connection refused" in told
        witnesses[2].stop(signal.SIGKILL)
        servers("add", "lab.cluster", "127.0.0.1:7405")
        told = servers("publish", "lab.cluster", exit_code=1)
        assert "4 of 7 witnesses have cosigned, and it takes 5; nothing was published" in told
        assert "cosigned by 5 of 7" in servers("verify", "@example.org/lab")
        witnesses[2].start()
        assert "version 4 of example.org/lab is published" in servers("publish", "lab.cluster")


# --- A log that changes its key ----------------------------------------------------------------------


def test_a_running_witness_follows_its_trust_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = Lists()
    file = tmp_path / "lab.trust"
    file.write_bytes(lists.trust[0])
    key = WITNESSES[0]
    witness = Witness(WitnessCore(key, [LOG_KEY.verifier]), tmp_path / "w0")
    following = Following(witness, key, [], [str(file)], [LOG_KEY.verifier])
    following.look()
    assert capsys.readouterr().err == ""
    assert witness.add_checkpoint(LOG.body(0, 5), 1).status == 200
    # Its owners give the log another key; and then a log of another name.
    new_log = SigningKey.from_seed(LOG_KEY.verifier.name, bytes(32))
    for version, log in ((2, new_log), (3, SigningKey.from_seed("example.org/other", bytes(32)))):
        policy = replace(lists.document.policy, log=log.verifier)
        lists.publish_document(replace(lists.document, version=version, policy=policy), OWNERS)
        file.write_bytes(lists.trust[-1])
        following.look()
        assert f"the logs to serve have changed: {log.verifier}" in capsys.readouterr().err
        assert witness.add_checkpoint(LOG.body(5, 9), 1).status == {2: 403, 3: 404}[version]
        assert witness.held[LOG_KEY.verifier.name].size == 5, "it is not forgotten"
    file.write_bytes(lists.trust[0])
    following.look()
    assert witness.add_checkpoint(LOG.body(5, 9), 1).status == 200
    assert witness.add_checkpoint(LOG.body(0, 5), 1).body == "9\n"


def test_a_trust_document_that_goes_leaves_the_logs_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    witness = Witness(WitnessCore(WITNESSES[0], [LOG_KEY.verifier]), tmp_path / "w0")
    following = Following(witness, WITNESSES[0], [], [str(tmp_path / "gone")], [LOG_KEY.verifier])
    for _ in range(2):
        following.look()
    assert capsys.readouterr().err.count("going on with the logs as they were") == 1
    assert witness.add_checkpoint(LOG.body(0, 5), 1).status == 200
