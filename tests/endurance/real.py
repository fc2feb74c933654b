"""Minutes of real time: a real server, shipped clients that come and go, and strangers' junk.

What is measured is the memory that the kernel counts for the server and for its users (RSS).
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.attacks.junk import KINDS
from tests.attacks.lab import Lab, Served
from tests.endurance.flat import growth, is_flat

REPORT_S = 15.0
SAMPLES_MIN = 16
JUNK_PER_S = 100
TTL_S = 10
DELIVERED_MIN = 0.999


@dataclass(frozen=True)
class Outcome:
    """What was seen: the memory of the server and its users, messages, and lines that tell of errors."""

    server_bytes: list[float]
    users_bytes: list[float]
    sent: int
    came: int
    complaints: list[str]

    def faults(self) -> Iterator[str]:
        """Yields what is not as it should be."""
        for name, samples in ("server", self.server_bytes), ("clients", self.users_bytes):
            if not is_flat(samples):
                yield f"the {name} grew by {growth(samples):.3f}"
        yield from self.losses()

    def losses(self) -> Iterator[str]:
        """Yields what is wrong besides memory."""
        if self.came < DELIVERED_MIN * self.sent or not self.sent:
            yield f"{self.came} of {self.sent} messages came"
        yield from self.complaints


def run(minutes: float, tell: Callable[[str], None]) -> Outcome:
    """Runs for so long, and tells how it goes on."""
    seconds = 60 * minutes
    report_s = min(REPORT_S, seconds / SAMPLES_MIN)
    server_bytes: list[float] = []
    users_bytes: list[float] = []
    told: dict[str, int] = {}
    with TemporaryDirectory(prefix="kcast-endurance-") as folder, Lab(scratch=Path(folder)) as lab:
        server_file, users_file = (Path(folder, name) for name in ("server", "users"))
        with server_file.open("wb") as server_errors, users_file.open("wb") as users_errors:
            server = lab.serve("--ttl", str(TTL_S), "--log", "json", stderr=server_errors)
            program = (sys.executable, "-m", "tests.endurance.users")
            file = lab.cluster_file(server.address)
            users = lab.start(
                *program, file, f"--seconds={seconds}", f"--report-s={report_s}", stderr=users_errors
            )
        assert users.stdout is not None
        lab.flood(server.address, next(iter(KINDS)), rate=JUNK_PER_S, seconds=report_s)
        for number, line in enumerate(users.stdout, 1):
            told = json.loads(line)
            if server.process.poll() is not None or users.poll() is not None:
                break
            server_bytes.append(rss_bytes(server.process.pid))
            users_bytes.append(rss_bytes(users.pid))
            kind = list(KINDS)[number % len(KINDS)]
            lab.flood(server.address, kind, rate=JUNK_PER_S, seconds=report_s)
            tell(
                f"{number * report_s / 60:.1f} min: server {server_bytes[-1] / 1e6:.1f} MB, clients "
                f"{users_bytes[-1] / 1e6:.1f} MB; {told['came']:,} of {told['sent']:,} messages came; "
                f"{told['guests']} clients, {told['topics']} topics and {told['leavers']} leavers so far"
            )
        complaints = list(_complaints(server, server_file, users.wait(60), users_file))
    return Outcome(server_bytes, users_bytes, told.get("sent", 0), told.get("came", 0), complaints)


def rss_bytes(process_id: int) -> float:
    """Returns the memory that the kernel counts for a process; see proc_pid_status(5)."""
    status = Path(f"/proc/{process_id}/status").read_text()
    (kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return 1024.0 * int(kib)


def _complaints(server: Served, server_file: Path, users_code: int, users_file: Path) -> Iterator[str]:
    """Yields what tells of errors. The server's log has drops and warnings too, which junk causes."""
    if server.process.poll() is not None:
        yield f"the server ended with {server.process.returncode}"
    if users_code:
        yield f"the users ended with {users_code}"
    yield from users_file.read_text().splitlines()
    for line in server_file.read_text().splitlines():
        try:
            is_error = json.loads(line)["level"] == "error"
        except ValueError:
            is_error = True  # what is no line of the log is a traceback
        if is_error:
            yield line
