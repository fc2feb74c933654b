"""Every simulation holds the clients' sessions against the table of states."""

import pytest

from kcast.client.session.session import Session
from tests.simulation import coarse_stamps as coarse
from tests.support.liveness_table import Watched


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Fails where a session's state changes as the table does not tell."""
    watched = Watched()
    monkeypatch.setattr(Session, "liveness", watched, raising=False)
    return watched


@pytest.fixture
def coarse_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes most of the computing out of a world of many stamps, and nothing else."""
    coarse.install(monkeypatch)
