"""The smallest capture that can be analysed: one message, that one server forwards to one subscriber."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from kcast.loadtest.capture import parts
from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.capture.manifest import PART_SUFFIX, table_folder
from kcast.loadtest.capture.schema import OPENED, TABLES
from kcast.loadtest.scenario import Scenario

_S = 1_000_000_000
_T0 = 1_000 * _S

_EMPTY: dict[str, Any] = {"string": "", "list<int32>": []}
# What differs from these, and from 0.
_ROWS: dict[str, dict[str, Any]] = {
    "publish": {"t_intended_ns": _T0, "t_send_ns": _T0, "size_bytes": 40},
    "pub_tx": {"t_tx_ns": _T0},
    "server_rx": {"t_rx_ns": _T0, "boot_id": 1},
    "deliver": {"t_user_ns": _T0 + 1, "t_kernel_ns": _T0 + 1},
    "lease": {"boot_id": 1, "change": OPENED},
    "server_life": {"boot_id": 1, "t_to_ns": _T0 + _S, "ended": 1},
    "intent": {"t_to_ns": _T0 + _S},
    "window": {"t_from_ns": _T0, "t_to_ns": _T0 + _S, "scheduled": 1},
    "outage": {"server_id": 1, "t_down_ns": _T0, "t_up_ns": _T0 + _S, "kind": "isolation", "plan": "exact"},
    "member": {"servers": [0, 1]},
    "client_stat": {"copies": 1, "deliveries": 1},
}


def write_sample(path: Path) -> Path:
    """Writes the capture into a folder that is new or empty; returns it. Raises OSError, CaptureError."""
    sizes: dict[str, Any] = dict.fromkeys(("publishers", "subscribers", "topics", "topics_per_subscriber"), 1)
    scenario = Scenario(name="sample", servers=2, k=1, scheme="CH", duration_s=1.0, **sizes)
    run = create_run(path, [scenario], seed=1)
    folder = run.begin(scenario.name)
    for table, columns in TABLES.items():
        row = {name: _EMPTY.get(kind, 0) for name, kind, _ in columns} | _ROWS.get(table, {})
        rows = parts.to_rows(table, {name: [value] for name, value in row.items()})
        path_of_part = folder.path / table_folder(table) / f"sample-0{PART_SUFFIX}"
        parts.write_part(path_of_part, pa.Table.from_batches([rows]))
    folder.finish("complete", t0_ns=_T0)
    run.finish("complete")
    return path
