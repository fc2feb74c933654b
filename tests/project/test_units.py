"""docs/kcast.service and docs/kcast.statefulset.yaml: they start and probe with commands that kcast has, and
give its servers the time to drain. No systemd and no cluster is needed."""

import re
from typing import Any

import click
import pytest

from kcast.client.cli import main
from kcast.client.cluster import parse
from kcast.pubsub.limits import DRAIN_MARGIN_S, RENEWAL_INTERVAL_S_MAX
from tests.support.checkout import ROOT

yaml: Any = pytest.importorskip("yaml")

DRAIN_S = RENEWAL_INTERVAL_S_MAX + DRAIN_MARGIN_S
ENOUGH_S = 5.0  # for the process to end once it has drained


def assert_is_a_command_of_ours(command: list[str]) -> None:
    name, *options = command
    found = main.get_command(click.Context(main), name)
    assert found is not None, name
    found.make_context(name, options)


def test_the_systemd_unit() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", (ROOT / "docs/kcast.service").read_text(), re.MULTILINE))
    program, *command, options = settings["ExecStart"].split()
    assert (program, options) == ("/opt/kcast/bin/kcast", "$KCAST_OPTIONS")
    assert_is_a_command_of_ours(command)
    assert int(settings["TimeoutStopSec"]) >= DRAIN_S + ENOUGH_S
    # Workers are signalled by the main process; by systemd too, their second signal would end the draining.
    assert settings["KillMode"] == "mixed"


def test_the_stateful_set() -> None:
    parts = {
        part["kind"]: part for part in yaml.safe_load_all((ROOT / "docs/kcast.statefulset.yaml").read_text())
    }
    spec, service = parts["StatefulSet"]["spec"], parts["Service"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert_is_a_command_of_ours(container["args"])
    for probe in ("readinessProbe", "livenessProbe"):
        program, *command = container[probe]["exec"]["command"]
        assert program == "kcast"
        assert_is_a_command_of_ours(command)

    # Each pod is in the cluster file by its name, which the service gives it whether it is ready or not.
    (text,) = parts["ConfigMap"]["data"].values()
    (port,) = [each for each in container["ports"] if each["protocol"] == "UDP"]
    pods = [f"{parts['StatefulSet']['metadata']['name']}-{number}" for number in range(spec["replicas"])]
    assert [(server.key, server.named) for server in parse(text, "the ConfigMap").servers] == [
        (pod, (f"{pod}.{service['metadata']['name']}", port["containerPort"])) for pod in pods
    ]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"] == spec["template"]["metadata"]["labels"]

    # No probe cuts the draining short.
    assert pod["terminationGracePeriodSeconds"] >= DRAIN_S + ENOUGH_S
    alive = container["livenessProbe"]
    assert alive["periodSeconds"] * (alive["failureThreshold"] - 1) > DRAIN_S
