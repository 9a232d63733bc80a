r"""Java properties files, read and written. Pure.

Source: java.util.Properties.load, which Kafka reads its files with: a backslash at a line's end continues it in the
next one, whose leading white space is dropped; ``\n``, ``\t``, ``\r``, ``\f`` and ``\uXXXX`` are escapes, and another
character with a backslash before it is that character. The white space around a value is dropped too, as
ConfigDef.parseType does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidegauge.errors import ErrorCode, TidegaugeError

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_SPACE = " \t\f"
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_MEANING = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_WRITTEN = {"\\": "\\\\"} | {value: f"\\{letter}" for letter, value in _MEANING.items()}


def read_properties(text: str) -> dict[str, str]:
    r"""Read the pairs of a properties file; the last one of a name counts.

    Raises:
        TidegaugeError: INVALID_CONFIG, ``\u`` without four digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is not None:
            found[_unescaped(pair[1])] = _unescaped(pair[2]).strip()
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments and blank ones, each with those that continue it."""
    begun: str | None = None
    for raw in _LINE_BREAK.split(text):
        line = raw.lstrip(_SPACE)
        if not begun and (not line or line[0] in "#!"):
            begun = None
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        whole = (begun or "") + (line[:-1] if is_continued else line)
        begun = whole if is_continued else None
        if not is_continued:
            yield whole
    if begun is not None:
        yield begun


def _unescaped(text: str) -> str:
    def meaning(found: re.Match[str]) -> str:
        escaped = found[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, "Malformed \\uxxxx encoding in a properties file.")
        return _MEANING.get(escaped, escaped)

    return _ESCAPE.sub(meaning, text)


def property_line(name: str, value: str) -> str:
    """Return a properties file's line; white space around values is lost.

    Args:
        name: of a setting, without white space, ``=`` or ``:``.
        value: any text.
    """
    escaped = "".join(_WRITTEN.get(character, character) for character in value)
    return f"{name}={escaped}\n"
