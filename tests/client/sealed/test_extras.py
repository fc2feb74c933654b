"""Where an extra is missing, what needs it says so, with the line that installs it."""

import runpy
import sys

import pytest

from kcast.client.cluster import ClusterError
from tests.support.checkout import ROOT


@pytest.mark.parametrize(
    ("module", "library", "says"),
    [
        ("signing", "nacl", "a signed message needs the extra 'trust': "),
        ("dhkem", "cryptography", "a sealed message needs the extra 'trust': "),
        ("sealing", "cryptography", "a sealed message needs the extra 'trust': "),
    ],
)
def test_the_line_that_installs_it(
    module: str, library: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "cryptography":
        pytest.importorskip("nacl")
    for name in [*sys.modules, library]:
        if name.partition(".")[0] == library:
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ClusterError) as caught:
        runpy.run_path(str(ROOT / "client" / "sealed" / f"{module}.py"))
    assert str(caught.value) == f"{says}{sys.executable} -m pip install 'kcast[trust]'"
