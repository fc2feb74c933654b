"""docs/kcast.statefulset.yaml: what it starts, mounts and probes is what kcast has. No cluster is needed."""

from typing import Any

import click
import pytest

from kcast.client.cli import main
from kcast.client.cluster import Cluster, parse
from kcast.hashring.policy import Policy
from kcast.pubsub.limits import DRAIN_MARGIN_S, RENEWAL_INTERVAL_S_MAX
from tests.support.checkout import ROOT

yaml: Any = pytest.importorskip("yaml")

FILE = ROOT / "docs" / "kcast.statefulset.yaml"
ENOUGH_S = 5.0  # for the process to end once it has drained


def parts() -> dict[str, Any]:
    return {part["kind"]: part for part in yaml.safe_load_all(FILE.read_text())}


def container() -> Any:
    (found,) = parts()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return found


def cluster() -> Cluster:
    (text,) = parts()["ConfigMap"]["data"].values()
    return parse(text, "the ConfigMap")


def options_of(command: list[str]) -> dict[str, Any]:
    """The parameters that a command line of ours stands for."""
    name, *options = command
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found.make_context(name, options).params


def test_what_it_starts_and_probes_with_are_commands_of_ours() -> None:
    assert options_of(container()["args"])
    for probe in ("readinessProbe", "livenessProbe"):
        program, *command = container()[probe]["exec"]["command"]
        assert program == "kcast"
        options_of(command)


def test_each_pod_is_in_the_cluster_file_by_its_name_and_port() -> None:
    spec, service = parts()["StatefulSet"]["spec"], parts()["Service"]
    name = parts()["StatefulSet"]["metadata"]["name"]
    (port,) = [each for each in container()["ports"] if each["protocol"] == "UDP"]
    pods = [f"{name}-{number}" for number in range(spec["replicas"])]
    assert [server.key for server in cluster().servers] == pods
    expected = [(f"{pod}.{service['metadata']['name']}", port["containerPort"]) for pod in pods]
    assert [server.named for server in cluster().servers] == expected
    assert cluster().has_names and cluster().policy == Policy(3, 2, 3)


def test_the_service_gives_each_pod_a_name_whether_it_is_ready_or_not() -> None:
    spec, service = parts()["StatefulSet"]["spec"], parts()["Service"]
    assert spec["serviceName"] == service["metadata"]["name"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    labels = spec["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == spec["selector"]["matchLabels"] == labels
    (port,) = service["spec"]["ports"]
    (own,) = [each for each in container()["ports"] if each["name"] == port["targetPort"]]
    assert port["protocol"] == own["protocol"] == "UDP"
    assert spec["podManagementPolicy"] == "Parallel"


def test_there_is_time_to_drain_and_no_probe_cuts_it_short() -> None:
    drain_s = RENEWAL_INTERVAL_S_MAX + DRAIN_MARGIN_S
    pod = parts()["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= drain_s + ENOUGH_S
    alive = container()["livenessProbe"]
    assert alive["periodSeconds"] * (alive["failureThreshold"] - 1) > drain_s
    assert parts()["StatefulSet"]["spec"]["minReadySeconds"] >= RENEWAL_INTERVAL_S_MAX


def test_it_has_no_more_rights_than_in_compose() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["x-hardened"]
    own, pod = container()["securityContext"], parts()["StatefulSet"]["spec"]["template"]["spec"]
    assert own["readOnlyRootFilesystem"] is compose["read_only"] is True
    assert own["capabilities"]["drop"] == compose["cap_drop"] == ["ALL"]
    assert own["allowPrivilegeEscalation"] is False
    assert compose["security_opt"] == ["no-new-privileges:true"]
    user = f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert pod["securityContext"]["runAsNonRoot"] and user in (ROOT / "Dockerfile").read_text()
    assert pod["automountServiceAccountToken"] is False
