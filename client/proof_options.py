"""Options of proof, as programs import them. They live in `client/driving/proof_options.py`."""

from kcast.client.driving.proof_options import ProofOptions

__all__ = ["ProofOptions"]
