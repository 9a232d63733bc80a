"""RE2's syntax, read into a tree: what RE2/J accepts without flags, with RE2/J's words for what it refuses.

Contract: no look-around, no back-references, at most ``MAX_REPEAT`` repetitions, ``MAX_DEPTH`` nested groups and
``MAX_SIZE`` states, so that matching takes bounded time.
Source: RE2's syntax (github.com/google/re2/wiki/Syntax); com.google.re2j.Parser and PatternSyntaxException.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidegauge_broker.coordinator.patterns.character_classes import (
    ANY,
    NO_NEWLINE,
    CharacterClass,
    CharacterRange,
    Characters,
    cases_of,
    perl,
    posix,
    unicode_class,
)

MAX_REPEAT = 1_000
MAX_DEPTH = 100
MAX_SIZE = 2_000
_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}")
_FLAGS = re.compile(r"\?([imsU]*)(-([imsU]+))?([:)])")
_NAME = re.compile(r"\?P?<([A-Za-z0-9_]+)>")
_HEX = re.compile(r"x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LAST_CODE_POINT = 0x10FFFF


class PatternError(Exception):
    """An expression is not of RE2's syntax, or too large."""


@dataclass(frozen=True, slots=True)
class One:
    """Matches one of some characters."""

    characters: Characters


class Position(NamedTuple):
    """Matches an empty text.

    Attributes:
        kind: where: at the begin or the end of the text (``begin``, ``end``), of a line (``begin of line``,
            ``end of line``), at a word boundary (``b``) or elsewhere (``B``).
    """

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """Matches one part after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Matches one of several."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Matches from ``least`` to ``most`` times; None: without a limit."""

    node: Node
    least: int
    most: int | None


Node = One | Position | Sequence | Choice | Repeat


def size_of(node: Node) -> int:
    """Return how many states a node needs, at least."""
    if isinstance(node, Sequence):
        return sum(map(size_of, node.parts))
    if isinstance(node, Choice):
        return sum(map(size_of, node.options)) + len(node.options)
    if isinstance(node, Repeat):
        times = node.least + 1 if node.most is None else max(node.most, 1)
        return times * (size_of(node.node) + 1)
    return 1


@dataclass(frozen=True, slots=True)
class _Flags:
    ignores_case: bool = False
    has_lines: bool = False
    dot_is_any: bool = False

    def changed(self, on: str, off: str) -> _Flags:
        """Return the flags behind ``(?on-off)``; ``U`` changes nothing about a whole match."""
        names = {"i": "ignores_case", "m": "has_lines", "s": "dot_is_any"}
        changes = {names[one]: value for text, value in ((on, True), (off, False)) for one in text if one in names}
        return replace(self, **changes)


def parse(text: str) -> Node:
    """Return an expression as a tree.

    Raises:
        PatternError: it is refused.
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()

    def parse(self) -> Node:
        node = self._choice(_Flags())
        if self._at < len(self._text):
            raise PatternError("missing closing )")
        return node

    def _next(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _choice(self, flags: _Flags) -> Node:
        options: list[Node] = []
        while True:
            part, flags = self._sequence(flags)
            options.append(part)
            if self._next() != "|":
                return self._bounded(options[0] if len(options) == 1 else Choice(tuple(options)))
            self._at += 1

    def _sequence(self, flags: _Flags) -> tuple[Node, _Flags]:
        """Return the parts before ``|`` or ``)``, and the flags behind them."""
        parts: list[Node] = []
        was_repeat = False
        while (one := self._next()) and one not in "|)":
            if one in "*+?" or (one == "{" and _REPEAT.match(self._text, self._at)):
                least, most = self._times()
                if was_repeat:
                    raise PatternError("invalid nested repetition operator")
                if not parts:
                    raise PatternError("missing argument to repetition operator")
                parts[-1] = self._bounded(Repeat(parts[-1], least, most))
                was_repeat = True
                continue
            was_repeat = False
            if one == "(":
                group, flags = self._group(flags)
                if group is not None:
                    parts.append(group)
            else:
                parts += self._atom(flags)
        return self._bounded(parts[0] if len(parts) == 1 else Sequence(tuple(parts))), flags

    @staticmethod
    def _bounded(node: Node) -> Node:
        if size_of(node) > MAX_SIZE:
            raise PatternError("expression is too large")
        return node

    def _times(self) -> tuple[int, int | None]:
        one = self._next()
        if one == "{":
            found = _REPEAT.match(self._text, self._at)
            assert found is not None, "the caller has seen it"
            self._at = found.end()
            if max(len(found[1]), len(found[3] or "")) > len(str(MAX_REPEAT)):
                raise PatternError("invalid repeat count")
            least = int(found[1])
            most = least if found[2] is None else int(found[3]) if found[3] else None
            if least > MAX_REPEAT or (most is not None and (most > MAX_REPEAT or most < least)):
                raise PatternError("invalid repeat count")
        else:
            self._at += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[one]
        if self._next() == "?":
            self._at += 1  # Whether a repetition is greedy makes no difference to a match of the whole name.
        return least, most

    def _group(self, flags: _Flags) -> tuple[Node | None, _Flags]:
        """Return a group (None: it only sets flags), and the following flags."""
        self._at += 1
        inner = flags
        if self._next() == "?":
            named, flagged = _NAME.match(self._text, self._at), _FLAGS.match(self._text, self._at)
            if named is not None:
                if named[1] in self._names:
                    raise PatternError("duplicate capture group name")
                self._names.add(named[1])
                self._at = named.end()
            elif flagged is not None and (flagged[1] or flagged[2] or flagged[4] == ":"):
                self._at = flagged.end()
                inner = flags.changed(flagged[1], flagged[3] or "")
                if flagged[4] == ")":
                    return None, inner
            elif re.match(r"\?P?<(?![=!])", self._text[self._at :]):
                raise PatternError("invalid named capture")
            else:
                raise PatternError("invalid or unsupported Perl syntax")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError("expression nests too deeply")
        node = self._choice(inner)
        self._depth -= 1
        if self._next() != ")":
            raise PatternError("missing closing )")
        self._at += 1
        return node, flags

    def _atom(self, flags: _Flags) -> list[Node]:
        one = self._next()
        self._at += 1
        if one == ".":
            return [One(ANY if flags.dot_is_any else NO_NEWLINE)]
        if one in "^$":
            return [Position(("begin" if one == "^" else "end") + (" of line" if flags.has_lines else ""))]
        if one == "[":
            return [One(self._class(flags))]
        if one == "\\":
            return self._escaped(flags)
        return [_literal(one, flags)]

    def _escaped(self, flags: _Flags) -> list[Node]:
        one = self._next()
        if one in {"A", "z"}:
            self._at += 1
            return [Position("begin" if one == "A" else "end")]
        if one in {"b", "B"}:
            self._at += 1
            return [Position(one)]
        if one == "Q":
            quoted, end, _ = self._text[self._at + 1 :].partition("\\E")
            self._at += 1 + len(quoted) + len(end)
            return [_literal(each, flags) for each in quoted]
        found = self._escaped_class(flags)
        return [_literal(self._escaped_character(), flags) if found is None else One(found)]

    def _escaped_class(self, flags: _Flags) -> Characters | None:
        r"""Return the class behind a backslash (``d``, ``p{Greek}``), or None."""
        one = self._next()
        if one not in {"p", "P"}:
            found = perl(one, ignores_case=flags.ignores_case)
            self._at += found is not None
            return found
        found_name = re.compile(r"[pP](?:\{([^}]*)\}|(.))").match(self._text, self._at)
        if found_name is None:
            raise PatternError("invalid character class range")
        self._at = found_name.end()
        name = found_name[1] or found_name[2] or ""
        found = unicode_class(name, ignores_case=flags.ignores_case, is_negated=one == "P")
        if found is None:
            raise PatternError("invalid character class range")
        return found

    def _escaped_character(self) -> str:
        """Return the character behind a backslash."""
        one = self._next()
        if not one:
            raise PatternError("trailing backslash at end of expression")
        number = None
        if (hexadecimal := _HEX.match(self._text, self._at)) is not None:
            number, self._at = int(hexadecimal[1] or hexadecimal[2], 16), hexadecimal.end()
        elif (octal := _OCTAL.match(self._text, self._at)) is not None:
            number, self._at = int(octal[0], 8), octal.end()
        if number is not None:
            if number > _LAST_CODE_POINT:
                raise PatternError("invalid escape sequence")
            return chr(number)
        self._at += 1
        if one in _CONTROLS:
            return _CONTROLS[one]
        if not (one.isascii() and one.isalnum()):
            return one
        raise PatternError("invalid escape sequence")

    # Classes

    def _class(self, flags: _Flags) -> Characters:
        found: list[Characters] = []
        is_negated = self._next() == "^"
        self._at += is_negated
        is_first = True
        while is_first or self._next() != "]":
            is_first = False
            if not self._next():
                raise PatternError("missing closing ]")
            if self._text.startswith("[:", self._at) and (end := self._text.find(":]", self._at)) >= 0:
                named = posix(self._text[self._at + 2 : end], ignores_case=flags.ignores_case)
                if named is None:
                    raise PatternError("invalid character class range")
                found.append(named)
                self._at = end + 2
            else:
                self._class_item(found, flags)
        self._at += 1
        return CharacterClass(tuple(found), is_negated=is_negated)

    def _class_item(self, found: list[Characters], flags: _Flags) -> None:
        if self._next() == "\\":
            self._at += 1
            named = self._escaped_class(flags)
            if named is not None:
                found.append(named)
                return
            self._at -= 1
        first = self._class_character()
        last = first
        rest = self._text[self._at : self._at + 2]
        if len(rest) == 2 and rest[0] == "-" and rest[1] != "]":
            self._at += 1
            last = self._class_character()
            if last < first:
                raise PatternError("invalid character class range")
        found.append(CharacterClass((CharacterRange(first, last),), flags.ignores_case))

    def _class_character(self) -> str:
        one = self._next()
        if not one:
            raise PatternError("missing closing ]")
        self._at += 1
        return self._escaped_character() if one == "\\" else one


def _literal(one: str, flags: _Flags) -> One:
    return One(cases_of(one) if flags.ignores_case else frozenset(one))
