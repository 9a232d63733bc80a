"""Turns of phrase that a reader has to translate: their number in a file may fall and never rises (tools/prose.py)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tools import prose

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Repeats what is already so.", "what-is"),
        ("What has changed\nis kept.", "what-is"),
        ("None where there is no leader.", "where-if"),
        ('"""What a broker starts with."""', "headless"),
        ("The connection waits. Who sends nothing is closed.", "headless"),
        ("Return those of some partitions.", "those-of"),
        ("The leader stands in the file.", "stands"),
        ('"""See the module."""', "see-module"),
        ("First one; then another; and a third.\n", "semicolons"),
        ("def test_who_says_nothing_and_what_is_kept() -> None:", "test-name"),
        ('"""Return the state of a replica that has been moved by the controller to another broker."""', "long-return"),
    ],
)
def test_each_turn_of_phrase_is_counted(text: str, name: str) -> None:
    assert prose.counted(text)[name] == 1


@pytest.mark.parametrize(
    "text",
    [
        "What is a leader epoch?",
        "Repeating a fault changes nothing, and is not an error.",
        "It stands for a broker.",
        "The directory where logs are.",
        "One thing; then another.",
        '"""Return the leader epoch that ends at an offset."""',
        "def test_a_leader_that_waits() -> None:",
    ],
)
def test_plain_sentences_are_not(text: str) -> None:
    assert not prose.counted(text)["headless"]
    assert prose.counted(text.replace("What is a", "A")) == Counter()


def test_a_count_that_has_risen_is_named_and_a_new_file_has_none() -> None:
    before = prose.read("a.py what-is=2\nb.py stands=1\n")
    now = {"a.py": Counter({"what-is": 3}), "b.py": Counter({"stands": 1}), "c.py": Counter({"headless": 1})}
    assert prose.risen(before, now) == ["a.py: what-is 3, at most 2", "c.py: headless 1, at most 0"]
    assert prose.read(prose.written(now)) == now


def test_no_file_has_more_of_them_than_its_baseline() -> None:
    """Reword the sentence; language and examples are in docs/glossary.md."""
    if not (ROOT / ".git").exists():
        pytest.skip("a source archive has no list of files")
    baseline = prose.read(prose.BASELINE.read_text(encoding="utf-8"))
    assert prose.risen(baseline, prose.of_repository()) == []
