"""The page's script finds the translations that Python finds (``tidegauge_client/translation.py``, ``chinese.js``)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.integration.test_play import node

from tidegauge_client.explaining_in_chinese import explanations_in_chinese
from tidegauge_client.translation import Translation
from tidegauge_lab.scenario.loader import load, shipped_names
from tidegauge_lab.scenario.narration import narrated
from tidegauge_lab.scenario.outcome import expected_of, settings_lines
from tidegauge_lab.watch.chinese import sentences_of_page
from tidegauge_lab.watch.page_files import page_file

pytestmark = pytest.mark.integration
ODD = [
    "",
    "orders-0",
    "something that nobody has translated, at all",
    "Broker 1 killed. Something else that is not known. Broker 2 killed.",
    "{} {0} $& \\ (a|b)* [x]",
    "line 7: broker 1 is down: the leader is 2, not 0",
    "broker 1 is down; something else",
]
_PROGRAM = """
const language = "en", recording = null, originals = new WeakMap()
%s
const { sentences, texts } = JSON.parse(require("node:fs").readFileSync(process.argv[2], "utf8"))
learnChinese(sentences)
console.log(JSON.stringify(texts.map(translated)))
"""


def said_by_scenarios() -> list[str]:
    """Return the texts of every shipped scenario before it is played."""
    said: list[str] = list(ODD)
    for name in shipped_names():
        story = load(name)
        said += [story.title, *story.teaches.split("\n\n"), story.rule, *settings_lines(story)]
        for step in story.steps:
            said += [narrated(step), " ".join(step.note.split()), *expected_of(step)]
    return list(dict.fromkeys(said))


def test_both_give_the_same_sentences(tmp_path: Path) -> None:
    sentences, texts = sentences_of_page(), [one.strip() for one in said_by_scenarios()]
    given, program = tmp_path / "given.json", tmp_path / "program.cjs"
    given.write_text(json.dumps({"sentences": sentences, "texts": texts}), encoding="utf-8")
    program.write_text(_PROGRAM % page_file("chinese.js").replace('"use strict";', ""), encoding="utf-8")
    done = subprocess.run([node(), program, given], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = list(map(Translation(sentences).translated, texts))
    assert json.loads(done.stdout) == expected
    assert sum(one != text for one, text in zip(expected, texts, strict=True)) > 800


def test_a_text_that_is_not_known_stays_as_it_is() -> None:
    translation = explanations_in_chinese()
    assert translation.translated("a sentence of another version") == "a sentence of another version"
    assert not translation.knows("a sentence of another version")
