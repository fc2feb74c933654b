"""Removes all that a container cluster has on the engine, when its owner ends.

    python -m kcast.loadtest.clusters.reaper RUN

Standard input is a pipe from the owner, which the kernel closes however the owner ends. If the owner has
written `end`, it has no requests under way, and nothing more can appear.
"""

import sys

from kcast.loadtest.clusters.engine import connect, remove
from kcast.loadtest.clusters.servers import EngineMissing


def main(run: str) -> int:
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
    sys.exit(main(sys.argv[1]))
