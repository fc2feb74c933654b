"""The smart client: view, handshakes, leases, sends, de-duplication; its drivers; the `kcast` command.

It logs under `kcast.client` with the standard `logging`, at DEBUG: servers suspected, lost, returned or
draining; leases gained and ended; gaps. Nothing is written unless the program sets up logging.
"""

import logging

# Not for `kcast`: other packages log warnings, which must not vanish in programs that set up no logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())
