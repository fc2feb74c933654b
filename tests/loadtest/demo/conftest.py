import pytest

from kcast.loadtest.demo.plan import DemoResult
from kcast.loadtest.demo.tally import Phase, PhaseResult


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a run had just gone well."""
    phase_results = [
        PhaseResult(Phase.DOWN, k, 2, 10, 40, 39, 0, 0, (0.9, 1.0), 0.9, 38, 40) for k in (1, 2, 3)
    ]
    monkeypatch.setattr(
        "kcast.loadtest.demo.command._run", lambda *_: DemoResult(phase_results, leases_after_s=1.0)
    )
