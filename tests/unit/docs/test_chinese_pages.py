"""Pages in two languages: docs/zh shows the same commands, outputs, links and pictures as English."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.documents import blocks

ROOT = Path(__file__).parents[3]
CHINESE = ROOT / "docs" / "zh"
ENGLISH_PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "docs" / "first-steps.md",
        ROOT / "docs" / "glossary.md",
        *ROOT.glob("docs/questions/*.md"),
        ROOT / "docs" / "gallery" / "README.md",
        *ROOT.glob("docs/guide/*.md"),
        *ROOT.glob("docs/labs/*.md"),
    ]
)
LINK = re.compile(r"(!?)\[(?:[^]]|\](?!\())*\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
HAN = "\u3400-\u4dbf\u4e00-\u9fff"
REPLACED_WORDS = {
    "偏移": "位移",
    "任期": "纪元",
    "时代": "纪元",
    "话题": "主题",
    "经纪": "Broker",
    "代理": "Broker",
    "领导副本": "Leader 副本",
    "追随者": "Follower",
    "跟随者": "Follower",
    "从副本": "Follower 副本",
    "主副本": "Leader 副本",
    "同步副本集": "ISR",
    "高水印": "高水位",
    "水位线": "高水位",
    "再平衡": "重平衡",
    "再均衡": "重平衡",
    "消费组": "消费者组",
    "消费群组": "消费者组",
    "恰好一次": "精确一次",
}
"""The words that the Chinese glossary replaces, each with what it says instead."""


def twin(english: Path) -> Path:
    """Return the path of an English page's translation, which may not exist."""
    return CHINESE / (english.relative_to(ROOT / "docs") if english.is_relative_to(ROOT / "docs") else english.name)


PAIRS = [(page, twin(page)) for page in ENGLISH_PAGES if twin(page).exists()]
each_pair = pytest.mark.parametrize(
    ("english", "chinese"), PAIRS, ids=[str(english.relative_to(ROOT)) for english, _ in PAIRS]
)


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(text: str) -> list[tuple[int, str]]:
    """Return the level and the anchor of each heading."""
    found = re.findall(r"^(#+) (.+)$", prose(text), re.MULTILINE)
    return [(len(level), re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")) for level, title in found]


def language_link(text: str) -> str:
    """Return the first paragraph below the title."""
    return text.split("\n\n", 2)[1]


def links(page: Path, *, is_english: bool) -> Iterator[tuple[str, str, int | str]]:
    """Yield kind, target and heading (its place in the target page) of each link, as the Chinese page must have it."""
    text = page.read_text(encoding="utf-8")
    for bang, path, anchor in LINK.findall(prose(text).replace(language_link(text), "", 1)):
        if "://" in path:
            yield bang, path, anchor
            continue
        target = (page.parent / path).resolve() if path else page
        if is_english and target in ENGLISH_PAGES and twin(target).exists():
            target = twin(target)
        place: int | str = anchor
        if anchor and target.suffix == ".md":
            source = page if not path else (page.parent / path).resolve()
            place = [one for _, one in headings(source.read_text(encoding="utf-8"))].index(anchor)
        yield bang, os.path.relpath(target, ROOT), place


def code_spans(text: str) -> set[str]:
    """Return the code spans of a text, and the lines of indented blocks."""
    spans = {re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", prose(text))}
    return spans | set(re.findall(r"^ {4}\S.*$", prose(text), re.MULTILINE))


def test_every_page_of_guide_labs_glossary_and_readme_is_in_chinese_too():
    missing = {str(page.relative_to(ROOT)) for page in ENGLISH_PAGES if not twin(page).exists()}
    assert len(ENGLISH_PAGES) >= 46
    assert missing == set()


def test_every_chinese_page_has_an_english_one():
    twins = {twin(page) for page in ENGLISH_PAGES}
    assert [str(page.relative_to(ROOT)) for page in CHINESE.rglob("*.md") if page not in twins] == []


@each_pair
def test_both_link_each_other_below_the_title(english: Path, chinese: Path):
    to_chinese, to_english = (os.path.relpath(b, a.parent) for a, b in ((english, chinese), (chinese, english)))
    assert language_link(english.read_text(encoding="utf-8")) == f"[简体中文]({to_chinese})"
    assert language_link(chinese.read_text(encoding="utf-8")) == f"[English]({to_english})"


@each_pair
def test_commands_and_outputs_are_the_same(english: Path, chinese: Path):
    """Byte for byte, the comments of a script among them, and so are the comments about blocks that are not run."""
    of_english, of_chinese = (
        [(one.language, one.text, one.comment, one.expected) for one in blocks(page.read_text(encoding="utf-8"))]
        for page in (english, chinese)
    )
    assert of_chinese == of_english


@each_pair
def test_names_and_commands_within_sentences_are_the_same(english: Path, chinese: Path):
    own = {"tests/unit/docs/test_chinese_pages.py"} if chinese.name == "glossary.md" else set()  # holds its words
    assert code_spans(chinese.read_text(encoding="utf-8")) - own == code_spans(english.read_text(encoding="utf-8"))


@each_pair
def test_headings_items_and_rows_stand_in_the_same_order(english: Path, chinese: Path):
    """The glossary's first section is a table of its own, of English words with their Chinese ones."""
    of_english, of_chinese = (
        re.findall(r"^(?:#+ |- |\d+\. |\|)", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
        for page in (english, chinese)
    )
    if chinese.name == "glossary.md":
        of_english, of_chinese = ([one for one in kinds if one != "|"] for kinds in (of_english, of_chinese))
    assert of_chinese == of_english


@each_pair
def test_links_and_pictures_lead_to_the_same_places(english: Path, chinese: Path):
    """A link to a page that has a Chinese twin leads there; a link to a heading leads to the same heading."""
    assert sorted(map(str, links(chinese, is_english=False))) == sorted(map(str, links(english, is_english=True)))


@each_pair
def test_chinese_is_set_as_chinese_is(english: Path, chinese: Path):
    """A space between Chinese and Latin words, full-width punctuation after Chinese, and the glossary's words."""
    text = re.sub(r"<!--.*?-->", "", prose(chinese.read_text(encoding="utf-8")), flags=re.DOTALL)
    text = re.sub(
        r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "", text).replace("![", "").replace("[", "").replace("*", "")
    )
    wrong = re.findall(
        rf".{{0,8}}(?:[{HAN}][A-Za-z0-9]|[A-Za-z0-9][{HAN}]|[{HAN}][,;:?!(]|[,;:?!)][{HAN}]).{{0,8}}", text
    )
    assert wrong == []
    if chinese.name != "glossary.md":
        assert [f"{word}: {REPLACED_WORDS[word]}" for word in REPLACED_WORDS if word in text] == []


def test_the_glossary_has_the_words_that_chinese_pages_do_not_use():
    table = (CHINESE / "glossary.md").read_text(encoding="utf-8")
    held = {word for cell in re.findall(r"\*([^*\n|]+)\*", table) for word in cell.split("、")}
    assert set(REPLACED_WORDS) <= held
