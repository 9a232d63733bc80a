"""The value of ``sasl.jaas.config``: a login module and its options. Pure.

``CLASS required NAME="VALUE" NAME=VALUE;``, one module. Errors never quote the text: it holds passwords.
Source: ``JaasConfig``, ``JaasContext.loadServerContext`` (KIP-85, KIP-103).
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<word>[^\s=;"']+)|(?P<sign>[=;]))"""
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CONTROL_FLAGS = {"required", "requisite", "sufficient", "optional"}
_USER = "user_"


class LoginModule(NamedTuple):
    """One entry.

    Attributes:
        name: the Java class.
        options: by name; secrets among them.
    """

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        """Return a text without the options' values: it may reach a log."""
        return f"LoginModule({self.name}, {sorted(self.options)})"

    @property
    def passwords(self) -> dict[str, str]:
        """The passwords of PLAIN's users, by user: the options ``user_NAME``."""
        return {name.removeprefix(_USER): text for name, text in self.options.items() if name.startswith(_USER)}


def login_module_of(text: str) -> LoginModule:
    """Read a value of ``sasl.jaas.config``.

    Raises:
        ValueError: the value is malformed; the message repeats nothing of it.
    """
    tokens = _tokens(text)
    if not tokens:
        raise ValueError("Login module not specified in JAAS config")
    if len(tokens) < 2 or tokens[1][1].lower() not in _CONTROL_FLAGS:
        raise ValueError("Login module control flag (required) not specified in JAAS config")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != (";", ";"):
        (_, name), sign, (kind, value) = (*tokens[at : at + 3], *[("", "")] * 3)[:3]
        if sign != ("=", "=") or not kind or (kind, value) == (";", ";"):
            raise ValueError('an option of the JAAS config entry has no value; write NAME="VALUE"')
        options[name] = value
        at += 3
    if at >= len(tokens):
        raise ValueError("JAAS config entry not terminated by semi-colon")
    if at + 1 < len(tokens):
        raise ValueError("the JAAS config property has several login modules, it should have 1")
    return LoginModule(tokens[0][1], options)


def _tokens(text: str) -> list[tuple[str, str]]:
    """Return kind and text of each token; a sign's kind is the sign."""
    found: list[tuple[str, str]] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError("a quotation mark of the JAAS config has no counterpart")
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            found.append(("text", _ESCAPED.sub(r"\1", quoted)))
        elif match["word"] is not None:
            found.append(("text", match["word"]))
        else:
            found.append((match["sign"], match["sign"]))
        at = match.end()
    return found
