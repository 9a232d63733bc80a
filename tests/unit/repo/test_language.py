"""Prose that every reader of the repository can follow: sources that can be opened, and one word for one thing."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PRODUCT = (
    "broker/tidegauge_broker/log/",
    "broker/tidegauge_broker/replica/",
    "broker/tidegauge_broker/server/",
    "broker/tidegauge_broker/waiting/",
    "client/",
    "controller/",
    "proto/",
    "spark_jobs/",
)
"""Folders of the product that hold these rules; docs/glossary.md has the words."""
TESTS = ("tests/",)
PRIVATE_SOURCES = re.compile(
    r"""
    kafka-(behaviour|protocol|coordinators)   # notes, which stand for a KIP or for a Kafka class and method
    | \b(verification|newcomer|mission|ecosystem|language|style|sheet)\.md
    | \b(mission|rows?)\ (row\ )?[A-Z][0-9]+\b   # rows of a table
    | \(rows?\ `` | \([BWRZESC][0-9]+(,\ [BWRZESC][0-9]+)+\)
    | \bissues?\ (point\ )?\#?[0-9]
    | \bdesign,?\ (sections?\ )?[0-9] | \bof\ the\ design,\ section
    | \bseed\ 00[0-9] | _seed_00[0-9] | \bthe\ seeds'?\ (tables?|print)\b | _the_seeds_tables
    | \btest_[0-9]+_[0-9]+
    """,
    re.VERBOSE | re.IGNORECASE,
)
REPLACED_WORDS = {
    "anew": "again, from scratch",
    "folder": "directory, log directory",
    "folders": "directories",
    "nobody": "the leader, the follower, the client, ... as the subject",
    "outstanding": "in flight",
    "somebody": "the leader, the follower, the client, ... as the subject",
    "unanswered": "in flight",
    "under way": "in flight, in progress",
}
WORDS = re.compile(rf"\b({'|'.join(REPLACED_WORDS)})\b", re.IGNORECASE)


def tracked(*prefixes: str) -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("a source archive has no list of tracked files")
    out = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in out.splitlines() if line.startswith(prefixes) and (ROOT / line).exists()]


def pages() -> list[Path]:
    """Return the pages beside the guide, whose outputs are compared with runs."""
    return [*sorted((ROOT / "docs").glob("*.md")), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, comments and other texts with the number of their first line."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in {tokenize.STRING, tokenize.COMMENT} and " " in token.string:
            yield token.start[0], token.string


@pytest.mark.parametrize("folder", [*PRODUCT, *TESTS])
def test_a_source_can_be_opened_by_every_reader(folder: str) -> None:
    """A KIP, a Kafka class and method, an RFC, a paper, a page of docs/, a test by its name."""
    files = [path for path in tracked(folder) if path != Path(__file__)]
    assert files
    assert [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate([path.name, *path.read_text(encoding="utf-8").splitlines()])
        if PRIVATE_SOURCES.search(line)
    ] == []


def test_a_page_cites_what_every_reader_can_open() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in pages()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if PRIVATE_SOURCES.search(line)
    ] == []


def test_pages_have_one_word_for_one_thing() -> None:
    """Not in the glossary, which lists the replaced words, nor in the scenarios' table, which the lab's verbs make."""
    assert [
        f"{path.relative_to(ROOT)}:{number}: not {word[0]!r} but {REPLACED_WORDS[word[0].lower()]!r}"
        for path in pages()
        if path.name not in {"glossary.md", "scenarios.md"}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (word := WORDS.search(line))
    ] == []


@pytest.mark.parametrize("folder", PRODUCT)
def test_there_is_one_word_for_one_thing(folder: str) -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}: not {word[0]!r} but {REPLACED_WORDS[word[0].lower()]!r}"
        for path in tracked(folder)
        for number, text in prose(path)
        if (word := WORDS.search(text))
    ] == []
