"""The bundle: what a client needs of a log in one file, for USB sticks and other ways without a network.

PROTOCOL §10.8. `kcast-bundle 1`, LF; then for each file its path, a space, its size in bytes, LF, the bytes,
LF. The paths are those of the published folder (§10.7). Sans-IO.
"""

import re
from collections.abc import Mapping

from kcast.pubsub.errors import KcastError

HEADER = b"kcast-bundle 1\n"
BUNDLE_BYTES_MAX = 64 * 1024 * 1024
FILES_MAX = 2048  # 1,024 trust documents, 64 steps, two lists, a proof, and room

_LINE_BYTES_MAX = 128
_HEAD = re.compile(rb"((?:[a-z0-9][a-z0-9.-]*/)*[a-z0-9][a-z0-9.-]*) (0|[1-9][0-9]{0,8})\n")


class BundleError(KcastError, ValueError):
    """Bytes that are no bundle, or not a whole one; the message says which file of it is concerned."""


def parse(data: bytes) -> dict[str, bytes]:
    """Returns the files of a bundle by their paths. Raises BundleError."""
    if len(data) > BUNDLE_BYTES_MAX:
        raise BundleError(f"longer than {BUNDLE_BYTES_MAX} bytes; is it a bundle?")
    if not data.startswith(HEADER):
        raise BundleError(f"expected {HEADER.decode().strip()!r} as the first line; is it a bundle?")
    files: dict[str, bytes] = {}
    at = len(HEADER)
    while at < len(data):
        head = _HEAD.match(data, at, at + _LINE_BYTES_MAX)
        if head is None:
            raise BundleError(f"expected 'PATH SIZE' for file {len(files) + 1}, at byte {at}")
        path, begin = head[1].decode(), head.end()
        end = begin + int(head[2])
        if data[end : end + 1] != b"\n":
            raise BundleError(f"{path}: it is not whole, or not as long as its line says")
        if path in files:
            raise BundleError(f"{path}: it stands there twice")
        if len(files) == FILES_MAX:
            raise BundleError(f"more than {FILES_MAX} files")
        files[path] = data[begin:end]
        at = end + 1
    return files


def format_bundle(files: Mapping[str, bytes]) -> bytes:
    """Returns the bundle of these files, in their order. Raises ValueError for what `parse` would refuse."""
    parts = [HEADER]
    for path, data in files.items():
        head = f"{path} {len(data)}\n".encode()
        if len(head) > _LINE_BYTES_MAX or not _HEAD.fullmatch(head):
            raise ValueError(f"{path!r} cannot be the path of a file in a bundle")
        parts += [head, data, b"\n"]
    bundle = b"".join(parts)
    if len(files) > FILES_MAX or len(bundle) > BUNDLE_BYTES_MAX:
        raise ValueError(f"{len(files)} files of {len(bundle)} bytes are too much for a bundle")
    return bundle
