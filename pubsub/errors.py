"""The base of all errors that kcast raises on purpose."""


class KcastError(Exception):
    """The caller, or what the caller was given, is at fault; the message says what to do.

    Most are also the built-in error that they come nearest to, such as ValueError. What peers do wrong raises
    nothing: it is counted.
    """
