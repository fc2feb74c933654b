"""What holds for all tests."""

import signal

# Shells let what they start in the background ignore Ctrl-C, and children inherit that. Tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
