"""Signed lists as bytes: notes, trust documents, checkpoints, proofs and records. PROTOCOL §10.5, §10.6."""
