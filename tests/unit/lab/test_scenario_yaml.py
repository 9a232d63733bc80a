"""The reader of scenario files: what it reads as YAML does, and what it refuses, with the line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge_lab.scenario.yaml_reader import MalformedYaml, Mapping, Node, Scalar, Sequence, plain_value, read_yaml


def plain(node: Node) -> Any:
    """A tree without its lines."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(value) for key, value in node.entries.items()}


STORY = """\
# a comment
---
name: a-story   # another
title: it's plain, with a#hash and a:colon
teaches: >
  one two
  three

  four
script: |
  a
    b

  c
cluster: {brokers: 3, settings: {a.b: "x # y", c: 'it''s'},
   more: [1, 2,   # in a list
   -1]}
steps:
- kill: 1
- produce: {value: m1}
  note: over
    two lines
-
  - a
  - - b
    - c
empty:
"quoted: key": "tab\\t\\u00e9\\x41"
half: 1.5
yes: true
nothing: ~
text: '12'
"""


def test_reads_blocks_flows_quotes_comments_and_folded_text() -> None:
    assert plain(read_yaml(STORY)) == {
        "name": "a-story",
        "title": "it's plain, with a#hash and a:colon",
        "teaches": "one two three\nfour\n",
        "script": "a\n  b\n\nc\n",
        "cluster": {"brokers": 3, "settings": {"a.b": "x # y", "c": "it's"}, "more": [1, 2, -1]},
        "steps": [{"kill": 1}, {"produce": {"value": "m1"}, "note": "over two lines"}, ["a", ["b", "c"]]],
        "empty": None,
        "quoted: key": "tab\té\x41",
        "half": 1.5,
        "yes": True,
        "nothing": None,
        "text": "12",
    }


def test_each_node_knows_its_line() -> None:
    tree = read_yaml(STORY)
    assert isinstance(tree, Mapping)
    assert tree.key_lines["name"] == 3
    cluster = tree.entries["cluster"]
    assert isinstance(cluster, Mapping)
    assert cluster.key_lines == {"brokers": 15, "settings": 15, "more": 16}
    more = cluster.entries["more"]
    assert isinstance(more, Sequence)
    assert [item.line for item in more.items] == [16, 16, 17]
    steps = tree.entries["steps"]
    assert isinstance(steps, Sequence)
    assert [item.line for item in steps.items] == [19, 20, 24]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("# nothing", 1, "the file is empty"),
        ("a: b: c", 1, "mapping values are not allowed here"),
        ("a: 1\n  b: 2", 2, "mapping values are not allowed here"),
        ("a: 1\nb: 2\na: 3", 3, "'a' occurs a second time; the first is on line 1"),
        ("a: [1,\n 2", 2, "expected ',' or ']'"),
        ("a: 'x\n", 2, "found unexpected end of stream"),
        ('a: "\\q"', 1, "unknown escape character 'q'"),
        ("a:\n\tb: 1", 2, "cannot start any token"),
        ("a: *x", 1, "undefined alias"),
        ("a: !x 1", 1, "tags (!x) are not read here"),
        ("? [a]\n: b", 1, "a key must be a text"),
        ("- a\nb: 1", 2, "expected <block end>"),
        ("a: 1\n---\nb: 1", 2, "but found another document"),
        ("a:\n  - b\n c: 1", 3, "expected <block end>"),
        ("a: @b", 1, "cannot start any token"),
        ("[" * 60 + "]" * 60, 1, "more than 50 deep"),
        ("a: \x07", 1, "special characters are not allowed"),
    ],
)
def test_refuses_what_it_does_not_know_with_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(MalformedYaml) as refused:
        read_yaml(text)
    assert (refused.value.line, message in refused.value.message) == (line, True), refused.value


def test_plain_texts_mean_what_the_core_schema_says() -> None:
    assert [plain_value(text) for text in ("1", "-3", "0.5", "true", "null", "~", "m1", "1.2.3", "none")] == [
        1,
        -3,
        0.5,
        True,
        None,
        None,
        "m1",
        "1.2.3",
        "none",
    ]


texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(texts.filter(bool), json_values, min_size=1, max_size=4), st.sampled_from([None, 1, 3]))
def test_json_is_yaml(document: dict[str, Any], indent: int | None) -> None:
    assert plain(read_yaml(json.dumps(document, indent=indent, ensure_ascii=False))) == document


def block(value: Any, depth: int) -> str:
    """Return a value as a block; the twin of the reader."""
    pad = "  " * depth
    if isinstance(value, dict) and value:
        return "".join(
            f"\n{pad}{json.dumps(key, ensure_ascii=False)}:{block(one, depth + 1)}" for key, one in value.items()
        )
    if isinstance(value, list) and value:
        return "".join(f"\n{pad}-{block(one, depth + 1)}" for one in value)
    return " " + json.dumps(value, ensure_ascii=False)


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(texts, json_values, min_size=1, max_size=4))
def test_blocks_are_read_as_they_are_written(document: dict[str, Any]) -> None:
    assert plain(read_yaml(block(document, 0))) == document
