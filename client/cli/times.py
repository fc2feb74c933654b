"""Times as people and programs read them."""

from time import gmtime, strftime


def utc(at_s: float) -> str:
    """Returns a time in seconds since 1970 as people and programs read it, in UTC, to the millisecond.

    >>> utc(1_800_000_000.25)
    '2027-01-15T08:00:00.250Z'
    """
    seconds, milliseconds = divmod(int(at_s * 1000), 1000)
    return f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(seconds))}.{milliseconds:03}Z"
