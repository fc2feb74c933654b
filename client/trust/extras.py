"""What to say where the libraries that signed lists need are not installed."""

from kcast.client.cluster import ClusterError


class MissingExtra(ClusterError):
    """A library is not installed. `extra` is the extra of kcast that brings it."""

    def __init__(self, what: str, extra: str = "trust") -> None:
        super().__init__(f"{what} needs the extra {extra!r}: pip install 'kcast[{extra}]'")
        self.extra = extra
