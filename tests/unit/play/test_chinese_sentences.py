"""Sentences of brokers, events and views have a translation on the page play (sentences_zh.yaml, chinese.js)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegauge_client.translation import Translation
from tidegauge_lab.play.stories import stories
from tidegauge_lab.watch.chinese import sentences_of_views
from tidegauge_proof import own_rules
from tidegauge_proof.hand import actions
from tidegauge_proof.hand.desk import Desk

HAN = re.compile(r"[\u4e00-\u9fff]")
SENTENCES = sentences_of_views()
TRANSLATION = Translation(SENTENCES)
HAND = Path(actions.__file__).parent
SPEAKING = [
    HAND / f"{one}.py"
    for one in ("driven", "applications", "client_processes", "consumer_members", "share_members", "schedule")
]
NOTATION = re.compile(
    r"(HW|LEO|LSO|ISR) \S+ -> \S+( \(\w+\))?|\w+\(.*\)|\w+ response\(.*\)|[\w-]+|broker \d", re.DOTALL
)
"""Texts without words: watermarks, requests and their responses, names."""


is_known = TRANSLATION.knows


def said_in(file: Path) -> Iterator[str]:
    """Yield what a module returns or raises as sentences, with 7 for each value."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id="ActionError" | "ScheduleError"), args=[said])):
                yield _text(said)
            case ast.Return(value=ast.JoinedStr() as said) if _text(said).endswith("."):
                yield _text(said)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(str(one.value) if isinstance(one, ast.Constant) else "7" for one in parts)


@pytest.mark.parametrize("file", SPEAKING, ids=lambda one: one.stem)
def test_every_sentence_of_an_action_and_every_refusal_has_one_in_chinese(file: Path) -> None:
    said = {one for one in said_in(file) if re.search("[a-z]{2}", one)}
    assert said
    assert sorted(one for one in said if not is_known(one)) == []


def test_every_translation_is_chinese_and_uses_what_the_sentence_has() -> None:
    for english, chinese in SENTENCES.items():
        used = {int(one) for one in re.findall(r"\{(\d)\}", chinese)}
        assert used <= set(range(english.count("{}"))), english
        assert HAN.search(chinese) or not re.search("[a-z]{3} [a-z]{3}", english), english


def test_a_broken_invariant_is_known_in_chinese() -> None:
    """All texts in Violation(name, words) of the checker that looks on (simulator/checker.py)."""
    said = [
        "StrongIsr: broker 0 is in the ISR and has nothing at offset 1, where a record of epoch 0 (m2) was committed",
        "LogMatchingHw: broker 1 (high watermark 2) has a record of epoch 1 (m3) at offset 1, where "
        "a record of epoch 0 (m2) was committed",
    ]
    assert [one for one in said if not is_known(one)] == []


@pytest.mark.parametrize("story", stories(), ids=lambda one: one["name"])
def test_what_a_story_says_as_it_is_played_is_known_in_chinese(story: dict) -> None:
    """Each action's sentence, each event and each line of the table; requests and watermarks are notation."""
    desk = Desk()
    desk.request(json.dumps({"op": "story", "scenario": story["scenario"]}))
    found = json.loads(desk.request(json.dumps({"op": "story_to", "place": 99})))
    said = {one["text"] for one in found["steps"]} | {one["said"] for one in found["actions"]}
    said |= {row[name] for row in found["rows"] for name in ("attribute", "note", "new")}
    said |= {found["view"]["name"], found["view"]["waiting"]} - {""}
    words = [one for one in said if re.search("[a-z]{2}", one) and not NOTATION.fullmatch(one)]
    assert sorted(one for one in words if not is_known(one)) == []


def test_what_a_rule_of_ones_own_does_wrong_is_known_in_chinese() -> None:
    for code in ("x = 1", "def truncate(a): pass"):
        with pytest.raises(own_rules.OwnRuleError) as problem:
            own_rules.OwnRules(code)
        assert is_known(str(problem.value)), str(problem.value)


def test_what_python_says_of_a_rule_stays_within_a_chinese_sentence() -> None:
    with pytest.raises(own_rules.OwnRuleError) as problem:
        own_rules.OwnRules("def truncate(")
    said = TRANSLATION.translated(str(problem.value))
    assert said.startswith("规则不是 Python")
    assert "'(' was never closed" in said
