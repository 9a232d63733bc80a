"""Reads the part of YAML that scenario files need, and keeps the line of every node.

Contract: ``read_yaml`` gives a tree of ``Scalar``, ``Sequence`` and ``Mapping``, each with the line on which it begins
(1 is the first), so that an error in a scenario can name its line. What it reads, it reads as YAML 1.2 does with the
core schema; what it does not know, it refuses with a sentence, and never reads as something else.

Read: block mappings and sequences, flow ``[...]`` and ``{...}`` over any number of lines, plain, 'single' and "double"
quoted scalars, ``|`` and ``>`` blocks, comments, one ``---`` at the beginning. JSON is therefore read too.
Refused: anchors, aliases, tags, directives, several documents, complex keys, merge keys, quotes over several lines,
tabs as indentation, the same key twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

Value = str | int | float | bool | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUES = frozenset({"true", "True", "TRUE"})
_FALSES = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BLOCK_SCALAR = re.compile(r"([|>])([-+]?)\s*(?:#.*)?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\\": "\\", '"': '"', "/": "/", " ": " "}
_RESERVED = {
    "&": "anchors (&) are not read here",
    "*": "aliases (*) are not read here; quote the text if it is meant as such",
    "!": "tags (!) are not read here; quote the text if it is meant as such",
    "%": "a plain text can't begin with %; quote it",
    "@": "a plain text can't begin with @; quote it",
    "`": "a plain text can't begin with `; quote it",
    "|": "a block (|) stands alone after its key",
    ">": "a block (>) stands alone after its key",
}


class MalformedYaml(Exception):
    """The text is not what is read here.

    Attributes:
        line: where.
        message: what is wrong, one sentence without the line.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number, truth value or nothing; ``text`` as it was written, without quotes."""

    line: int
    value: Value
    text: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    line: int
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mapping:
    """Named values; keys as they were written, without quotes."""

    line: int
    entries: dict[str, Node] = field(default_factory=dict)
    key_lines: dict[str, int] = field(default_factory=dict)

    def add(self, key: str, line: int, value: Node) -> None:
        """Take one entry in.

        Raises:
            MalformedYaml: the key is there already.
        """
        if key in self.entries:
            raise MalformedYaml(line, f"{key!r} stands here a second time; the first is on line {self.key_lines[key]}")
        self.entries[key] = value
        self.key_lines[key] = line


Node = Scalar | Sequence | Mapping


def read_yaml(text: str) -> Node:
    """The tree of a document.

    Raises:
        MalformedYaml: with the line.
    """
    return _Blocks(text).document()


def plain_value(text: str) -> Value:
    """What an unquoted text means by YAML's core schema."""
    if text in _NULLS:
        return None
    if text in _TRUES:
        return True
    if text in _FALSES:
        return False
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


@dataclass(slots=True)
class _Line:
    """One line: ``text`` without indentation; the indentation grows where a ``- `` was taken off."""

    number: int
    indent: int
    text: str

    @property
    def is_empty(self) -> bool:
        return not self.text or self.text.startswith("#")


class _Blocks:
    """The part of YAML whose structure is in the indentation."""

    def __init__(self, text: str) -> None:
        self._lines = []
        for number, raw in enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")), 1):
            stripped = raw.lstrip(" ")
            self._lines.append(_Line(number, len(raw) - len(stripped), stripped.rstrip(" \t")))
        self._place = 0

    def document(self) -> Node:
        first = self._peek()
        if first is not None and first.text == "---":
            self._place += 1
            first = self._peek()
        if first is None:
            raise MalformedYaml(1, "the file is empty")
        node = self._block(first.indent)
        left = self._peek()
        if left is not None:
            several = left.text in {"---", "..."}
            raise MalformedYaml(
                left.number, "one file holds one document" if several else "this line is not indented as those before"
            )
        return node

    def _peek(self) -> _Line | None:
        """The next line that holds something; nothing is consumed but empty lines and comments."""
        while self._place < len(self._lines):
            line = self._lines[self._place]
            if line.text.startswith("\t"):
                raise MalformedYaml(line.number, "a tab is no indentation; use spaces")
            if not line.is_empty:
                return line
            self._place += 1
        return None

    def _block(self, indent: int) -> Node:
        """The node that begins at the next line, which stands at this indentation."""
        line = self._peek()
        assert line is not None, "the caller has looked"
        if _is_item(line.text):
            return self._sequence(indent)
        if _split_key(line) is not None:
            return self._mapping(indent)
        return self._inline(line.text, indent - 1)

    def _sequence(self, indent: int) -> Sequence:
        found = Sequence(self._lines[self._place].number)
        while (line := self._peek()) is not None and line.indent == indent and _is_item(line.text):
            rest = line.text[1:].lstrip(" ")
            if not rest or rest.startswith("#"):
                self._place += 1
                found.items.append(self._nested(indent, line.number, may_be_sequence=False))
                continue
            # What follows the dash stands where it stands: a block of its own, further in.
            line.indent += len(line.text) - len(rest)
            line.text = rest
            scalar = _BLOCK_SCALAR.fullmatch(rest)
            found.items.append(self._block_scalar(scalar, indent) if scalar else self._block(line.indent))
        self._refuse_deeper(indent)
        return found

    def _mapping(self, indent: int) -> Mapping:
        found = Mapping(self._lines[self._place].number)
        while (line := self._peek()) is not None and line.indent == indent:
            split = _split_key(line)
            if split is None:
                if _is_item(line.text):
                    break
                raise MalformedYaml(line.number, f"a key and a colon are expected here, not {line.text!r}")
            key, rest = split
            scalar = _BLOCK_SCALAR.fullmatch(rest)
            if not rest or rest.startswith("#"):
                self._place += 1
                value = self._nested(indent, line.number, may_be_sequence=True)
            elif scalar:
                value = self._block_scalar(scalar, indent)
            else:
                value = self._inline(rest, indent)
            found.add(key, line.number, value)
        self._refuse_deeper(indent)
        return found

    def _refuse_deeper(self, indent: int) -> None:
        line = self._peek()
        if line is not None and line.indent > indent:
            raise MalformedYaml(line.number, "this line is indented further than those it belongs to")

    def _nested(self, indent: int, number: int, *, may_be_sequence: bool) -> Node:
        """What stands under a key or a dash that has nothing beside it."""
        line = self._peek()
        if line is not None and line.indent > indent:
            return self._block(line.indent)
        if line is not None and may_be_sequence and line.indent == indent and _is_item(line.text):
            return self._sequence(indent)
        return Scalar(number, None, "")

    def _block_scalar(self, style: re.Match[str], indent: int) -> Scalar:
        """The lines under ``|`` or ``>``, comments and empty lines included."""
        number = self._lines[self._place].number
        self._place += 1
        taken: list[str] = []
        inner: int | None = None
        while self._place < len(self._lines):
            line = self._lines[self._place]
            if line.text:
                if line.indent <= indent:
                    break
                inner = line.indent if inner is None else inner
                if line.indent < inner:
                    raise MalformedYaml(line.number, "this line of the block is indented less than its first")
                taken.append(" " * (line.indent - inner) + line.text)
            else:
                taken.append("")
            self._place += 1
        body = "\n".join(taken).rstrip("\n")
        if style[1] == ">":
            body = _folded(body)
        text = body if style[2] == "-" or not body else body + "\n"
        return Scalar(number, text, text)

    def _inline(self, rest: str, indent: int) -> Node:
        """A value that begins beside its key or dash, at the current line; further lines stand deeper than indent."""
        line = self._lines[self._place]
        if rest[0] in "[{\"'":
            # A flow may go on over the next lines; whatever their indentation, brackets tell where it ends.
            following = (one.text for one in self._lines[self._place + 1 :]) if rest[0] in "[{" else ()
            flow = _Flow("\n".join([rest, *following]), line.number)
            node = flow.value()
            self._place += flow.end_of_line() - line.number + 1
            return node
        words = [_without_comment(rest)]
        _refuse_reserved(words[0], line.number)
        if _is_item(rest):
            raise MalformedYaml(line.number, "a list begins on a line of its own, or in brackets")
        self._place += 1
        while words[-1] == rest and (further := self._peek()) is not None and further.indent > indent:
            if _split_key(further) is not None or _is_item(further.text):
                raise MalformedYaml(
                    further.number,
                    f"this line is indented further, as if it went on with {words[0]!r} of line {line.number}",
                )
            rest = further.text
            words.append(_without_comment(rest))
            self._place += 1
        if len(words) > 1:
            return Scalar(line.number, " ".join(words), " ".join(words))
        if ": " in words[0] or words[0].endswith(":"):
            raise MalformedYaml(line.number, f"quote {words[0]!r}: unquoted, its colon would be that of a key")
        return Scalar(line.number, plain_value(words[0]), words[0])


class _Flow:
    """The part of YAML whose structure is in brackets and quotes."""

    def __init__(self, text: str, line: int) -> None:
        self._text = text
        self._place = 0
        self._first_line = line

    @property
    def line(self) -> int:
        return self._first_line + self._text.count("\n", 0, self._place)

    def value(self) -> Node:
        self._skip()
        character = self._text[self._place : self._place + 1]
        if character == "[":
            return self._sequence()
        if character == "{":
            return self._mapping()
        return self._scalar()

    def end_of_line(self) -> int:
        """The line on which the value ended; nothing but a comment may stand behind it."""
        end = self._text.find("\n", self._place)
        rest = self._text[self._place : end if end >= 0 else None]
        if rest.strip() and not rest.lstrip().startswith("#"):
            self._fail(f"{rest.strip()!r} stands behind the end of the value")
        return self.line

    def _sequence(self) -> Sequence:
        found = Sequence(self.line)
        self._place += 1
        while not self._closes("]"):
            found.items.append(self.value())
            self._comma("]")
        return found

    def _mapping(self) -> Mapping:
        found = Mapping(self.line)
        self._place += 1
        while not self._closes("}"):
            line = self.line
            key = self._scalar()
            self._skip()
            if self._text[self._place : self._place + 1] == ":":
                self._place += 1
                self._skip()
                empty = self._text[self._place : self._place + 1] in {",", "}"}
                value: Node = Scalar(self.line, None, "") if empty else self.value()
            else:
                self._fail(f"a colon is missing behind {key.text!r}")
            found.add(key.text, line, value)
            self._comma("}")
        return found

    def _closes(self, bracket: str) -> bool:
        self._skip()
        if self._text[self._place : self._place + 1] == bracket:
            self._place += 1
            return True
        return False

    def _comma(self, bracket: str) -> None:
        self._skip()
        character = self._text[self._place : self._place + 1]
        if character == ",":
            self._place += 1
        elif character != bracket:
            what = f"not {character!r}" if character else "but the file ends"
            raise MalformedYaml(
                self._first_line if not character else self.line, f"a comma or {bracket} is expected, {what}"
            )

    def _scalar(self) -> Scalar:
        line = self.line
        character = self._text[self._place : self._place + 1]
        if character == "'":
            text = self._single_quoted()
            return Scalar(line, text, text)
        if character == '"':
            text = self._double_quoted()
            return Scalar(line, text, text)
        begin = self._place
        while self._place < len(self._text) and not self._ends_plain():
            self._place += 1
        text = self._text[begin : self._place].strip(" \t")
        if not text:
            what = f"{character!r}" if character else "the end of the file"
            raise MalformedYaml(line if character else self._first_line, f"a value is expected, not {what}")
        _refuse_reserved(text, line)
        return Scalar(line, plain_value(text), text)

    def _ends_plain(self) -> bool:
        character = self._text[self._place]
        if character in ",[]{}\n":
            return True
        following = self._text[self._place + 1 : self._place + 2]
        if character == ":":
            return following == "" or following in " ,[]{}\n"
        return character == "#" and self._place > 0 and self._text[self._place - 1] in " \n"

    def _single_quoted(self) -> str:
        found = re.compile(r"'((?:[^'\n]|'')*)'").match(self._text, self._place)
        if found is None:
            self._fail("a quote (') is not closed on its line")
        self._place = found.end()
        return found[1].replace("''", "'")

    def _double_quoted(self) -> str:
        found = re.compile(r'"((?:[^"\\\n]|\\.)*)"').match(self._text, self._place)
        if found is None:
            self._fail('a quote (") is not closed on its line')
        self._place = found.end()
        return re.sub(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", self._escaped, found[1])

    def _escaped(self, found: re.Match[str]) -> str:
        digits = found[1] or found[2] or found[3]
        if digits:
            return chr(int(digits, 16))
        if found[4] not in _ESCAPES:
            self._fail(f"\\{found[4]} is no escape")
        return _ESCAPES[found[4]]

    def _skip(self) -> None:
        """Over spaces, line ends and comments."""
        while self._place < len(self._text):
            character = self._text[self._place]
            if character == "#" and (self._place == 0 or self._text[self._place - 1] in " \n"):
                end = self._text.find("\n", self._place)
                self._place = len(self._text) if end < 0 else end
            elif character in " \n":
                self._place += 1
            else:
                return

    def _fail(self, message: str) -> NoReturn:
        raise MalformedYaml(self.line, message)


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _split_key(line: _Line) -> tuple[str, str] | None:
    """A line's key and what stands behind the colon; None where it holds no key."""
    text = line.text
    if text[0] in "\"'":
        flow = _Flow(text, line.number)
        key = flow._scalar().text  # noqa: SLF001 - one module
        rest = text[flow._place :].lstrip(" ")  # noqa: SLF001 - one module
        return (key, rest[1:].lstrip(" ")) if rest.startswith(":") and rest[1:2] in {"", " "} else None
    if text[0] in "[{" or _is_item(text):
        return None
    if text.startswith("? "):
        raise MalformedYaml(line.number, "complex keys (?) are not read here")
    colon = re.search(r":(?: +|$)", text)
    key = "" if colon is None else text[: colon.start()].rstrip(" ")
    if colon is None or not key or " #" in key:
        return None
    if key == "<<":
        raise MalformedYaml(line.number, "merge keys (<<) are not read here")
    _refuse_reserved(key, line.number)
    return key, text[colon.end() :]


def _refuse_reserved(text: str, line: int) -> None:
    why = _RESERVED.get(text[:1])
    if why is not None:
        raise MalformedYaml(line, why)


def _without_comment(text: str) -> str:
    return re.split(r"(?:^| )#", text, maxsplit=1)[0].rstrip(" ")


def _folded(body: str) -> str:
    """Line ends within a paragraph become spaces; lines that stand further in stay as they are."""
    text, before = "", ""
    for line in body.split("\n"):
        stands_out = line.startswith(" ") or before.startswith(" ")
        if not text:
            text = line
        elif line and before and not stands_out:
            text += " " + line
        elif line and not before and not stands_out:
            text += line  # the empty lines before it have written their line ends
        else:
            text += "\n" + line
        before = line
    return text
