"""Wrong inputs of each command, each of which ends with one clear line and without any output.

Nothing is asked of any server here: each is wrong by itself.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from kcast.client.cli import main

USAGE, FAILURE = 2, 1

# What is typed after `kcast`, and what the line must say. LAB is a cluster file; NO is no file.
WRONG_USAGE = [
    # commands
    ("bub", "no such command bub; did you mean sub or pub?"),
    ("serve --metrics", "kcast serve: option '--metrics' requires an argument (see kcast serve --help)"),
    ("--cluster x pub t", "options stand behind the command, as in kcast pub --cluster FILE"),
    ("serve 7401", "extra argument (7401): it listens at --host and --port (see kcast serve --help)"),
    ("serve --bind x", "no such option --bind: use --host and --port"),
    ("help sub extra", "kcast sub has no commands of its own, so no extra"),
    ("help --man x sub", "--man writes the pages of all commands: name none"),
    # servers
    ("servers shw", "kcast servers: no such command shw; did you mean show? (see kcast servers --help)"),
    ("servers init a.b/c", "kcast servers init: give the servers: either ADDRESS..., or --from FILE"),
    ("servers add LAB", "kcast servers add: missing argument 'ADDRESS...'"),
    ("servers trust URL PIN more", "kcast servers trust: got unexpected extra argument (more)"),
    # key
    ("key mew", "kcast key: no such command mew; did you mean new?"),
    ("key new --passphrase=x", "option '--passphrase' does not take a value"),
    # group
    ("group nwe ops", "kcast group: no such command nwe; did you mean new? (see kcast group --help)"),
    ("group join", "kcast group join: missing argument 'FILE|URL'"),
    # pub
    ("pub", "no topic: give TOPIC, or -t TOPIC"),
    ("pub t rain, 4 degrees", "unexpected words (4 degrees): quote a message of several words"),
    ("pub -t t -t u m", "-t is given 2 times: a message goes to one topic"),
    ("pub t m -n", "MESSAGE and -n exclude each other"),
    (
        "pub t -5",
        "no such option -5; write -- before what begins with a minus sign: kcast pub TOPIC -- MESSAGE",
    ),
    ("pub t m --repeat often", "'often' is not a whole number ("),
    ("pub t --rate nan", "nan is not a finite number"),
    ("pub t m --cluter LAB", "no such option --cluter; did you mean --cluster?"),
    ("pub t m -q 1", "no such option -q: there is no QoS"),
    ("pub t m --host broker", "no such option --host: servers stand in the cluster file"),
    # sub
    ("sub", "no topic: give TOPIC, or -t TOPIC"),
    ("sub t --json -F %p", "leave those out"),
    ("sub t -F %p -v", "--format says all that is printed"),
    ("sub t -F %z", "--format: %z is none of %t %p"),
    ("sub -5", "write -- before what begins with a minus sign: kcast sub -- TOPIC"),
    # signed and sealed
    ("pub t m --raw --sign", "--raw leaves out the envelope, which --sign needs: leave out one of them"),
    ("pub t m --key station", "--key goes with --sign or --seal: give that too, or leave --key out"),
    ("pub t m --sign --plain-topic", "--plain-topic goes with --seal"),
    ("sub t --back 60", "--back goes with --from or --seal"),
    ("sub t --seal ops --ahead 86401", "86401.0 is not in the range"),
    ("where t --key station", "--key goes with --seal"),
    # where, ping, health
    ("health 127.0.0.1", "127.0.0.1"),
    ("health --timeout nan", "give a number of seconds above 0"),
    # doctor
    (
        "doctor localhost:7400",
        "kcast doctor: invalid value for 'ADDRESS': expected IP:PORT or [IPv6]:PORT, not 'localhost:7400'; ",
    ),
    ("doctor 192.0.2.7:1 --cluster LAB", "give ADDRESS or --cluster"),
    ("doctor", "no cluster: give --cluster FILE"),
    # top
    ("top --once --count 2", "--once is --count 1: give one of them"),
    ("top --cluster LAB --metrics 0", "--metrics: 0: give 1 to 65535"),
    ("top --cluster LAB --metrics host:9400", "give the port of kcast serve --metrics, or a URL"),
    # context
    ("context shw", "kcast context: no such command shw; did you mean show?"),
    ("context use", "give the NAME of a context, or --none"),
    # plan
    ("plan --k 3 --publish 4", "--publish 4 is more than --k 3: raise --k, or lower --publish"),
    ("plan --down 0.1 --down-exactly 3", "give one of them"),
    # serve
    ("serve --head @LAB", "'--head': LAB: not one line of 32 printable ASCII, no spaces, at most"),
    ("serve --workers 2 --count 2", "give --workers or --count, not both"),
    # bench
    ("bench pub --size 2000", "--size 2000 is too large: on this topic 1078 bytes fit"),
    ("bench pub --rate 0.1 --duration 2", "--rate 0.1 publishes nothing in 2 s: raise --rate or --duration"),
    ("bench pub --msgs 5", "no such option --msgs: use --count"),
    ("bench pub --cluster LAB --servers 2", "--cluster has servers and a policy: leave out --servers"),
    ("bench sub", "kcast bench sub: give --cluster FILE, the cluster at which others publish; for both use"),
    # groups without a verb
    ("bench", "kcast bench: say what to do: pub, sub, pubsub or latency (see kcast bench --help)"),
    ("context", "kcast context: say what to do: add, use, list, show or remove ("),
    ("key", "kcast key: say what to do: new, show or passphrase ("),
    ("group", "kcast group: say what to do: new, "),
    ("servers", "kcast servers: say what to do: init, "),
    # servers
    ("servers init Lab 192.0.2.1:1", "'Lab' cannot be the name of a list"),
    ("servers init lab notanaddress", "expected IP:PORT or [IPv6]:PORT, not 'notanaddress'"),
    ("servers init lab 192.0.2.1:1 --url lists", "--url lists: give a URL such as"),
    ("servers init lab 192.0.2.1:1 --signer x", "--signer: "),
    ("servers init lab 192.0.2.1:1 --witness x", "--witness: expected 'NAME VKEY URL', not 'x'"),
    ("servers add LAB_DRAFT notanaddress", "expected IP:PORT or [IPv6]:PORT, not 'notanaddress'"),
    ("servers remove LAB_DRAFT notanaddress", "expected IP:PORT or [IPv6]:PORT, not 'notanaddress'"),
    ("servers trust http://192.0.2.1:1/x notapin", "'notapin' is no pin, which has 43 characters"),
    ("servers witness w0 --listen 7480", "expected IP:PORT or [IPv6]:PORT, not '7480'"),
    ("demo --servers 5 --kill 5", "of 5 servers at most 4 can be killed"),
]

FAILURES = [
    ("pub t m --cluster ''", "the cluster's name is empty: give the path of a cluster file, or a context"),
    ("sub t --cluster @Prod", "@Prod: the name of a signed list is such as @example.org/lab"),
    (
        "sub t --cluster LAB_LIST",
        "LAB_LIST: it is a signed list: use --cluster @example.org/lab, after 'kcast",
    ),
    ("where t --cluster prod", "prod: no such file, and no such context ('kcast context add NAME FILE'"),
    ("ping --cluster LAB_NAMED", "LAB_NAMED:2: node is a name: give the address, or add a line 'names' to"),
    ("ping --cluster LAB_TYPO", "LAB_TYPO:2: expected one of name, policy, "),
    ("ping --cluster LAB_TYPO", "not 'srever'; did you mean server?"),
    ("context add prod NO", "NO: No such file or directory"),
    ("context add a/b LAB", "'a/b' cannot be a context's name: give 1 to 64 of A-Z"),
    ("context show", "no context is in use: give a NAME, or put one into use"),
    ("pub '' m", "a topic must not be empty"),
    (f"sub {'x' * 256}", "topic too long: 256 bytes encoded, at most 255"),
    ("pub t -f NO --cluster LAB", "NO: No such file or directory"),
    ("help --man LAB/man1", "LAB/man1: Not a directory"),
    ("demo NO", "NO: No such file or directory"),
    (f"pub ~{'x' * 22}/t m --cluster LAB", "the topic names the keys of its senders (~): sign with one of"),
]

# Without the extra they all end with the line that installs it.
SIGNED = [
    ("sub t --cluster @prod", "@prod is not known here: type 'kcast servers trust URL PIN'"),
    ("where t --cluster @prod", "@prod is not known here: type 'kcast servers trust URL PIN'"),
]
KEYS = [
    ("key show NO.pem", "NO.pem: there is no such file: 'kcast key new NO.pem' makes one"),
    ("key show ''", "'' cannot be a key's name: give 1 to 64 of A-Z"),
    ("key new LAB", "LAB: it is there already, and keys are never overwritten: give another name"),
]
GROUPS = [
    ("group new Ops", "'Ops' cannot be a group's name: give 1 to 64 of a-z, 0-9, '-' and '_'"),
    ("group remove nope-nope x", "'x' is no key, which has 43 characters: 'kcast group show nope-nope'"),
    ("group add ops x", "expected a member's word, which 'kcast key show' prints behind 'member', not 'x'"),
    ("group show nope-nope", "there is no group nope-nope here"),
    ("group show LAB", "LAB: not a group file: expected a signed note"),
    ("group join LAB --owner x", "--owner: expected NAME+KEYID+BASE64, not 'x'"),
    ("group join http://", "http://: "),
]
PROVEN = [
    ("pub t m --sign", "there is no key yet ("),
    ("pub t m --seal ops", "there is no key yet ("),
    ("pub t m --sign --from NO", "--from: 'NO' is neither a key, which has 43 characters, nor a file of"),
    ("sub t --from nope", "--from: 'nope' is neither a key, which has 43 characters, nor a file of keys:"),
    (f"sub t --from {'B' * 43}", "is neither a key, which has 43 characters, nor a file of keys"),
    (
        "sub t --from LAB",
        "LAB:1: expected a key of 43 characters, the line 'key' of 'kcast key show', and no more",
    ),
    ("where t --seal ops", "there is no key yet ("),
]
if find_spec("nacl") is None:
    WRONG_USAGE += [(line, "a signed list needs the extra 'trust': ") for line, _ in SIGNED]
    WRONG_USAGE += [(line, "a key needs the extra 'trust': ") for line, _ in KEYS]
    WRONG_USAGE += [(line, "a group needs the extra 'trust': ") for line, _ in GROUPS]
    WRONG_USAGE += [
        (line, f"a {'sealed' if '--seal' in line else 'signed'} message needs the extra 'trust': ")
        for line, _ in PROVEN
    ]
    WRONG_USAGE += [(f"sub ~{'x' * 22} --cluster LAB", "a signed message needs the extra 'trust': ")]
else:
    FAILURES += SIGNED + KEYS + GROUPS + PROVEN


@pytest.fixture
def typed(tmp_path: Path) -> Callable[[str], list[str]]:
    """Makes a list of arguments of what is typed, with the names of a cluster file and of none."""
    lab = tmp_path / "LAB"
    lab.write_text("kcast-cluster 1\nlab\npolicy k=1 publish=1 subscribe=1\nserver 127.0.0.1:9\n")

    (tmp_path / "LAB_NAMED").write_text("kcast-cluster 1\nserver node:7400 key=a\n")

    words = "version 1\ntrust 1\nvalid-after 1\nfresh-until 1\nvalid-until 1\nmin-servers 1\n"
    signed = f"kcast-cluster 1\nname example.org/lab\n{words}server 192.0.2.1:1\n\n"
    (tmp_path / "LAB_LIST").write_text(f"{signed}\N{EM DASH} example.org/lab/signer-0 AAAA\n")

    (tmp_path / "LAB_DRAFT").write_text(signed)
    (tmp_path / "LAB_TYPO").write_text("kcast-cluster 1\nsrever 127.0.0.1:9\n")

    def arguments(line: str) -> list[str]:
        return [re.sub(r"^(@?)(?=LAB|NO)", rf"\1{tmp_path}/", word) for word in shlex.split(line)]

    return arguments


def test_each_ends_with_one_clear_line(typed: Callable[[str], list[str]]) -> None:
    folder = typed("NO")[0].removesuffix("NO")
    for rows, exit_code in ((WRONG_USAGE, USAGE), (FAILURES, FAILURE)):
        for line, words in rows:
            result = CliRunner().invoke(main, typed(line), env={"KCAST_CLUSTER": None})
            assert (result.exit_code, result.stdout) == (exit_code, ""), line
            assert result.stderr.count("\n") == 1, result.stderr
            assert result.stderr.startswith("kcast"), result.stderr
            assert words in result.stderr.replace(folder, ""), (line, result.stderr)


@pytest.mark.parametrize(
    ("stream", "arguments"), [("stdout", ["sub", "news"]), ("stdin", ["pub", "news"])], ids=["sub", "pub"]
)
def test_a_stream_that_only_python_knows_is_told(stream: str, arguments: list[str], tmp_path: Path) -> None:
    """As where another program calls the command, and has replaced the stream."""
    cluster = tmp_path / "cluster"
    cluster.write_text("kcast-cluster 1\nlab\npolicy k=1 publish=1 subscribe=1\nserver 127.0.0.1:22300\n")
    program = (
        f"import io, sys; from kcast.client.cli import main; sys.{stream} = io.StringIO(); "
        f"main([*{arguments!r}, '--cluster', {str(cluster)!r}], prog_name='kcast')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    name = {"stdin": "standard input", "stdout": "standard output"}[stream]
    assert done.stderr == (
        f"kcast {arguments[0]}: {name} is an object of Python's and no file of the system: run kcast as a "
        "program of its own, or use kcast.Client\n"
    )


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """As of /dev/full, or where no file may have any byte (EFBIG in place of ENOSPC)."""
    for line in ("plan", "plan --help", "--version", "plan --json"):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                (sys.executable, "-m", "kcast.client.cli", *line.split()),
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert done.returncode == 1
        assert re.fullmatch(rb"kcast( plan)?: standard output: No space left on device\n", done.stderr), line
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from kcast.client.clusters import durable; from kcast.client.cli.common import errors_as_lines\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "with errors_as_lines('x'):\n    durable.{call}"
    )
    for call in ("write_whole(Path('one'), b'1')", "write_together({Path('one'): b'1'})"):
        typed = (sys.executable, "-c", program.replace("{call}", call))
        done = subprocess.run(typed, cwd=tmp_path, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (1, b"kcast x: one: File too large\n")
