"""loadtest/results/causes.py: pages that give the causes and their order have them all, and in this order."""

import re

import pytest

from kcast.loadtest.results.causes import Cause
from tests.support.project_files import texts

LABELS = [cause.label for cause in Cause if cause is not Cause.DELIVERED]


@pytest.mark.parametrize(
    ("page", "pattern"),
    [
        ("docs/capture.md", r"Paths end in\s.*?\n\n(.*?)\n\n"),
        ("docs/load.md", r"## Causes of misses\n(.*?)\n## "),
    ],
)
def test_a_page_has_the_order_of_causes(page: str, pattern: str) -> None:
    found = re.search(pattern, texts()[page], re.S)
    assert found
    labels = [label for label in re.findall(r"`([a-z-]+)`", found[1]) if label in LABELS]
    assert list(dict.fromkeys(labels)) == LABELS
