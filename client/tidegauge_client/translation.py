"""Sentences in another language, found by their patterns: English texts in, translated texts out. Pure.

A pattern is a sentence with ``{}`` for each of its values; its translation names them ``{0}``, ``{1}``, and so on.
A value is translated likewise. A pattern whose values have English prose that is not known is used only if no other one
fits. ``chinese.js`` of the page ``tidegauge watch`` finds the same translations in a browser, which
``tests/integration/test_translation_in_javascript.py`` compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

_SEMICOLON = "\uff1b"
_DEEPEST = 3
"""Maximum depth of values within values that are translated."""
_HAN = re.compile("[\u4e00-\u9fff]")
_LETTERS = re.compile("[a-z]{2}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.?!]) ")
_VALUE = re.compile(r"\{(\d)\}")
_PROSE = re.compile("[a-z]{2} [a-z]{2,} [a-z]{2}")
"""English words in a row; names, requests and settings have none."""
_COMMAND = re.compile("`[^`]*`")
_MISSING_SPACE = re.compile("(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[\u4e00-\u9fff])")
_NEEDLESS_SPACE = re.compile("(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])")


class _Template(NamedTuple):
    """A pattern with values."""

    parts: tuple[str, ...]
    pattern: re.Pattern[str]
    translation: str

    def may_match(self, text: str) -> bool:
        """Check that a text has all parts in order; the pattern takes long to fail."""
        if not text.startswith(self.parts[0]) or not text.endswith(self.parts[-1]):
            return False
        place = 0
        for part in self.parts:
            place = text.find(part, place)
            if place < 0:
                return False
            place += len(part)
        return True

    def filled(self, values: Sequence[str]) -> str:
        """Insert values, and a space between Chinese and Latin letters."""
        text = _VALUE.sub(lambda place: values[int(place[1])], self.translation)
        return _NEEDLESS_SPACE.sub("", _MISSING_SPACE.sub(" ", text))


class Translation:
    """A language's sentences.

    Args:
        sentences: each pattern with its translation.
    """

    def __init__(self, sentences: Mapping[str, str]) -> None:
        self._plain = {english: text for english, text in sentences.items() if "{}" not in english}
        templates = sorted((one for one in sentences if "{}" in one), key=len, reverse=True)
        self._templates = [_template(english, sentences[english]) for english in templates]
        self._known = lru_cache(maxsize=4_000)(self._found)

    def translated(self, text: str) -> str:
        """Return a text in the language; unchanged if not known."""
        inner = " ".join(text.split())
        found = self._known(inner, strict=True) or self._known(inner, strict=False)
        return text if found is None or found == inner else found

    def knows(self, text: str) -> bool:
        """Return whether all words of a text are translated."""
        return self._known(" ".join(text.split()), strict=True) is not None

    def _found(self, text: str, depth: int = 0, *, strict: bool) -> str | None:
        """Translate the whole text, sentence by sentence, or clause by clause."""
        if text in self._plain:
            return self._plain[text]
        parts = _SENTENCE_END.split(text)
        if (found := self._all(parts, "", depth, strict=strict)) is not None:
            return found
        if (whole := self._sentence(text, depth, strict=strict)) is not None or "; " not in text:
            return whole
        clauses = self._all(text.removesuffix(".").split("; "), _SEMICOLON, depth, strict=strict)
        return None if clauses is None else f"{clauses}{'。' if text.endswith('.') else ''}"

    def _all(self, parts: list[str], between: str, depth: int, *, strict: bool) -> str | None:
        """Translate some parts, all of which must be known."""
        found = [self._sentence(one, depth, strict=strict) for one in parts]
        known = [one for one in found if one is not None]
        return between.join(known) if len(known) == len(found) else None

    def _sentence(self, text: str, depth: int, *, strict: bool) -> str | None:
        if _HAN.search(text) or not _LETTERS.search(text):
            return text
        if text in self._plain:
            return self._plain[text]
        for one in self._templates:
            if one.may_match(text) and (match := one.pattern.fullmatch(text)):
                values = [self._value(value, depth, strict=strict) for value in match.groups()]
                if not strict or not any(_PROSE.search(_COMMAND.sub("", value)) for value in values):
                    return one.filled(values)
        return None

    def _value(self, text: str, depth: int, *, strict: bool) -> str:
        found = self._found(text, depth + 1, strict=strict) if depth < _DEEPEST else None
        return text if found is None else found


def _template(english: str, translation: str) -> _Template:
    parts = tuple(english.split("{}"))
    return _Template(parts, re.compile("(.+?)".join(map(re.escape, parts)), re.DOTALL), translation)
