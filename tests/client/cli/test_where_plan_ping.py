"""`kcast where`, `kcast plan` and `kcast ping`."""

import json
import re
import socket
import subprocess
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from time import time
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kcast.client.cli import forecast, main
from kcast.client.cli import plan as plan_module
from kcast.client.clusters.cluster import format_cluster, lab
from kcast.client.clusters.view import View
from kcast.hashring import model
from kcast.hashring.hashing import topic_hash
from kcast.hashring.policy import Policy
from tests.support.cluster_of_processes import ClusterOfProcesses, Command

ADDRESSES = [("127.0.0.1", port) for port in range(7401, 7413)]


def kcast(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"KCAST_CLUSTER": None})


def in_one_line(text: str) -> str:
    """The text without its breaks between lines."""
    return " ".join(text.split())


def objects(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def lab_file(tmp_path: Path) -> str:
    file = tmp_path / "lab.cluster"
    file.write_text(format_cluster(lab(ADDRESSES)))
    return str(file)


def cluster_file(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "other.cluster"
    file.write_text("\n".join(("kcast-cluster 1", *lines)) + "\n")
    return str(file)


# --- where -------------------------------------------------------------------------------------------


def test_where_names_the_servers_that_clients_use(lab_file: str) -> None:
    places = objects(kcast("where", "--cluster", lab_file, "--json", "weather/oslo"))
    view = View(lab(ADDRESSES))
    assert [place["server"] for place in places] == [s.name for s in view.servers(b"weather/oslo")]
    assert [place["rank"] for place in places] == [1, 2, 3, 4, 5]
    assert set(places[0]) == {
        *("topic", "policy", "hashed", "position", "rank", "server", "host", "used"),
        *("arc", "point", "distance"),
    }
    position = topic_hash(b"weather/oslo")
    for place in places:
        assert place["position"] == f"{position:016x}"
        point, distance = int(str(place["point"]), 16), int(str(place["distance"]), 16)
        assert (point + distance) % 2**64 == position
        assert point >> 54 == place["arc"]


def test_where_as_a_table(lab_file: str) -> None:
    result = kcast("where", "--cluster", lab_file, "game\x1b/{7}")
    assert result.exit_code == 0
    assert "topic     game\\x1b/{7}\n" in result.stdout
    assert "hashed    7 (only what is inside {...})\n" in result.stdout
    assert "policy    5/3/5\n" in result.stdout
    assert (
        "used      publishers send to 3 of 5, drawn at random, subscribers lease on all 5\n" in result.stdout
    )
    rows = re.findall(r"^(\d) +(\S+:\d+) +\2 +yes +\d+ +[0-9a-f]{16} +0\.\d{7}$", result.stdout, re.MULTILINE)
    assert [rank for rank, _ in rows] == list("12345")


def test_where_shows_who_would_be_next(lab_file: str) -> None:
    five = objects(kcast("where", "--cluster", lab_file, "--json", "t"))
    eight = objects(kcast("where", "--cluster", lab_file, "--json", "-k", "8", "t"))
    assert eight[:5] == five
    assert [place["used"] for place in eight] == [True] * 5 + [False] * 3
    assert len(objects(kcast("where", "--cluster", lab_file, "--json", "-k", "99", "t"))) == 12


def test_where_by_modulo(tmp_path: Path) -> None:
    lines = ["policy scheme=S", "lab", *(f"server 127.0.0.1:{port}" for _, port in ADDRESSES)]
    file = cluster_file(tmp_path, *lines)
    (place,) = objects(kcast("where", "--cluster", file, "--json", "t"))
    number = topic_hash(b"t") % 12
    assert place["server"] == sorted(f"127.0.0.1:{port}" for _, port in ADDRESSES)[number]
    assert f"modulo 12 hosts: number {number}\n" in kcast("where", "--cluster", file, "t").stdout
    refused = kcast("where", "--cluster", file, "-k", "3", "t")
    assert refused.exit_code == 2
    assert "-k needs a policy on the ring" in refused.stderr


def test_where_at_random(tmp_path: Path) -> None:
    lines = ["policy scheme=R publish=4 subscribe=6", "lab"]
    file = cluster_file(tmp_path, *lines, *(f"server 127.0.0.1:{port}" for _, port in ADDRESSES))
    assert len(objects(kcast("where", "--cluster", file, "--json", "t"))) == 12
    told = kcast("where", "--cluster", file, "t").stdout
    assert (
        "publishers send to 4 of 12, drawn at random, subscribers lease on 6 of 12, drawn at random "
        in in_one_line(told)
    )


def test_where_one_host_has_several_servers(tmp_path: Path) -> None:
    file = cluster_file(tmp_path, *(f"server 192.0.2.1:{port}" for port in (7400, 7401, 7402)))
    told = kcast("where", "--cluster", file, "t").stdout
    assert "used      both sides use the one host there is\n" in told


def test_plan_says_whose_policy_and_hosts_it_took(tmp_path: Path) -> None:
    file = cluster_file(
        tmp_path, "policy k=3 publish=2 subscribe=3", "lab", *(f"server 127.0.0.1:{n}" for n in (1, 2, 3))
    )
    for words, taken in {
        (): "the policy and the number of hosts",
        ("--hosts", "20"): "the policy",
        ("5/3/5",): "the number of hosts",
        ("5/3/5", "--hosts", "20"): None,
    }.items():
        told = json.loads(kcast("plan", "--cluster", file, *words, "--json").stdout.splitlines()[0])
        assert told["from"] == (taken and f"{file}: {taken}")
        page = in_one_line(kcast("plan", "--cluster", file, *words).stdout)
        assert (f"from {file}: {taken} setting" in page) if taken else (" from " not in page)
    assert json.loads(kcast("plan", "--json").stdout.splitlines()[0])["from"] is None


# --- ping --------------------------------------------------------------------------------------------


def test_ping_tells_who_is_up_and_who_is_not(tmp_path: Path) -> None:
    options = ("--head", "v42", "--work-bits", "3")
    with ClusterOfProcesses(tmp_path, 3, Policy(3, 2, 3), options=options) as cluster:
        all_up = kcast("ping", "--cluster", str(cluster.file), "--interval", "0.01")
        assert (all_up.exit_code, all_up.stderr) == (0, "")
        assert all_up.stdout.endswith("\n3 of 3 up in lab\n")
        for name in cluster.names:
            assert re.search(
                rf"^{re.escape(name)} +up( +\d+\.\d\d){{3}} +0 % +{re.escape(version('kcast'))}$",
                all_up.stdout,
                re.MULTILINE,
            )
        cluster.kill(cluster.names[1])
        result = kcast("ping", "--cluster", str(cluster.file), "--json", "--interval", "0.01")
    assert (result.exit_code, result.stderr) == (1, f"kcast ping: 1 of 3 down: {cluster.names[1]}\n")
    first, second, third = map(json.loads, result.stdout.splitlines())
    assert all(abs(datetime.fromisoformat(each["time"]).timestamp() - time()) < 60 for each in (first, third))
    assert set(first) == {
        *("time", "server", "address", "up", "sent", "received", "loss"),
        *("rtt_min_ms", "rtt_median_ms", "rtt_max_ms", "draining", "work_bits", "head", "version", "state"),
    }
    assert first["up"] and third["up"]
    assert (first["draining"], first["work_bits"], first["head"]) == (False, 3, "v42")
    assert (first["sent"], first["received"], first["loss"], first["state"]) == (3, 3, 0.0, "up")
    assert 0 < first["rtt_min_ms"] <= first["rtt_median_ms"] <= first["rtt_max_ms"]
    assert [each["version"] for each in (first, second, third)] == [version("kcast"), None, version("kcast")]
    assert (second["server"], second["up"], second["received"]) == (cluster.names[1], False, 0)
    assert (second["loss"], second["rtt_min_ms"]) == (1.0, None)


def test_ping_waits_for_servers_and_for_their_file(tmp_path: Path) -> None:
    with ClusterOfProcesses(tmp_path, 2, Policy(2, 2, 2)) as cluster:
        later, name = tmp_path / "later", cluster.names[0]
        wait = ["ping", "--cluster", str(later), "--wait", "60"]
        for coming in (lambda: later.write_bytes(cluster.file.read_bytes()), lambda: cluster.restart(name)):
            with Command(*wait) as ping:
                with pytest.raises(subprocess.TimeoutExpired):
                    ping.process.wait(1.0)
                coming()
                assert ping.end() == (0, b"", b"")
            cluster.kill(name)
            told = kcast(*wait[:-1], "0.5")
            assert (told.exit_code, told.stderr) == (1, f"kcast ping: 1 of 2 down: {name}\n")


def test_ping_and_where_show_names_as_the_file_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        if host == "nobody.kcast":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with ClusterOfProcesses(tmp_path, 1, Policy(1, 1, 1)) as cluster:
        port = cluster.names[0].rpartition(":")[2]
        file = tmp_path / "named.cluster"
        lines = ["names", f"server kcast-0.kcast:{port} key=a", "server nobody.kcast:7400 key=b"]
        file.write_text("\n".join(("kcast-cluster 1", "policy scheme=CH k=2", *lines, "")))
        result = kcast("ping", "--cluster", str(file), "--count", "1")
        as_json = kcast("ping", "--cluster", str(file), "--count", "1", "--json")
    assert result.stderr.splitlines() == [
        "kcast ping: this list of servers is not signed: whoever can change the file decides which they are",
        "kcast ping: 1 of 2 down: nobody.kcast:7400",
    ]
    assert re.search(rf"^kcast-0\.kcast:{port} \(127\.0\.0\.1\) +up ", result.stdout, re.MULTILINE)
    assert "the name leads to" in result.stdout and result.stdout.endswith("\n1 of 2 up\n")
    up, down = map(json.loads, as_json.stdout.splitlines())
    assert (up["server"], up["address"]) == (f"kcast-0.kcast:{port}", f"127.0.0.1:{port}")
    assert (down["address"], down["state"]) == (None, "down: the name leads to no address")
    shown = kcast("where", "--cluster", str(file), "t").stdout
    assert f"kcast-0.kcast:{port}" in shown and "nobody.kcast:7400" in shown


def test_ping_tells_silence_from_a_closed_port(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
            closed.bind(("127.0.0.1", 0))
            file = tmp_path / "lab.cluster"
            addresses = [silent.getsockname(), closed.getsockname()]
            file.write_text(format_cluster(lab(addresses, Policy(2, 1, 2))))
        result = kcast("ping", "--cluster", str(file), "--json", "--count", "1", "--timeout", "0.2")
    assert result.exit_code == 1
    assert result.stderr.startswith("kcast ping: all of 2 down: 127.0.0.1:")
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["state"] == "down: no answer"
    assert second["state"] == "down: nobody listens"


def test_ping_asks_every_address(tmp_path: Path) -> None:
    file = cluster_file(tmp_path, "server 127.0.0.1:9,[::1]:9")
    result = kcast("ping", "--cluster", file, "--json", "--count", "1", "--timeout", "0.1")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["server"], row["address"]) for row in rows] == [
        ("127.0.0.1:9", "127.0.0.1:9"),
        ("127.0.0.1:9", "[::1]:9"),
    ]
    assert all(row["state"].startswith(("down: ", "not asked: no IPv6 here")) for row in rows)


# --- plan --------------------------------------------------------------------------------------------


def plan(*arguments: str) -> list[dict[str, object]]:
    return objects(kcast("plan", "--json", *arguments))


def test_plan_predicts_delivery() -> None:
    for arguments, delivery in (
        ((), 1 - 0.1**3),
        (("--down", "0.2", "--scheme", "S"), 0.8),
        (("--down", "0.2", "--scheme", "CH", "--k", "4"), 1 - 0.2**4),
        (("--k", "5", "--publish", "2", "--subscribe", "5"), 1 - 0.1**2),
        (("--k", "5", "--subscribe", "2"), 1 - 0.1**2),
        (("5/2/5",), 1 - 0.1**2),
        (("4/4/4", "--down", "0.2"), 1 - 0.2**4),
        (("--hosts", "3"), 1 - 0.1**3),
        (("--down", "0", "--scheme", "R"), model.delivery(100, 30, 30, 1.0)),
        # The lab of `kcast demo`: four of twelve killed.
        (("--hosts", "12", "--down-exactly", "4", "--k", "5", "--publish", "1"), 1 - 4 / 12),
        (("--hosts", "12", "--down-exactly", "4", "--k", "5", "--publish", "2"), 1 - 6 / 66),
        (("--hosts", "12", "--down-exactly", "4", "--k", "5", "--publish", "3"), 1 - 4 / 220),
        (("--hosts", "12", "--down-exactly", "2"), 1.0),
        # Repeats go to fresh hosts first: 2 of 4, twice, is 4 of 4; a third time is each host once or twice.
        (("--k", "4", "--publish", "2", "--repeat", "2"), 1 - 0.1**4),
        (("--k", "4", "--publish", "2", "--repeat", "3"), 1 - 0.1**4),
    ):
        predicted = plan(*arguments)[0]
        assert predicted["delivery"] == pytest.approx(delivery, abs=1e-12), arguments
        assert predicted["miss"] == pytest.approx(1 - delivery, abs=1e-12), arguments
        assert predicted["avoidance"] is False


def test_plan_counts_loss_renewals_and_repeats() -> None:
    loss, live = 0.1, 1 - 0.1**3
    once = live * (1 - loss) ** 2
    first = plan("--down", "0", "--loss", "0.1")[0]
    assert first["delivery"] == pytest.approx(1 - (1 - once) ** 3)
    assert first["copies"] == pytest.approx(3 * once)
    # Three sends of 2 to 4 hosts: two of them get two, two get one.
    twice = live * (1 - (1 - (1 - loss) ** 2) ** 2)
    repeated = plan("--down", "0", "--loss", "0.1", "--k", "4", "--publish", "2", "--repeat", "3")[0]
    assert repeated["delivery"] == pytest.approx(1 - (1 - once) ** 2 * (1 - twice) ** 2)


def test_plan_with_no_host_down_is_plan_with_exactly_none_down() -> None:
    for policy in (("--k", "4", "--publish", "2", "--repeat", "3"), ("--scheme", "R"), ("--subscribe", "2")):
        shared = ("--loss", "0.2", *policy)
        one, other = plan("--down", "0", *shared)[0], plan("--down-exactly", "0", *shared)[0]
        for key in ("delivery", "whole_audience", "copies", "packets_per_s"):
            assert one[key] == pytest.approx(other[key]), (policy, key)


def test_plan_tells_the_audience_and_the_cost() -> None:
    few = plan("--subscribers", "20", "--rate", "10")[0]
    # Few publish loses a message for all or none; few subscribe loses somebody nearly always.
    assert few["whole_audience"] == pytest.approx(0.999)
    lone = plan("--subscribers", "20", "--subscribe", "3")[0]
    assert lone["delivery"] == pytest.approx(0.999)
    assert float(str(lone["whole_audience"])) < 0.999
    assert few["published_per_s"] == pytest.approx(30)
    assert few["forwarded_per_s"] == pytest.approx(10 * 20 * 3 * 0.9)
    assert few["renewals_per_s"] == pytest.approx(20 * 5 / 20)
    assert few["packets_per_message"] == pytest.approx(3 + 20 * 3 * 0.9)
    assert (few["blocked_to_stop"], few["blocked_to_halve"]) == (5, 5)


def test_plan_finds_the_best_ttl() -> None:
    predicted = plan("--rate", "10", "--lifetime", "3600", "--ttl", "300")[0]
    best = model.best_ttl(10 * 3 / 5, 3600, 3, 25.0)
    assert predicted["best_ttl_s"] == pytest.approx(best)
    assert float(str(predicted["waste_at_best_per_s"])) < float(str(predicted["waste_per_s"]))


def test_plan_sets_others_beside_it_and_takes_the_policy_of_a_cluster(lab_file: str) -> None:
    names = [str(each["policy"]) for each in plan()]
    assert names[0] == str(Policy())
    assert names[1:6] == [str(Policy(5, k_prime, 5)) for k_prime in range(1, 6)]
    assert names[6:] == [str(Policy(k, k, k)) for k in range(1, 6)]
    predicted = plan("--cluster", lab_file, "--down-exactly", "4")[0]
    assert predicted["delivery"] == pytest.approx(1 - 4 / 220)


def test_plan_as_a_table() -> None:
    told = kcast("plan", "--hosts", "12", "--down-exactly", "4", "--publish", "2").stdout
    assert "setting    12 hosts, exactly 4 of them down; packet loss 0.0 % each way\n" in told
    assert "publishers do not avoid dead servers\n" in told
    assert re.search(r"^\* +5/2/5 +90\.9 % +11 ", told, re.MULTILINE)
    assert re.search(r"^ +5/5/5 +100 % +none ", told, re.MULTILINE)
    assert "best TTL   " in told and "*: yours" in in_one_line(told)
    assert max(map(len, told.splitlines())) <= 80


def test_plan_marks_one_row_as_yours() -> None:
    for options, marked in (
        (("--scheme", "CH"), ["3/3/3"]),
        (("--scheme", "CH", "--k", "7"), ["7/7/7"]),
        (("--hosts", "2"), ["5/3/5"]),
        (("--publish", "1"), ["5/1/5"]),
        (("--subscribe", "3"), ["5/5/3"]),
        (("--scheme", "R"), ["100/30/30 (scheme R)"]),
    ):
        told = kcast("plan", *options).stdout
        assert re.findall(r"^\* +(\S+(?: \S+)*)", told, re.MULTILINE) == marked, options


def test_plan_tells_what_work_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "measured_tries_per_s", lambda: 2.0**20)
    first, *others = plan("--work-bits", "18", "--subscribe", "4")
    for each in (first, *others):
        assert each["work"] == {
            "bits": 18,
            "tries_per_s": 2.0**20,
            "lease_s": 0.25,
            "subscription_s": int(str(each["subscribe"])) / 4,
            "table_leases": 100_000,
            "table_s": 25_000.0,
        }
    assert first["subscribe"] == 4
    told = kcast("plan", "--work-bits", "18").stdout
    assert (
        "work 18 bits: a new lease takes 250 ms on one core here, a subscription 1.25 s (5 servers) "
        "to fill a table of 100,000 leases takes 6.94 h; on average, at 1 million tries/s "
    ) in in_one_line(told)


def test_plan_measures_here_how_fast_stamps_are_tried() -> None:
    """A machine that does less than 10,000 a second, or more than 100 million, is not this one."""
    told = plan("--work-bits", "0")[0]["work"]
    assert isinstance(told, dict)
    assert 1e4 < told["tries_per_s"] < 1e8
    assert (told["lease_s"], told["table_s"]) == (0.0, 0.0)


def test_plan_puts_durations_in_a_unit_that_says_something() -> None:
    for duration_s, told in {
        0.0: "0 ms",
        0.00031: "0.31 ms",
        4.2: "4.2 s",
        130: "2.17 min",
        25_000: "6.94 h",
        1e7: "116 days",
    }.items():
        assert plan_module._duration(duration_s) == told


def test_plan_usage_errors() -> None:
    for arguments, complaint in (
        ("--publish 1 --subscribe 1", "may have no host in common"),
        ("--down nan", "nan is not a finite number"),
        ("--scheme X", "is not one of"),
        ("5-3-5", "invalid value for 'POLICY': expected K/PUBLISH/SUBSCRIBE, such as 5/3/5, not '5-3-5'"),
        ("3/4/3", "publish=4 is more than k=3: raise k, or lower publish"),
        ("5/3/5 --k 4 --publish 2", "5/3/5 says all of the policy: leave out --k and --publish"),
    ):
        result = kcast("plan", *arguments.split())
        assert result.exit_code == 2
        assert complaint in result.stderr


def test_plan_has_an_answer_at_every_edge() -> None:
    for arguments in (
        "--down 1",
        "--scheme S --down-exactly 100",
        "--scheme R --hosts 1",
        "--scheme R --hosts 2000 --loss 0.3 --repeat 2",
        "--k 1000 --hosts 1000",
        "--loss 0.999 --repeat 100 --rate 1e9 --lifetime 1",
        "--ttl 1e9 --rate 1e-9 --lifetime 1e12",
    ):
        for predicted in plan(*arguments.split()):
            for key in ("delivery", "miss", "whole_audience"):
                assert -1e-12 <= float(str(predicted[key])) <= 1 + 1e-12
        assert kcast("plan", *arguments.split()).exit_code == 0


# --- Signed lists -------------------------------------------------------------------------------------


def test_a_list_that_is_late_is_told_once(tmp_path: Path) -> None:
    pytest.importorskip("nacl")
    from tests.support.published import AT_NAME, KnownList

    for age_s, faults in ((0, []), (120, ["(stale)"]), (7200, ["(expired)"])):
        known = KnownList(tmp_path / str(age_s), Policy(3, 2, 3))
        known.publish(lab(ADDRESSES[:3]).servers, age_s=age_s)
        environment = {"KCAST_CLUSTER": None, **known.environment}
        for line in ("where weather/oslo", "plan", "ping --count 1 --timeout 0.05"):
            result = CliRunner().invoke(main, [*line.split(), "--cluster", AT_NAME], env=environment)
            assert re.findall(r"\((?:stale|expired)\)", result.stderr) == faults, result.stderr


# --- What shows a difference --------------------------------------------------------------------------


def test_plan_tells_how_long_two_tests_must_be() -> None:
    done = kcast("plan", "5/3/5", "--hosts", "12", "--loss", "0.02", "--rate", "5", "--detect", "0.1")
    assert done.exit_code == 0
    words = in_one_line(done.stdout)
    assert "to detect 0.1 points less than 99.75 %: two runs of 1085 epochs of 2 s each" in words
    assert "of one seed, with the same servers down: 143 epochs" in words
    first, *others = plan("5/3/5", "--loss", "0.02", "--detect", "1")
    assert isinstance(first["detection"], dict)
    assert first["detection"]["epochs"] >= first["detection"]["epochs_same_seed"] > 0
    assert {each["detection"] for each in others if each["policy"] != "5/3/5"} == {None}
    none = kcast("plan", "5/3/5", "--down", "0", "--detect", "0.1")
    assert "There is no exact theory for what shows 0.1 points here" in in_one_line(none.stdout)
