"""Access to the Docker engine, and the removal of all that a container cluster has created there.

Every container and network has two labels: the run's name, and its owner, the process that created it. The
reaper, which is this module as a program, removes them when the owner ends; if the reaper was killed too,
`sweep` removes them in the next run on the machine.

    python -m kcast.loadtest.clusters.engine RUN

The reaper's standard input is a pipe from the owner, which the kernel closes however the owner ends. If the
owner has written `end`, it has no requests under way, and nothing more can appear.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kcast.client.cli.common import how_to_install
from kcast.loadtest.clusters.servers import EngineMissing, ServerFailed

RUN_LABEL = "kcast.load.run"
OWNER_LABEL = "kcast.load.owner"

PARALLEL = 8  # requests at a time: most of each is waiting
_TIMEOUT_S = 60
_REMOVE_TIMEOUT_S = 90.0
_SETTLING_S = 2.0  # how late things may appear that a killed process has requested
_POLL_S = 0.1
_ALIVE = ("running", "paused", "restarting")
_LEFT_AFTER = timedelta(days=2)  # a day, and the rounding of dates


def connect() -> Any:
    """Returns a client of the engine. Raises EngineMissing."""
    try:
        import docker
    except ImportError:
        raise EngineMissing(f"containers need a library: {how_to_install('load')} brings it") from None
    where = os.environ.get("DOCKER_HOST") or "this machine"
    try:
        client = docker.from_env(timeout=_TIMEOUT_S, max_pool_size=2 * PARALLEL)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise EngineMissing(
            f"no Docker engine answers on {where} ({_reason(error)}); start it, name another in DOCKER_HOST, "
            "or use --backend processes"
        ) from None
    return client


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turns errors of the engine, and that it does not answer, into ServerFailed."""
    import docker
    import requests

    try:
        yield
    except docker.errors.APIError as error:
        raise ServerFailed(f"the Docker engine: {error.explanation or error}") from None
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise ServerFailed(f"the Docker engine does not answer: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """Returns the system's words for why; the libraries' quote objects of Python."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        if isinstance(cause, TimeoutError):
            return "no answer in time"
        cause = cause.__cause__ or cause.__context__
    return str(error).splitlines()[0]


def in_parallel(work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """Returns `work` of each item. All are tried, then the first failure is raised."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def labels(run: str) -> dict[str, str]:
    """Returns the labels for a run of this process."""
    return {RUN_LABEL: run, OWNER_LABEL: identity(os.getpid())}


def remove(client: Any, run: str, *, is_settled: bool) -> list[str]:
    """Removes everything of a run; returns what could not be removed, and why.

    If it is not settled, containers that the owner had requested may still appear: it waits for these.
    """
    import docker

    settling_s = 0.0 if is_settled else _SETTLING_S
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    clean_since: float | None = None
    problems: list[str] = []
    while clean_since is None or time.monotonic() < clean_since + settling_s:
        containers, networks = _found(client, f"{RUN_LABEL}={run}")
        if containers or networks:
            if time.monotonic() >= deadline:
                return problems or [f"{len(containers)} containers, {len(networks)} networks"]
            clean_since = None
            problems = []
            _remove(containers, networks, docker.errors, problems)
        else:
            clean_since = clean_since or time.monotonic()
            if clean_since + settling_s <= time.monotonic():
                break
        time.sleep(_POLL_S)
    return []


def sweep(client: Any) -> int:
    """Removes what dead owners have left; returns the number of containers and networks removed.

    Of processes of this machine since its last boot it is known whether they are dead. What other owners have
    created is removed if it is more than a day old and no container of its run is running.
    """
    import docker

    containers, networks = _found(client, OWNER_LABEL)
    alive = {_labels(each).get(RUN_LABEL) for each in containers if each.attrs["State"] in _ALIVE}

    def is_left(each: Any, created: datetime) -> bool:
        owner = _labels(each).get(OWNER_LABEL, "")
        if owner.startswith(_place()):
            return is_dead(owner)
        return _labels(each).get(RUN_LABEL) not in alive and datetime.now(UTC) - created > _LEFT_AFTER

    left_containers = [
        each for each in containers if is_left(each, datetime.fromtimestamp(each.attrs["Created"], UTC))
    ]
    left_networks = [each for each in networks if is_left(each, _date(each.attrs["Created"]))]
    _remove(left_containers, left_networks, docker.errors, [])
    return len(left_containers) + len(left_networks)


def _labels(each: Any) -> dict[str, str]:
    return each.attrs.get("Labels") or {}


def _date(text: str) -> datetime:
    """The day of a time as the engine writes it, with a fraction of any length."""
    return datetime.fromisoformat(text[:10]).replace(tzinfo=UTC)


def _found(client: Any, label: str) -> tuple[list[Any], list[Any]]:
    filters = {"label": label}
    # Sparse: without a further request for each, which fails for those that are removed meanwhile.
    containers = client.containers.list(all=True, filters=filters, sparse=True)
    return containers, client.networks.list(filters=filters)


def _remove(containers: list[Any], networks: list[Any], errors: Any, problems: list[str]) -> None:
    def remove_container(container: Any) -> None:
        try:
            container.remove(force=True, v=True)
        except errors.NotFound:
            pass
        except errors.APIError as error:  # for example, it is already being removed
            problems.append(f"{container.short_id}: {error.explanation or error}")

    in_parallel(remove_container, containers)
    for network in networks:
        try:
            network.remove()
        except errors.NotFound:
            pass
        except errors.APIError as error:
            problems.append(f"{network.name}: {error.explanation or error}")


# --- Owners ------------------------------------------------------------------------------------------


def is_dead(owner: str) -> bool:
    """Returns whether an owner, given by its label, has ended; it must be of this machine's current boot."""
    process_id = owner.rpartition(" ")[2].partition("/")[0]
    return not process_id.isdigit() or owner != identity(int(process_id))


def identity(process_id: int) -> str:
    """Returns a name that no other process ever has; empty if the system does not tell."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text("ascii", "replace")
    except OSError:
        return ""
    began = stat.rpartition(")")[2].split()[22 - 3]
    return f"{_place()} {process_id}/{began}"


def _place() -> str:
    """The scope of process numbers: the machine's boot, and the process namespace in it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return "unknown"


def reap(run: str) -> int:
    """Removes what the run has on the engine; returns the exit code, and prints what could not be removed."""
    is_settled = sys.stdin.buffer.read() == b"end"
    try:
        left = remove(connect(), run, is_settled=is_settled)
    except EngineMissing as error:
        left = [str(error)]
    except Exception as error:  # whatever it is, the owner must learn of it
        left = [repr(error)]
    for problem in left:
        print(problem, file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(reap(sys.argv[1]))
