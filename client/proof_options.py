"""Options of proof, as programs import them. They live in `client/driving/arguments.py`."""

from kcast.client.driving.arguments import ProofOptions

__all__ = ["ProofOptions"]
