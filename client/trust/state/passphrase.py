"""The passphrase of key files, as the environment may hold it. It needs no extra."""

import os

PASSPHRASE_VARIABLE = "KCAST_KEY_PASSPHRASE"


def from_environment() -> bytes:
    """Returns the passphrase that the variable holds; empty where it is not set."""
    return os.fsencode(os.environ.get(PASSPHRASE_VARIABLE, ""))
