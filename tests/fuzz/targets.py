"""The targets, by name."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.support.checkout import ROOT

CORPUS = ROOT / "tests" / "fuzz" / "corpus"

Check = Callable[[bytes], None]


class Target(NamedTuple):
    """What is fuzzed: a module of `tests.fuzz`, and the length of its longest input.

    Where `compares`, the fuzzer is told what the code compares: that helps with words of a text, and takes as
    long as all else. Compared arrays of numpy would never be freed.
    """

    module: str
    bytes_max: int
    compares: bool = True


TARGETS = {
    "server": Target("server", 300, compares=False),
    "client": Target("client", 250, compares=False),
    "signed-forms": Target("signed_forms", 2_500),
    "group-file": Target("group_file", 2_500),
    "cluster-file": Target("cluster_file", 1_000),
    "tap-reader": Target("tap_reader", 600),
    "tap-writer": Target("tap_writer", 300),
    "capture-lines": Target("capture_lines", 300, compares=False),
    "capture-files": Target("capture_files", 2_500),
    "wire": Target("wire_lines", 250),
    "router": Target("router", 400),
    "copies": Target("copies", 400, compares=False),
    "messages": Target("messages", 400),
    "sealed": Target("sealed", 900),
    "kernel-filter": Target("kernel_filter", 40),
}


def check_of(name: str) -> Check:
    """Imports a target."""
    check: Check = import_module(f"tests.fuzz.{TARGETS[name].module}").check
    return check


def corpus_of(name: str) -> list[Path]:
    """The inputs of a target that are in the repository."""
    return sorted((CORPUS / name).glob("*"))  # which may be none, beside the seeds
