"""A hundred wrong inputs of `kcast`, each of which ends with one clear line and without any output.

Nothing is asked of any server here: each is wrong by itself. A new option brings its own lines.
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
    ("publish t m", "no such command publish; did you mean pub?"),
    ("subscribe t", "no such command subscribe; did you mean sub?"),
    ("analyze run", "did you mean analyse?"),
    ("pings", "did you mean ping?"),
    ("server", "did you mean serve or servers?"),
    ("wher t", "did you mean where?"),
    ("halth", "did you mean health?"),
    ("completions bash", "did you mean completion?"),
    ("xyzzy", "kcast: no such command xyzzy (see kcast --help)"),
    ("--foo", "kcast: no such option --foo"),
    ("serve --metrics", "kcast serve: option '--metrics' requires an argument (see kcast serve --help)"),
    ("--vresion", "did you mean --version?"),
    ("--cluster x pub t", "options stand behind the command, as in kcast pub --cluster FILE"),
    ("serve 7401", "extra argument (7401): it listens at --host and --port (see kcast serve --help)"),
    ("serve --cluster x", "no such option --cluster: a server knows no others"),
    ("serve --bind x", "no such option --bind: use --host and --port"),
    ("-v", "kcast: no such option -v"),
    ("help bub", "no such command bub; did you mean sub or pub?"),
    ("help sub extra", "kcast sub has no commands of its own, so no extra"),
    ("help load compre", "compare"),
    ("help --all", "no such option --all"),
    ("help --man x sub", "--man writes the pages of all commands: name none"),
    ("completion", "missing argument"),
    ("completion tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ("completion bash zsh", "unexpected extra argument"),
    # servers
    ("servers shw", "kcast servers: no such command shw; did you mean show? (see kcast servers --help)"),
    ("servers --foo", "kcast servers: no such option --foo"),
    ("servers show", "kcast servers show: missing argument '@NAME|FILE' (see kcast servers show --help)"),
    ("servers init", "kcast servers init: missing argument 'NAME'"),
    ("servers init a.b/c", "kcast servers init: give the servers: either ADDRESS..., or --from FILE"),
    ("servers init a.b/c 192.0.2.7:1 --from LAB", "give the servers: either ADDRESS..., or --from FILE"),
    ("servers init a.b/c 192.0.2.7:1 --key x", "--key only makes a key: give no servers beside it"),
    ("servers init a.b/c 192.0.2.7:1 --quorum x", "invalid value for '--quorum'"),
    ("servers init a.b/c 192.0.2.7:1 --admission later", "'later' is not one of 'now', 'epoch'"),
    ("servers init a.b/c 192.0.2.7:1 --fresh-days 0", "invalid value for '--fresh-days'"),
    ("servers add LAB", "kcast servers add: missing argument 'ADDRESS...'"),
    ("servers remove LAB", "kcast servers remove: missing argument 'ADDRESS...'"),
    ("servers publish", "kcast servers publish: missing argument 'FILE'"),
    ("servers publish LAB --later", "no such option --later"),
    ("servers sign", "kcast servers sign: missing argument 'FILE'"),
    ("servers rotate LAB --new friend", "'friend' is not one of 'signer', 'owner', 'log'"),
    ("servers rotate LAB --except 0", "invalid value for '--except'"),
    ("servers trust", "kcast servers trust: missing argument 'URL'"),
    ("servers trust URL PIN more", "kcast servers trust: got unexpected extra argument (more)"),
    ("servers verify", "kcast servers verify: missing argument '@NAME|URL|FILE'"),
    ("servers diff", "kcast servers diff: missing argument 'OLD'"),
    ("servers log LAB --last 0", "invalid value for '--last'"),
    ("servers head", "kcast servers head: missing argument '@NAME'"),
    ("servers evidence", "kcast servers evidence: missing argument '@NAME'"),
    ("servers show a b", "kcast servers show: got unexpected extra argument (b)"),
    ("servers show a --jsn", "kcast servers show: no such option --jsn; did you mean --json?"),
    # key
    ("keys", "no such command keys; did you mean key?"),
    ("key mew", "kcast key: no such command mew; did you mean new?"),
    ("key add x", "kcast key: no such command add"),
    ("key new a b", "kcast key new: got unexpected extra argument (b)"),
    ("key show a b", "kcast key show: got unexpected extra argument (b)"),
    ("key show --jsn", "kcast key show: no such option --jsn; did you mean --json?"),
    ("key new --passphrase=x", "option '--passphrase' does not take a value"),
    ("key new --overwrite", "kcast key new: no such option --overwrite"),
    # group
    ("groups", "no such command groups; did you mean group?"),
    ("group nwe ops", "kcast group: no such command nwe; did you mean new? (see kcast group --help)"),
    ("group --foo", "kcast group: no such option --foo"),
    ("group new", "kcast group new: missing argument 'NAME'"),
    ("group new a b", "kcast group new: got unexpected extra argument (b)"),
    ("group new ops --days 0", "invalid value for '--days'"),
    ("group add ops", "kcast group add: missing argument 'WORD'"),
    ("group add ops word --read-only", "kcast group add: no such option --read-only"),
    ("group remove ops", "kcast group remove: missing argument 'KEY'"),
    ("group renew", "kcast group renew: missing argument 'NAME'"),
    ("group renew ops --out .", "invalid value for '--out'"),
    ("group show", "kcast group show: missing argument 'NAME|FILE'"),
    ("group show ops --jsn", "kcast group show: no such option --jsn; did you mean --json?"),
    ("group join", "kcast group join: missing argument 'FILE|URL'"),
    ("group join f --owner", "option '--owner' requires an argument"),
    # pub
    ("pub", "no topic: give TOPIC, or -t TOPIC"),
    ("pub -m text", "no topic: give TOPIC, or -t TOPIC"),
    ("pub t rain, 4 degrees", "unexpected words (4 degrees): quote a message of several words"),
    ("pub -t t rain, 4", "unexpected words (4): quote a message of several words"),
    ("pub -t t -t u m", "-t is given 2 times: a message goes to one topic"),
    ("pub t m -m n", "MESSAGE and -m exclude each other"),
    ("pub t m -n", "MESSAGE and -n exclude each other"),
    ("pub t m -l", "MESSAGE and -l exclude each other"),
    ("pub t -n -s", "-n and -s exclude each other"),
    ("pub t -f x -s", "-f and -s exclude each other"),
    ("pub t -m a -f x -l", "-m and -f and -l exclude each other"),
    ("pub t -m", "option '-m' requires an argument"),
    ("pub t -f", "option '-f' requires an argument"),
    ("pub -t", "option '-t' requires an argument"),
    (
        "pub t -5",
        "no such option -5; write -- before what begins with a minus sign: kcast pub TOPIC -- MESSAGE",
    ),
    ("pub t -3.5", "write -- before what begins with a minus sign"),
    ("pub t -.5", "write -- before what begins with a minus sign"),
    ("pub t m --repeat 0", "'--repeat': 0 is not in the range"),
    ("pub t m --repeat 101", "'--repeat': 101 is not in the range"),
    ("pub t m --repeat often", "'often' is not a whole number ("),
    ("pub t --rate -1", "-1.0 is not in the range"),
    ("pub t --rate inf", "inf is not a finite number"),
    ("pub t --rate nan", "nan is not a finite number"),
    ("pub t --rate fast", "'fast' is not a number ("),
    ("pub t m --cluter LAB", "no such option --cluter; did you mean --cluster?"),
    ("pub t m --repaet 2", "did you mean --repeat?"),
    ("pub t m --cluster", "option '--cluster' requires an argument"),
    ("pub t m -q 1", "no such option -q: there is no QoS"),
    ("pub t m --retain", "no such option --retain: nothing is retained"),
    ("pub t m -r", "no such option -r: nothing is retained"),
    ("pub t m -p 1883", "no such option -p: servers stand in the cluster file"),
    ("pub t m --host broker", "no such option --host: servers stand in the cluster file"),
    ("pub t m -u me", "no such option -u: there are no users and passwords"),
    ("pub t m -i me", "no such option -i: servers keep nothing for clients"),
    ("pub t m --sleep 1s", "no such option --sleep: use --rate"),
    ("pub t m --reply r", "no such option --reply: there are no replies"),
    # sub
    ("sub", "no topic: give TOPIC, or -t TOPIC"),
    ("sub -t", "option '-t' requires an argument"),
    ("sub t --count 0", "'-C' / '--count': 0 is not in the range"),
    ("sub t -C none", "'none' is not a whole number ("),
    ("sub t -C", "option '-C' requires an argument"),
    ("sub t --timeout 0", "0.0 is not in the range"),
    ("sub t -W nan", "nan is not a finite number"),
    ("sub t -W 5s", "'5s' is not a number ("),
    ("sub t --hold 11", "11.0 is not in the range"),
    ("sub t --hold -1", "-1.0 is not in the range"),
    ("sub t --json --raw", "leave those out"),
    ("sub t --json --time", "leave those out"),
    ("sub t --json -v", "leave those out"),
    ("sub t --json -N", "leave those out"),
    ("sub t --json -F %p", "leave those out"),
    ("sub t -F %p -v", "--format says all that is printed"),
    ("sub t -F %p --time", "--format says all that is printed"),
    ("sub t -F %p --raw", "--format says all that is printed"),
    ("sub t -F", "option '-F' requires an argument"),
    ("sub t -F %", "--format: '%' ends too early: write %% for a percent sign"),
    ("sub t -F %z", "--format: %z is none of %t %p"),
    ("sub t -F %q", "--format: %q: there is no QoS, and nothing is retained"),
    ("sub t -F %R", "--format: %R: a property of MQTT 5"),
    ("sub t -F @Q", "--format: @Q is no part of a time"),
    (r"sub t -F '\q'", r"--format: \q is none of"),
    ("sub t -F %1000t", "--format: %1000t: at most 999 characters"),
    ("sub t --formt %p", "did you mean --format?"),
    ("sub t --queue q", "no such option --queue: there are no groups of subscribers"),
    ("sub t -T u", "no such option -T: there are no wildcards"),
    ("sub t -k 60", "no such option -k: servers keep nothing for clients"),
    ("sub t -R", "no such option -R: nothing is retained"),
    ("sub -5", "write -- before what begins with a minus sign: kcast sub -- TOPIC"),
    # signed and sealed
    ("pub t m --raw --sign", "--raw leaves out the envelope, which --sign needs: leave out one of them"),
    ("pub t m --raw --seal ops", "--raw leaves out the envelope, which --seal needs: leave out one of them"),
    ("pub t m --sign=key", "option '--sign' does not take a value"),
    ("pub t m --seal", "option '--seal' requires an argument"),
    ("pub t m --key station", "--key goes with --sign or --seal: give that too, or leave --key out"),
    ("pub t m --sign --plain-topic", "--plain-topic goes with --seal"),
    ("pub t m --seal ops --from k", "--from goes with --sign"),
    ("sub t --sign", "no such option --sign"),
    ("sub t --from k --key station", "--key goes with --seal"),
    ("sub t --from k --plain-topic", "--plain-topic goes with --seal"),
    ("sub t --back 60", "--back goes with --from or --seal"),
    ("sub t --ahead 60", "--ahead goes with --from or --seal"),
    ("sub t --from k --back 0", "0.0 is not in the range"),
    ("sub t --seal ops --ahead 86401", "86401.0 is not in the range"),
    ("sub t --max-age 60", "no such option --max-age"),
    ("where t --key station", "--key goes with --seal"),
    # where, ping, health
    ("where", "missing argument 'TOPIC'"),
    ("where t u", "unexpected extra argument (u)"),
    ("where t -k 0", "0 is not in the range"),
    ("where -5", "write -- before what begins with a minus sign: kcast where -- TOPIC"),
    ("ping server", "unexpected extra argument (server)"),
    ("ping --count 0", "0 is not in the range"),
    ("ping --interval 0", "0.0 is not in the range"),
    ("ping --timeout 0", "0.0 is not in the range"),
    ("health localhost:7400", "localhost"),
    ("health 127.0.0.1", "127.0.0.1"),
    ("health 127.0.0.1:0", "127.0.0.1:0"),
    ("health --timeout nan", "give a number of seconds above 0"),
    ("health 127.0.0.1:7400 more", "unexpected extra argument (more)"),
    # doctor
    ("docter", "did you mean doctor?"),
    (
        "doctor localhost:7400",
        "kcast doctor: invalid value for 'ADDRESS': expected IP:PORT or [IPv6]:PORT, not 'localhost:7400'; ",
    ),
    ("doctor 192.0.2.7", "expected IP:PORT"),
    ("doctor 192.0.2.7:0", "ports are 1 to 65535"),
    ("doctor 192.0.2.7:1 192.0.2.8:1", "unexpected extra argument (192.0.2.8:1)"),
    ("doctor 192.0.2.7:1 --cluster LAB", "give ADDRESS or --cluster"),
    ("doctor --timeout 0", "0.0 is not in the range"),
    ("doctor --timeout nan", "is not a finite number"),
    ("doctor --slw", "did you mean --slow?"),
    ("doctor", "no cluster: give --cluster FILE"),
    # top
    ("top lab.txt", "unexpected extra argument (lab.txt)"),
    ("top --interval 0", "0.0 is not in the range"),
    ("top --interval often", "'often' is not a number ("),
    ("top --count 0", "0 is not in the range"),
    ("top --once --count 2", "--once is --count 1: give one of them"),
    ("top --cluster LAB --metrics", "option '--metrics' requires an argument"),
    ("top --cluster LAB --metrics 0", "--metrics: 0: give 1 to 65535"),
    ("top --cluster LAB --metrics host:9400", "give the port of kcast serve --metrics, or a URL"),
    ("top --cluster LAB --metrics 'http://{name}/'", "give the port of kcast serve --metrics, or a URL"),
    ("top --metric 9400", "did you mean --metrics?"),
    # context
    ("context shw", "kcast context: no such command shw; did you mean show?"),
    ("context select x", "no such command select"),
    ("context add", "missing argument 'NAME'"),
    ("context add prod", "missing argument 'FILE'"),
    ("context add a b c", "unexpected extra argument (c)"),
    ("context use", "give the NAME of a context, or --none"),
    ("context use x --none", "give the NAME of a context, or --none"),
    ("context remove", "missing argument 'NAME'"),
    ("context list x", "unexpected extra argument (x)"),
    ("context show --jsn", "did you mean --json?"),
    # plan
    ("plan --k 3 --publish 4", "--publish 4 is more than --k 3: raise --k, or lower --publish"),
    ("plan --publish 1 --subscribe 1", "--publish 1 and --subscribe 1 of --k 5 may have no host in common"),
    ("plan --scheme S --k 3", "scheme S takes no --k: leave it out"),
    ("plan --scheme X", "'X' is not one of"),
    ("plan --down 0.1 --down-exactly 3", "give one of them"),
    ("plan --hosts 3 --down-exactly 4", "--down-exactly is 4, but there are 3 hosts"),
    ("plan --loss 1", "1.0 is not in the range"),
    ("plan --work-bits 25", "25 is not in the range"),
    # serve
    ("serve --port 70000", "70000"),
    ("serve --ttl 0", "0 is not in the range"),
    ("serve --head @NO", "'--head': NO: No such file or directory"),
    ("serve --head @.", "'--head': .: not a file"),
    ("serve --head @LAB", "'--head': LAB: not one line of 32 printable ASCII, no spaces, at most"),
    ("serve --host localhost", "'localhost' is not an IP address"),
    ("serve --workers 2 --count 2", "give --workers or --count, not both"),
    ("serve --prot 7400", "did you mean --port?"),
    ("serve extra", "unexpected extra argument (extra)"),
    # bench
    ("bench pubb", "kcast bench: no such command pubb; did you mean pub?"),
    ("bench throughput", "kcast bench: no such command throughput (see kcast bench --help)"),
    ("bench pub a b", "got unexpected extra argument (b)"),
    ("bench pub --size 15", "'--size': 15 is not in the range"),
    ("bench pub --size 2000", "--size 2000 is too large: on this topic 1078 bytes fit"),
    ("bench pub --count 0", "'--count': 0 is not in the range"),
    ("bench pub --count 1 --publishers 2", "--count 1 is less than --publishers 2: give each a message"),
    ("bench pub --duration 0", "0.0 is not in the range"),
    ("bench pub --rate fast", "'fast' is not a number ("),
    ("bench pub --rate 0.1 --duration 2", "--rate 0.1 publishes nothing in 2 s: raise --rate or --duration"),
    ("bench pub --subscribers 2", "no such option --subscribers: 'kcast bench pub' only publishes: use"),
    ("bench sub --publishers 2", "no such option --publishers: 'kcast bench sub' only subscribes: use"),
    ("bench pub --msgs 5", "no such option --msgs: use --count"),
    ("bench pubsub --clients 5", "no such option --clients: use --publishers and --subscribers"),
    ("bench pub --pubsleep 1ms", "no such option --pubsleep: use --rate, in messages a second"),
    ("bench pub --raet 5", "no such option --raet; did you mean --rate?"),
    ("bench pub --servers 2 --k 3", "policy 3/3/3 needs 3 servers: raise --servers 2, or lower --k 3"),
    ("bench pub --publish 1 --subscribe 1", "--publish 1 and --subscribe 1 of --k 5 may have no host"),
    ("bench pub --cluster LAB --servers 2", "--servers starts servers: leave it out with --cluster"),
    ("bench pub --cluster LAB --k 2", "--k is for servers of its own: the cluster file says the policy"),
    ("bench sub", "kcast bench sub: give --cluster FILE, the cluster at which others publish; for both use"),
    ("bench sub --cluster LAB --size 10", "no such option --size"),
    ("bench sub --cluster LAB --wait 0", "0.0 is not in the range"),
    ("bench pubsub --subscribers 1001", "1001 is not in the range"),
    ("bench pubsub --subscribers 100 --topics 201", "--subscribers 100 times --topics 201 is more than"),
    ("bench latency --rate 0", "0.0 is not in the range"),
    # servers
    ("servers log --audit", "missing argument '@NAME|URL|FILE'"),
    ("servers log lab.log --audt", "no such option --audt; did you mean --audit?"),
    ("servers witness", "missing argument 'NAME'"),
    ("servers witness w0 --listen 7480", "expected IP:PORT or [IPv6]:PORT, not '7480'"),
    ("servers witness w0 --listen example.org:7480", "names are not looked up"),
    ("servers witness w0 --key k.pem", "no such option --key"),
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
    ("ping --cluster prod", "prod: no such file, and no such context"),
    ("ping --cluster LAB_NAMED", "LAB_NAMED:2: node is a name: give the address, or add a line 'names' to"),
    ("where t --cluster LAB_KEYLESS", "LAB_KEYLESS:3: expected key=NAME: the ring needs a key that stays"),
    ("sub t --cluster LAB_SIGNED", "LAB_SIGNED:2: expected no 'names' in a signed list"),
    ("context add prod NO", "NO: No such file or directory"),
    ("context add a/b LAB", "'a/b' cannot be a context's name: give 1 to 64 of A-Z"),
    ("context use prod", "no such context: prod ('kcast context add NAME FILE' makes one)"),
    ("context show prod", "no such context: prod"),
    ("context show", "no context is in use: give a NAME, or put one into use"),
    ("context remove prod", "no such context: prod"),
    ("pub '' m", "a topic must not be empty"),
    ("pub -t '' m", "a topic must not be empty"),
    ("sub ''", "a topic must not be empty"),
    ("sub a -t ''", "a topic must not be empty"),
    ("where ''", "a topic must not be empty"),
    (f"pub {'x' * 256} m", "topic too long: 256 bytes encoded, at most 255"),
    (f"sub {'x' * 256}", "topic too long: 256 bytes encoded, at most 255"),
    ("pub t m --cluster NO", "NO: No such file or directory"),
    ("sub t --cluster NO", "NO: No such file or directory"),
    ("where t --cluster NO", "NO: No such file or directory"),
    ("ping --cluster NO", "NO: No such file or directory"),
    ("doctor --cluster NO", "NO: No such file or directory"),
    ("plan --cluster NO", "NO: No such file or directory"),
    ("top --cluster NO", "NO: No such file or directory"),
    ("pub t -f NO --cluster LAB", "NO: No such file or directory"),
    ("help --man LAB/man1", "LAB/man1: Not a directory"),
    ("demo NO", "NO: No such file or directory"),
    ("bench pub ''", "a topic must not be empty"),
    (f"bench sub {'x' * 256} --cluster LAB", "topic too long: 256 bytes encoded, at most 255"),
    ("bench latency --cluster NO", "NO: No such file or directory"),
    ("pub t -f / --cluster LAB", "/: Is a directory"),
    (f"pub ~{'x' * 22}/t m --cluster LAB", "the topic names the keys of its senders (~): sign with one of"),
]

# Without the extra they all end with the line that installs it.
SIGNED = [
    ("sub t --cluster @prod", "@prod is not known here: type 'kcast servers trust URL PIN'"),
    ("pub t m --cluster @prod", "@prod is not known here: type 'kcast servers trust URL PIN'"),
    ("where t --cluster @prod", "@prod is not known here: type 'kcast servers trust URL PIN'"),
    ("context add prod @prod", "context prod: @prod is not known here"),
]
KEYS = [
    ("key show NO.pem", "NO.pem: there is no such file: 'kcast key new NO.pem' makes one"),
    ("key show ''", "'' cannot be a key's name: give 1 to 64 of A-Z"),
    ("key show 'a b'", "'a b' cannot be a key's name: give 1 to 64 of A-Z"),
    ("key new 'a b'", "'a b' cannot be a key's name: give 1 to 64 of A-Z"),
    ("key new LAB", "LAB: it is there already, and keys are never overwritten: give another name"),
    ("key new LAB/key", "LAB/key: Not a directory"),
    ("key show /", "/: not a file: give another file; 'kcast key new' makes one"),
]
GROUPS = [
    ("group new Ops", "'Ops' cannot be a group's name: give 1 to 64 of a-z, 0-9, '-' and '_'"),
    ("group renew NO", "cannot be a group's name"),
    ("group renew nope-nope", "there is no group nope-nope of yours"),
    ("group remove nope-nope x", "'x' is no key, which has 43 characters: 'kcast group show nope-nope'"),
    ("group add ops x", "expected a member's word, which 'kcast key show' prints behind 'member', not 'x'"),
    ("group show nope-nope", "there is no group nope-nope here"),
    ("group show NO", "NO: there is no such file"),
    ("group show LAB", "LAB: not a group file: expected a signed note"),
    ("group join NO", "NO: there is no such file: get it from the group's owner"),
    ("group join LAB", "LAB: not a group file: expected a signed note"),
    ("group join LAB --owner x", "--owner: expected NAME+KEYID+BASE64, not 'x'"),
    ("group join http://", "http://: "),
]
PROVEN = [
    ("pub t m --sign", "there is no key yet ("),
    ("pub t m --sign --key NO.pem", "NO.pem: there is no such file: 'kcast key new NO.pem' makes one"),
    ("pub t m --sign --key LAB", "LAB: "),
    ("pub t m --seal ops", "there is no key yet ("),
    ("pub t m --sign --from NO", "--from: 'NO' is neither a key, which has 43 characters, nor a file of"),
    ("sub t --from nope", "--from: 'nope' is neither a key, which has 43 characters, nor a file of keys:"),
    ("sub t --from ''", "--from: '' is neither a key"),
    (f"sub t --from {'B' * 43}", "is neither a key, which has 43 characters, nor a file of keys"),
    (
        "sub t --from LAB",
        "LAB:1: expected a key of 43 characters, the line 'key' of 'kcast key show', and no more",
    ),
    ("sub t --from /", "'/' is neither a key, which has 43 characters, nor a file of keys"),
    ("sub t --seal ops --key NO.pem", "NO.pem: there is no such file: 'kcast key new NO.pem' makes one"),
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
    (tmp_path / "LAB_KEYLESS").write_text("kcast-cluster 1\nnames\nserver node:7400\n")
    (tmp_path / "LAB_SIGNED").write_text("kcast-cluster 1\nnames\nversion 1\nserver node:7400 key=a\n\n")

    words = "version 1\ntrust 1\nvalid-after 1\nfresh-until 1\nvalid-until 1\nmin-servers 1\n"
    signed = f"kcast-cluster 1\nname example.org/lab\n{words}server 192.0.2.1:1\n\n"
    (tmp_path / "LAB_LIST").write_text(f"{signed}\N{EM DASH} example.org/lab/signer-0 AAAA\n")

    def arguments(line: str) -> list[str]:
        return [re.sub(r"^(@?)(?=LAB|NO)", rf"\1{tmp_path}/", word) for word in shlex.split(line)]

    return arguments


@pytest.mark.parametrize(
    ("line", "words", "exit_code"),
    [(*row, USAGE) for row in WRONG_USAGE] + [(*row, FAILURE) for row in FAILURES],
)
def test_each_ends_with_one_clear_line(
    line: str, words: str, exit_code: int, typed: Callable[[str], list[str]]
) -> None:
    arguments = typed(line)
    result = CliRunner().invoke(main, arguments, env={"KCAST_CLUSTER": None})
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("kcast")
    assert words in result.stderr.replace(f"{typed('NO')[0].removesuffix('NO')}", "")


def test_there_are_a_hundred_of_them() -> None:
    assert len(set(WRONG_USAGE) | set(FAILURES)) >= 100


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
