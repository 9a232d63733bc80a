"""Events of a quorum on the page: each reason of a change of role is known in Chinese (sentences_zh.yaml)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tidegauge_controller.raft
from tidegauge_client.translation import Translation
from tidegauge_lab.watch.chinese import sentences_of_page

KNOWN = Translation(sentences_of_page())
CALLS = {
    "become_candidate",
    "become_follower",
    "become_prospective",
    "become_unattached",
    "enter",
    "learn",
    "persist",
    "resign",
    "_give_up",
}
"""Functions of the node whose last text is the reason."""


def reasons() -> list[str]:
    """Return the reasons in the node's source, with 1 for each value."""
    found = set()
    for path in Path(tidegauge_controller.raft.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _name(node.func) in CALLS:
                found.update(_text(argument) for argument in node.args)
            elif isinstance(node, ast.Assign) and _name(node.targets[0]) == "reason":
                found.add(_text(node.value))
    return sorted(found - {""})


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join("1" if isinstance(one, ast.FormattedValue) else _text(one) for one in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_the_reasons_are_found() -> None:
    assert {"election timeout", "response of node 1", "a majority granted its votes", "shutdown"} < set(reasons())


@pytest.mark.parametrize("reason", reasons())
def test_a_reason_is_known_in_chinese(reason: str) -> None:
    assert KNOWN.knows(f"Follower in epoch 1, leader 3 ({reason})")
