"""The view, as programs import it. It lives in `client/clusters/view.py`."""

from kcast.client.clusters.view import View

__all__ = ["View"]
