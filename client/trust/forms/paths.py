"""Where the files of a published list lie, below each place to fetch it from. Sans-IO. PROTOCOL §10.6."""

CHECKPOINT = "checkpoint"
LATEST = "latest.tlog-proof"  # the proof of the newest list, with its record and the checkpoint
BUNDLE = "bundle"
PROOF_BYTES_MAX = 64 * 1024  # of a proof, and of a checkpoint


def list_path(version: int) -> str:
    """Returns where a list lies."""
    return f"list/{version}"


def trust_path(version: int) -> str:
    """Returns where a trust document lies."""
    return f"trust/{version}"


def proof_path(path: str) -> str:
    """Returns where the proof lies that the list or trust document at `path` is logged."""
    return f"{path}.tlog-proof"


def step_path(old_size: int) -> str:
    """Returns where the way lies from a log of this size to the newest checkpoint."""
    return f"from/{old_size}"
