"""What a session reads out of a server's answers. Sans-IO. PROTOCOL §5.7 to §5.11."""

from collections.abc import Iterable

from kcast.pubsub import wire


def refused_topics(refusal: wire.Refusal, topics: Iterable[bytes]) -> list[bytes]:
    """Returns those of the topics asked for that the refusal names; all of them where it names none."""
    lines = -1 if refusal.lines is None else refusal.lines
    return [topic for index, topic in enumerate(topics) if lines >> index & 1]


def fewer_lines(refusal: wire.Refusal, line_count: int) -> int:
    """Returns the number of lines that the server says a datagram may have, or half of what it refused where
    it says nothing that helps."""
    lines_max = number(refusal.attributes.get("lines"))
    return line_count // 2 if lines_max is None or lines_max >= line_count else lines_max


def number(text: str | None, digits_max: int = 7) -> int | None:
    """Returns an attribute's whole number of at most `digits_max` digits; None for anything else."""
    return int(text) if text is not None and text.isdigit() and len(text) <= digits_max else None
