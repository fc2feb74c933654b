"""Text of others on terminals: nothing that peers or users chose can act on one.

On a terminal, and in all text formats, control characters appear as `\\x1b`. JSON has them as JSON does.
Payloads go to pipes and files as they are, where no format was asked for.
"""

import json
import re

import click

# Control characters, and those that reverse or break lines: they could mislead a terminal or a reader.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str | bytes) -> str:
    """Returns text that no terminal acts on: control characters, and bytes that are not UTF-8, as `\\x1b`."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return _UNSAFE.sub(_escape, text)


def escaped_at_most(text: bytes, most_bytes: int) -> bytes:
    """Returns as much of the escaped text as fits: no character and no escape is cut."""
    kept = bytearray()
    for character in text[:most_bytes].decode("utf-8", "surrogateescape"):
        shown = escaped(character).encode()
        if len(kept) + len(shown) > most_bytes:
            break
        kept += shown
    return bytes(kept)


def _escape(match: re.Match[str]) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(match[0])
    code = ord(match[0])
    if short:
        return short
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def to_json(fields: dict[str, object]) -> str:
    """Returns one JSON object in one line, in ASCII only, so that no terminal acts on it."""
    return json.dumps(fields).replace("\x7f", "\\u007f")


def text_fields(name: str, data: bytes) -> dict[str, object]:
    """Returns `{name: text}` if the bytes are UTF-8, else `{name_base64: ...}`."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def tell(text: str, *, err: bool = False) -> None:
    """Prints text on standard output, or on standard error. What peers and users chose cannot act on a
    terminal. What of that may have a LF is to be `escaped` before."""
    click.echo("\n".join(map(escaped, text.split("\n"))), err=err)
