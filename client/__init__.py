"""The smart client: what a program uses, the rooms behind it, and the `kcast` command.

A program imports `aio` or `blocking`, the two faces; `events` and `errors`; `cluster`, for cluster files; and
`core`, the whole client without IO, to drive it itself. `arguments`, `cluster`, `cluster_facts` and `view`
hand on what the rooms define. The rooms, from the top down; each imports only from those below it:

- `cli/`: the commands.
- `aio`, `blocking` and `driving/`: turns on a socket, and who waits for what. Here layers are called.
- `source`: which cluster a program means.
- `sealed/` (signed and sealed messages) on `trust/` (signed lists): layers. A new layer is a room beside
  them, above those that it needs; what it hooks into is in docs/architecture.md.
- `core`: one client's datagrams in and out, and what these tell.
- `receiving/`: subscriptions; which copy becomes a delivery, in which order, and what is missing.
- `publishing/`: which servers a publish goes to, and what became of it. It leaves by their sessions.
- `messages/`: a message and its number on the wire, and how the core has messages written and judged.
- `session/`: one server: its cookie, the life of each lease (`session/leases.py`), what was asked, what waits
  to leave for it, and whether it is alive.
- `clusters/`: which servers there are, and what changes.

It logs under `kcast.client` with the standard `logging`, at DEBUG: servers suspected, lost, returned or
draining; leases gained and ended; gaps. Nothing is written unless the program sets up logging.
"""

import logging

# Not for `kcast`: other packages log warnings, which must not vanish in programs that set up no logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())
