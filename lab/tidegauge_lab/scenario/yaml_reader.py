"""A scenario file as a tree in which every node knows its line, so that an error in a scenario can name it.

Contract: PyYAML reads the text, and ``read_yaml`` gives a tree of ``Scalar``, ``Sequence`` and ``Mapping``, lines
beginning with 1. Unquoted texts mean what YAML 1.2's core schema says: ``yes`` and ``on`` are texts, ``010`` is ten.
One thing that YAML allows is refused, because it hides mistakes: tags. A key twice in one mapping is refused too,
as YAML itself does, though PyYAML does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

Value = str | int | float | bool | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUES = frozenset({"true", "True", "TRUE"})
_FALSES = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DEEPEST = 50


class MalformedYaml(Exception):
    """Raised when a text is outside the subset of YAML read here.

    Attributes:
        line: where.
        message: the defect, one sentence without the line.
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
            raise MalformedYaml(line, f"{key!r} occurs a second time; the first is on line {self.key_lines[key]}")
        self.entries[key] = value
        self.key_lines[key] = line


Node = Scalar | Sequence | Mapping


def read_yaml(text: str) -> Node:
    """Return the tree of a document.

    Raises:
        MalformedYaml: with the line.
    """
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        what = " ".join(filter(None, (problem.context, problem.problem)))
        raise MalformedYaml(1 if mark is None else mark.line + 1, what) from problem
    except yaml.YAMLError as problem:
        raise MalformedYaml(1, " ".join(str(problem).split())) from problem
    except RecursionError:
        raise MalformedYaml(1, "the values lie too deep in each other") from None
    if root is None:
        raise MalformedYaml(1, "the file is empty")
    return _node(root, 0)


def _node(found: yaml.Node, depth: int) -> Node:
    line = found.start_mark.line + 1
    if depth > _DEEPEST:
        raise MalformedYaml(line, f"the values lie more than {_DEEPEST} deep in each other")
    if isinstance(found, yaml.ScalarNode):
        _refuse_tag(found, "str", line)
        return Scalar(line, plain_value(found.value) if found.style is None else found.value, found.value)
    if isinstance(found, yaml.SequenceNode):
        _refuse_tag(found, "seq", line)
        return Sequence(line, [_node(item, depth + 1) for item in found.value])
    _refuse_tag(found, "map", line)
    mapping = Mapping(line)
    for key, value in found.value:
        key_line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise MalformedYaml(key_line, "a key must be a text")
        mapping.add(key.value, key_line, _node(value, depth + 1))
    return mapping


def _refuse_tag(found: yaml.Node, expected: str, line: int) -> None:
    if found.tag != f"tag:yaml.org,2002:{expected}":
        raise MalformedYaml(line, f"tags ({found.tag}) are not read here; quote the text if it is meant as such")


def node_of(value: Any, line: int = 0) -> Node:
    """Return a JSON value as a document's tree; a top list's entries have lines 1, 2, ..."""
    if isinstance(value, dict):
        mapping = Mapping(line)
        for key, one in value.items():
            mapping.add(key, line, node_of(one, line))
        return mapping
    if isinstance(value, list):
        return Sequence(line, [node_of(one, line or place) for place, one in enumerate(value, 1)])
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return Scalar(line, value, text)


def plain_value(text: str) -> Value:
    """Return what an unquoted text means by YAML's core schema."""
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
