"""What holds for all tests."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.serve_process import Serve, serving

# Shells let what they start in the background ignore Ctrl-C, and children inherit that. Tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts real servers."""
    with serving() as start:
        yield start


@pytest.fixture(scope="session", autouse=True)
def _no_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps tests, and all that they start, away from the contexts, and the trust, of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("KCAST_TRUST_PATH", "")
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("configuration")))
        yield
