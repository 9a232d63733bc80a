"""Findings of the accountant, and refusals of the lab, have a translation (accountant/findings_zh.yaml)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegauge.faults
import tidegauge_lab
from tidegauge_client.sent_record import OK, SentRecord
from tidegauge_client.translation import Translation
from tidegauge_lab.accountant.books import Findings, Kind, Named, show
from tidegauge_lab.accountant.chinese import findings_in_chinese
from tidegauge_lab.scenario.chinese import in_chinese
from tidegauge_lab.watch.chinese import sentences_of_page, sentences_of_views

LAB = Path(next(iter(tidegauge_lab.__path__)))
FAULTS = Path(next(iter(tidegauge.faults.__path__)))
RECORDINGS, PAGE = Translation(sentences_of_views()), Translation(sentences_of_page())
HAN = re.compile(r"[\u4e00-\u9fff]")
WORDS = re.compile("[a-z]{2} [a-z]{2}")
ERRORS = frozenset({"TidegaugeError", "StepFailed", "_invalid"})
ROOMS = (*(LAB / name for name in ("watch", "scenario", "switches")), FAULTS)


def templates() -> Iterator[str]:
    """Yield the sentence of each finding in the accountant's code, after its kind's name, with 7 for each value."""
    kinds = {kind.name: kind.value for kind in Kind}
    for file in sorted((LAB / "accountant").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="add"),
                    args=[ast.Attribute(attr=kind), _, _, ast.Constant(value=str() as said), *_],
                ):
                    yield f"{kinds[kind]}: {said.replace('{}', '7')}"


def refusals() -> Iterator[str]:
    """Yield the sentences with which the lab refuses an action or a scenario fails, with 7 for each value."""
    for file in sorted(one for room in ROOMS for one in room.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
                yield from (said for one in node.args if WORDS.search(said := _text(one)))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.Constant):
        return str(node.value)
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(str(one.value) if isinstance(one, ast.Constant) else "7" for one in parts)


def test_there_is_a_sentence_for_every_kind_of_finding() -> None:
    """The search finds the code's sentences: of all kinds."""
    assert {one.split(":")[0] for one in templates()} == {kind.value for kind in Kind}


@pytest.mark.parametrize("said", sorted(set(templates())))
def test_a_finding_is_known_in_chinese_on_the_page_in_recordings_and_in_scenarios(said: str) -> None:
    assert RECORDINGS.knows(said)
    assert PAGE.knows(said)
    assert in_chinese().knows(said)


@pytest.mark.parametrize("said", sorted(set(refusals())))
def test_a_refusal_of_the_lab_is_known_in_chinese(said: str) -> None:
    assert PAGE.knows(said)


def test_a_lost_record_is_named_in_chinese_with_its_producer() -> None:
    record = SentRecord("p1", 3, b"k", b"m3", 0, "all", False, 1, OK, 2, 0, 7, "")
    findings = Findings()
    findings.add(Kind.LOST, 0, 7, "{} was acknowledged at offset {}, which holds {}", Named(record), 7, show(b"m4"))
    said = f"lost: {findings.tallies[Kind.LOST].examples[0].message}"
    assert in_chinese().translated(said).startswith("丢失")
    assert not WORDS.search(in_chinese().translated(said))


def test_every_translation_is_chinese_and_uses_the_values_of_its_sentence() -> None:
    for english, chinese in findings_in_chinese().items():
        used = {int(one) for one in re.findall(r"\{(\d)\}", chinese)}
        assert used == set(range(english.count("{}"))), english
        assert HAN.search(chinese) or not WORDS.search(english), english
