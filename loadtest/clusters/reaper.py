"""Removes what a container cluster has on the engine, once standard input ends: with its owner, that is.

    python -m kcast.loadtest.clusters.reaper RUN

The owner holds the other end of the pipe, and the kernel closes that however the owner ends. If it has
written `end`, nothing can come any more.
"""

import sys

from kcast.loadtest.clusters.engine import connect, remove
from kcast.loadtest.clusters.servers import EngineMissing


def main(run: str) -> int:
    """The exit code; what could not be removed is told on standard error."""
    is_settled = sys.stdin.buffer.read() == b"end"
    try:
        left = remove(connect(), run, is_settled=is_settled)
    except EngineMissing as error:
        left = [str(error)]
    except Exception as error:  # whatever it is, the owner has to hear of it
        left = [repr(error)]
    for problem in left:
        print(problem, file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
