"""The base of all errors that kcast raises on purpose."""


class KcastError(Exception):
    """An error of the caller, or of what the caller was given. The message says what to do.

    Most subclasses are also the nearest built-in error, such as ValueError. What peers do wrong raises
    nothing: it is counted.
    """
