"""Character classes of RE2's syntax, each a set that says whether it has a character.

A class is a rule, not a list, so it holds for all characters of Unicode: in a transactional id as well as
in a topic's name, which can have few. Categories come from Python's Unicode database. Which script a character
belongs to is read from its name, as Python has no table of scripts.
Source: RE2's syntax (github.com/google/re2/wiki/Syntax); com.google.re2j.CharClass and CharGroup.
"""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple, Protocol

_FOLDED = ("k\u212a", "s\u017f", "\u00e5\u212b", "\u03bc\u00b5", "\u03c9\u2126")
"""Lower-case letters with cases that neither ``lower`` nor ``upper`` of them finds."""
_POSIX = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(128))),
    "blank": "\t ",
    "cntrl": "".join(map(chr, range(32))) + "\x7f",
    "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation,
    "space": string.whitespace,
    "upper": string.ascii_uppercase,
    "word": string.ascii_letters + string.digits + "_",
    "xdigit": string.hexdigits,
}
_PERL = {"d": string.digits, "s": "\t\n\f\r ", "w": string.ascii_letters + string.digits + "_"}
WORD = frozenset(_PERL["w"])
_CATEGORIES_TEXT = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
_CATEGORIES = frozenset(_CATEGORIES_TEXT.split())
_SCRIPTS_TEXT = (
    "Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid "
    "Canadian_Aboriginal Carian Chakma Cham Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari "
    "Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew "
    "Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada "
    "Katakana Kayah_Li Kharoshthi Khmer Lao Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek "
    "Meroitic_Cursive Meroitic_Hieroglyphs Miao Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic "
    "Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra "
    "Sharada Shavian Sinhala Sora_Sompeng Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet "
    "Takri Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Vai Yi"
)
_SCRIPTS = frozenset(_SCRIPTS_TEXT.split()) | {"Common", "Latin"}
_NEVER_FOLDED = frozenset({"Ll"})
r"""Categories that RE2/J leaves as they are, except for a few letters, under ``(?i)``.

With it, ``\p{Lu}`` matches a, but ``\p{Ll}`` not A.
"""
_SIGNS_THAT_ARE_LATIN = frozenset("\u00aa\u00ba\u212a\u212b")
_NAMES_OF_SCRIPTS = {"Han": "CJK ", "Inherited": "COMBINING ", "Nko": "NKO ", "Phags_Pa": "PHAGS-PA "}
"""The beginning of the names of a script's characters, if it is not the script's own name."""


class Characters(Protocol):
    """A set of characters; it can't be changed."""

    def __contains__(self, one: object, /) -> bool: ...


class CharacterRange(NamedTuple):
    """The characters from one to another."""

    first: str
    last: str

    def __contains__(self, one: object) -> bool:
        return isinstance(one, str) and self.first <= one <= self.last


@dataclass(frozen=True, slots=True)
class Category:
    """The characters of a general category, such as ``Lu``, or of all that begin so."""

    name: str

    def __contains__(self, one: object) -> bool:
        return isinstance(one, str) and unicodedata.category(one).startswith(self.name)


@dataclass(frozen=True, slots=True)
class Script:
    """The characters of a script, by the first words of their names."""

    name: str

    def __contains__(self, one: object) -> bool:
        if not isinstance(one, str):
            return False
        words = _NAMES_OF_SCRIPTS.get(self.name, self.name.replace("_", " ").upper() + " ")
        return unicodedata.name(one, "").startswith(words)


class _Latin:
    def __contains__(self, one: object) -> bool:
        if not isinstance(one, str):
            return False
        return one.isalpha() if one.isascii() else one in _SIGNS_THAT_ARE_LATIN or one in Script("Latin")


class _Common:
    """The characters of no script: of ASCII all but its letters, beyond it all that are neither letters nor marks."""

    def __contains__(self, one: object) -> bool:
        return isinstance(one, str) and (
            not one.isalpha() if one.isascii() else unicodedata.category(one)[0] not in "LM"
        )


class _Any:
    def __contains__(self, one: object) -> bool:
        return True


ANY: Characters = _Any()


@dataclass(frozen=True, slots=True)
class CharacterClass:
    """The characters that one of several sets has, or those that none has.

    Args:
        parts: the sets.
        ignores_case: whether a character counts as present if another case of it is.
        is_negated: whether the class has the other characters.
    """

    parts: tuple[Characters, ...]
    ignores_case: bool = False
    is_negated: bool = False

    def __contains__(self, one: object) -> bool:
        if not isinstance(one, str):
            return False
        forms = cases_of(one) if self.ignores_case else (one,)
        return any(form in part for part in self.parts for form in forms) != self.is_negated


NO_NEWLINE = CharacterClass((frozenset("\n"),), is_negated=True)


def cases_of(one: str) -> frozenset[str]:
    """Return a character in all its cases (simple case folding)."""
    found = {one}
    for _ in range(2):
        found |= {case for each in found for case in (each.lower(), each.upper(), each.title()) if len(case) == 1}
        found.update(case for group in _FOLDED if not found.isdisjoint(group) for case in group)
    return frozenset(found)


def posix(name: str, *, ignores_case: bool) -> Characters | None:
    """Return the characters of ``[:name:]`` or ``[:^name:]``; None if unknown."""
    found = _POSIX.get(name.removeprefix("^"))
    return None if found is None else CharacterClass((frozenset(found),), ignores_case, name.startswith("^"))


def perl(letter: str, *, ignores_case: bool) -> Characters | None:
    r"""Return the characters of ``\d``, ``\s``, ``\w`` or their negations, else None."""
    found = _PERL.get(letter.lower())
    return None if found is None else CharacterClass((frozenset(found),), ignores_case, letter.isupper())


def unicode_class(name: str, *, ignores_case: bool, is_negated: bool) -> Characters | None:
    r"""Return the characters of ``\p{name}``, a category or script, or None."""
    if name.startswith("^"):
        name, is_negated = name[1:], not is_negated
    if name == "Any":
        found = ANY
    elif name in _CATEGORIES:
        found = Category(name)
    elif name in _SCRIPTS:
        found = _OWN_SCRIPTS.get(name) or Script(name)
    else:
        return None
    return CharacterClass((found,), ignores_case and name not in _NEVER_FOLDED, is_negated)


_OWN_SCRIPTS: dict[str, Characters] = {"Latin": _Latin(), "Common": _Common()}
