"""Character classes of RE2's syntax, as the sets of those characters that a topic's name can have.

Source: RE2's syntax (github.com/google/re2/wiki/Syntax); Topic.LEGAL_CHARS of Kafka.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable

NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters of topic names: a class is evaluated over them alone."""
_FOLDED = {"k": "\u212a", "s": "\u017f"}
"""Characters beyond ASCII that are a case of an ASCII letter."""
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
_SCRIPTS_WITHOUT_ASCII_TEXT = (
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
_SCRIPTS_WITHOUT_ASCII = frozenset(_SCRIPTS_WITHOUT_ASCII_TEXT.split())


class CharacterClass:
    """The characters that a class matches, gathered item by item."""

    def __init__(self, *, ignores_case: bool) -> None:
        self._ignores_case = ignores_case
        self._found: set[str] = set()

    def add_range(self, first: str, last: str) -> None:
        """Add the characters from one to another, in either case if case is ignored."""
        self._found.update(one for one in NAME_CHARACTERS if any(first <= form <= last for form in self._forms(one)))

    def add(self, characters: Iterable[str]) -> None:
        """Add characters as they are."""
        self._found |= NAME_CHARACTERS & frozenset(characters)

    def characters(self, *, is_negated: bool = False) -> frozenset[str]:
        """Return what the class matches."""
        return NAME_CHARACTERS - self._found if is_negated else frozenset(self._found)

    def _forms(self, one: str) -> tuple[str, ...]:
        if not self._ignores_case:
            return (one,)
        lower = one.lower()
        return tuple({lower, lower.upper(), _FOLDED.get(lower, lower)})


def posix(name: str) -> frozenset[str] | None:
    """Return the characters of ``[:name:]``, or of ``[:^name:]``; None if there is no such class."""
    found = _POSIX.get(name.removeprefix("^"))
    return None if found is None else _maybe_negated(found, is_negated=name.startswith("^"))


def perl(letter: str) -> frozenset[str] | None:
    r"""Return the characters of ``\d``, ``\s``, ``\w`` or their negations; None for another letter."""
    found = _PERL.get(letter.lower())
    return None if found is None else _maybe_negated(found, is_negated=letter.isupper())


def unicode_class(name: str, *, is_negated: bool) -> frozenset[str] | None:
    r"""Return the characters of ``\p{name}``, a general category or a script; None if there is none of that name."""
    if name.startswith("^"):
        name, is_negated = name[1:], not is_negated
    if name == "Any":
        found = NAME_CHARACTERS
    elif name in _CATEGORIES:
        found = frozenset(one for one in NAME_CHARACTERS if unicodedata.category(one).startswith(name))
    elif name in {"Latin", "Common"}:
        found = frozenset(one for one in NAME_CHARACTERS if one.isalpha() == (name == "Latin"))
    elif name in _SCRIPTS_WITHOUT_ASCII:
        found = frozenset[str]()
    else:
        return None
    return _maybe_negated(found, is_negated=is_negated)


def _maybe_negated(characters: Iterable[str], *, is_negated: bool) -> frozenset[str]:
    found = NAME_CHARACTERS & frozenset(characters)
    return NAME_CHARACTERS - found if is_negated else found
