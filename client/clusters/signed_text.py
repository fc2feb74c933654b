"""Where a signed text ends and its signatures begin. Sans-IO. PROTOCOL §10.4, C2SP signed-note."""

SIGNATURE_MARK = "\N{EM DASH} "
"""What every signature line begins with."""


def cut(text: str) -> tuple[str, str]:
    """Returns a note's text, with its last LF, and what follows its last empty line.

    The text may have empty lines of its own. Where there is no empty line, all of it is text.
    """
    head, empty_line, tail = text.rpartition("\n\n")
    return (f"{head}\n", tail) if empty_line else (text, "")
