"""Opens a cluster to test on, by the name of its backend: processes, lab or containers."""

from pathlib import Path

from kcast.loadtest.clusters.servers import IMAGE, Servers


def open_servers(
    backend: str,
    count: int,
    *,
    ttl_s: int,
    options: tuple[str, ...] = (),
    tap_dir: Path | None = None,
    image: str = IMAGE,
) -> Servers:
    """Returns `count` servers with leases of `ttl_s` seconds; they start at the beginning of the `with`.

    `options` are passed to `kcast serve`. With `tap_dir`, a folder that exists, each life of a server writes
    a tap there. `image` is for containers only. Raises ValueError if there can be no such cluster.
    """
    # Imported here: containers need a library that the others do not.
    if backend == "processes":
        from kcast.loadtest.clusters.processes import ProcessCluster

        return ProcessCluster(count, ttl_s=ttl_s, options=options, tap_dir=tap_dir)
    if backend == "lab":
        from kcast.loadtest.clusters.lab import LabCluster

        return LabCluster(count, ttl_s=ttl_s, options=options, tap_dir=tap_dir)
    if backend == "containers":
        from kcast.loadtest.clusters.containers import ContainerCluster

        return ContainerCluster(count, ttl_s=ttl_s, options=options, tap_dir=tap_dir, image=image)
    raise ValueError(f"backend is {backend!r}: use processes, lab or containers")
