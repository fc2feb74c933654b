"""The ABNF of PROTOCOL.md, read from the text itself, so that code, vectors and text can be compared."""

import re

from tests.support.checkout import ROOT

_PARTS = ("pubsub", "client/sealed", "client/trust", "client/layers", "client/history")
PROTOCOL = "\n".join((ROOT / part / "PROTOCOL.md").read_text(encoding="utf-8") for part in _PARTS)
"""The normative text, with the sections that stand beside the client's folders."""


class Grammar:
    """The ABNF of PROTOCOL.md as regular expressions over bytes: none of its rules is recursive.

    Literal strings are taken as they stand, in their case; so the text means them (§3.1), while RFC 5234
    by itself would take "7F" for "7f" too.
    """

    _RULE = re.compile(r" {4}(?:client -> server|server -> client)? *([A-Za-z][\w, -]*?) += (.+)")
    _TOKEN = re.compile(r'\s*("[^"]*"|%x[0-9A-F]+(?:-[0-9A-F]+)?|\d*\*\d*|\d+|[A-Za-z][\w-]*|[()\[\]/]|;.*)')

    def __init__(self, protocol: str) -> None:
        self.rules = {"ALPHA": "%x41-5A / %x61-7A", "DIGIT": "%x30-39"}
        for line in protocol.splitlines():
            if rule := self._RULE.fullmatch(line):
                self.rules |= {name.strip(): rule[2] for name in rule[1].split(",")}

    def pattern(self, rule: str) -> re.Pattern[bytes]:
        """What a rule matches; use `fullmatch`."""
        return re.compile(self._source(rule).encode("latin-1"), re.DOTALL)

    def _source(self, rule: str) -> str:
        tokens = [token for token in self._TOKEN.findall(self.rules[rule]) if token[0] != ";"]
        source = self._alternatives(tokens)
        assert not tokens, f"{rule}: cannot read {tokens}"
        return source

    def _alternatives(self, tokens: list[str]) -> str:
        choices = [""]
        while tokens and tokens[0] not in (")", "]"):
            if tokens[0] == "/":
                tokens.pop(0)
                choices.append("")
            else:
                choices[-1] += self._repeated(tokens)
        return f"(?:{'|'.join(choices)})"

    def _repeated(self, tokens: list[str]) -> str:
        token = tokens.pop(0)
        if "*" in token:
            least, most = token.split("*")
            return f"(?:{self._repeated(tokens)}){{{least or 0},{most}}}"
        if token.isdigit():
            return f"(?:{self._repeated(tokens)}){{{token}}}"
        if token in ("(", "["):
            inner = self._alternatives(tokens)
            tokens.pop(0)
            return inner if token == "(" else inner + "?"
        if token[0] == '"':
            return re.escape(token[1:-1])
        if token[0] == "%":
            first, _, last = token[2:].partition("-")
            return f"[\\x{first}-\\x{last or first}]"
        return self._source(token)
