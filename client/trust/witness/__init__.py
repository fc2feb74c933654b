"""Witnesses, which vouch that a log shows everybody the same. PROTOCOL §10.6."""
