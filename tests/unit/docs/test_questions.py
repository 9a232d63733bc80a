"""docs/questions: each question has a page with three sentences and what shows it, and all of that exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tidegauge_lab.play.stories import exercises, stories
from tidegauge_lab.scenario.loader import shipped_names

ROOT = Path(__file__).parents[3] / "docs" / "questions"
PAGES = sorted(one for one in ROOT.glob("*.md") if one.name != "README.md")
VERBS = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["project"]["entry-points"]["tidegauge.verbs"]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda one: one.stem)


def see_of(page: Path) -> str:
    """Return the paragraph that says what shows it."""
    return next(one for one in page.read_text(encoding="utf-8").split("\n\n") if one.startswith("See it: "))


@each_page
def test_each_has_a_question_three_sentences_and_what_shows_it(page: Path) -> None:
    title, _, text, see, back = page.read_text(encoding="utf-8").strip().split("\n\n")
    assert title.startswith("# ")
    assert title.endswith(("?", "."))
    assert len(re.findall(r"[.:]?[^.]*\.(?=\s|$)", re.sub(r"\d\.\d+|`[^`]*`", "x", text))) == 3
    assert see.startswith("See it: ")
    assert back == "[All questions](README.md)"


@each_page
def test_what_shows_it_exists(page: Path) -> None:
    """A command that runs a story, a scenario or a verb that there is, and links to files."""
    see = see_of(page)
    commands = re.findall(r"`tidegauge ([^`]+)`", see)
    assert commands
    names = {one["name"] for one in stories()}
    for command in commands:
        verb, *rest = command.split()
        assert verb in VERBS, command
        if rest[:1] == ["--story"]:
            assert rest[1] in names, command
        if (verb, *rest[:1]) == ("scenario", "run"):
            assert rest[1] in shipped_names(), command
    for number in re.findall(r"exercise (\d)", see):
        assert int(number) <= len(exercises())
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).is_file(), link


def test_the_list_names_each_page_by_its_question() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^- \[(.+)\]\(([\w-]+\.md)\)$", text, re.MULTILINE))
    titles = {one.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# "): one.name for one in PAGES}
    assert listed == titles
    assert len(listed) >= 23


@each_page
def test_its_command_in_chinese_is_the_same(page: Path) -> None:
    chinese = (ROOT.parent / "zh" / "questions" / page.name).read_text(encoding="utf-8")
    shown = re.findall(r"`tidegauge [^`]+`", chinese)
    assert shown == re.findall(r"`tidegauge [^`]+`", page.read_text(encoding="utf-8"))
