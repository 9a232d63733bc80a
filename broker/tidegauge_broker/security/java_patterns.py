r"""Patterns of ``java.util.regex.Pattern``, as Python's ``re`` matches them. Pure.

A pattern in a setting decides which principal a client has, so it must mean what it means to Kafka. Rules:
    1. ``\w``, ``\d``, ``\s``, ``\b`` and ``(?i)`` are about ASCII alone: a Cyrillic letter is no ``\w``, and KELVIN
       SIGN is no k. (Java before 19 knows other letters at a ``\b``, too.)
    2. ``.`` is any character but Java's line terminators; ``$`` and ``\Z`` match at the end, or before the terminator
       that ends the text.
    3. A construct that means something else in Python is refused, and so is one that only one of the two knows: sets in
       sets, ``\p{L}``, named groups, flags but ``(?i)`` and ``(?s)`` at the start and ``(?i:...)``.

Source: ``java.util.regex.Pattern`` without flags, as ``SslPrincipalMapper`` compiles it.
"""

from __future__ import annotations

import re

_CHARACTER = r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[^0-9A-Za-z]"
_FLAGS = re.compile(r"\(\?([is]+)\)")
_TOKEN = re.compile(
    rf"(?P<escape>\\(?:{_CHARACTER}|[wWdDsSbBAZztnrfa]|[1-9](?![0-9])))"
    r"|(?P<set>\[\^?\]?)"
    r"|\((?!\?)|\(\?(?:[:=!>]|<[=!]|-?i:)"
    r"|\{[0-9]+(?:,[0-9]*)?\}"
    r"|[^\\(\[{]",
    re.DOTALL,
)
_IN_SET = re.compile(rf"\\(?:{_CHARACTER}|[wWdDsStnrfa])|([&|~-])(?!\1)|[^\\\[\]&|~-]", re.DOTALL)
_OTHER_TERMINATORS = r"\r\x85\u2028\u2029"
_END = rf"(?:(?=(?:\r\n|[{_OTHER_TERMINATORS}])?\Z)|(?<!\r)(?=\n\Z))"
_TRANSLATED = {".": rf"[^\n{_OTHER_TERMINATORS}]", "$": _END, r"\Z": _END, r"\z": r"\Z"}


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern that matches what Java's matches.

    Raises:
        ValueError: it is malformed, or has a construct of rule 3.
    """
    flags, at = re.ASCII, 0
    found = _FLAGS.match(pattern)
    if found is not None:
        at = found.end()
        for letter in found[1]:
            flags |= re.IGNORECASE if letter == "i" else re.DOTALL
    parts: list[str] = []
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise ValueError(f"{pattern[at : at + 4]!r} at {at} is not supported")
        text, at = token[0], token.end()
        if token["set"]:
            end = _end_of_set(pattern, at)
            text, at = pattern[token.start() : end], end
        elif flags & re.DOTALL == 0 or text != ".":
            text = _TRANSLATED.get(text, text)
        parts.append(text)
    try:
        return re.compile("".join(parts), flags)
    except (re.error, RecursionError, OverflowError) as problem:
        raise ValueError(str(problem)) from None


def _end_of_set(pattern: str, at: int) -> int:
    """Return where a set of characters ends, behind its bracket."""
    while at < len(pattern) and pattern[at] != "]":
        found = _IN_SET.match(pattern, at)
        if found is None:
            raise ValueError(f"{pattern[at : at + 4]!r} at {at} is not supported in a set")
        at = found.end()
    if at == len(pattern):
        raise ValueError("a set has no end")
    return at + 1
