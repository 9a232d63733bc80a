"""Prose that every reader of the repository can follow: sources that can be opened, and one word for one thing."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PRODUCT = (
    "bench/",
    "broker/",
    "client/",
    "controller/",
    "docker/",
    "lab/",
    "proof/",
    "proto/",
    "spark_jobs/",
    "tools/",
)
"""Directories of the product that hold these rules; docs/glossary.md has the words."""
PARTLY: dict[str, set[str]] = {}
"""Words that these directories still have."""
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
    "answer": "response",
    "answers": "responses; responds",
    "answered": "responded, completed, acknowledged",
    "answering": "responding",
    "cut": "truncate (a log); partition (a network); power loss",
    "cuts": "truncations, partitions, power losses",
    "cutting": "truncating, partitioning",
    "folder": "directory, log directory",
    "folders": "directories",
    "gone": "closed, dead, expired, deleted, lost",
    "life": "incarnation",
    "nobody": "the leader, the follower, the client, ... as the subject",
    "outstanding": "in flight",
    "somebody": "the leader, the follower, the client, ... as the subject",
    "told": "notified, sent, reported, emitted",
    "unanswered": "in flight",
    "under way": "in flight, in progress",
}
WORDS = re.compile(rf"\b({'|'.join(REPLACED_WORDS)})\b", re.IGNORECASE)
RIGHT_ENGLISH = re.compile(
    r"""
    ``[^`]*`` | `[^`]*` | \]\([^)]*\)   # names, and targets of links
    | \banswer:\ later\b   # an argument of scenario files
    | \bpower-cut\b | \bsign\ of\ life\b   # an event; a heartbeat
    | \bis\ gone;\ some\ data\ may\ have\ been\ missed   # the words of Spark's Kafka source
    """,
    re.VERBOSE,
)


TEXT_TOKENS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def replaced_word(line: str, allowed: Collection[str] = ()) -> str | None:
    """Return a line's replaced word, and the glossary's."""
    for word in WORDS.finditer(RIGHT_ENGLISH.sub("", line)):
        if word[0].lower() not in allowed:
            return f"not {word[0]!r} but {REPLACED_WORDS[word[0].lower()]!r}"
    return None


def tracked(*prefixes: str) -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("a source archive has no list of tracked files")
    out = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in out.splitlines() if line.startswith(prefixes) and (ROOT / line).exists()]


def pages() -> list[Path]:
    """Return all pages but the glossary, which lists the replaced words."""
    found = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "bench" / "README.md"]
    return sorted(path for path in found if path.name != "glossary.md")


def sentences(page: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without the blocks of commands and outputs, which runs are compared with."""
    is_block = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_block = not is_block
        elif not is_block:
            yield number, line


def notes(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of docstrings and comments, with their numbers; not of data, which a test compares as it is."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        is_docstring = token.type == tokenize.STRING and before in {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        if is_docstring or token.type == tokenize.COMMENT:
            yield from enumerate(token.string.splitlines(), token.start[0])
        if token.type not in {tokenize.NL, tokenize.COMMENT}:
            before = token.type


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of docstrings, comments and other texts, with their numbers."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in TEXT_TOKENS and " " in token.string:
            yield from enumerate(token.string.splitlines(), token.start[0])


@pytest.mark.parametrize("prefix", [*PRODUCT, *TESTS])
def test_a_source_can_be_opened_by_every_reader(prefix: str) -> None:
    """A KIP, a Kafka class and method, an RFC, a paper, a page of docs/, a test by its name."""
    files = [path for path in tracked(prefix) if path != Path(__file__)]
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
        for path in [*pages(), ROOT / "docs" / "glossary.md"]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if PRIVATE_SOURCES.search(line)
    ] == []


def test_pages_have_one_word_for_one_thing() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}: {problem}"
        for path in pages()
        if ROOT / "docs" / "zh" not in path.parents  # tests/unit/docs/test_chinese_pages.py holds their words
        for number, line in sentences(path)
        if (problem := replaced_word(line))
    ] == []


@pytest.mark.parametrize("prefix", PRODUCT)
def test_there_is_one_word_for_one_thing(prefix: str) -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}: {problem}"
        for path in tracked(prefix)
        for number, line in prose(path)
        if (problem := replaced_word(line, PARTLY.get(prefix, ())))
    ] == []


@pytest.mark.parametrize("prefix", TESTS)
def test_notes_in_tests_have_one_word_for_one_thing(prefix: str) -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}: {problem}"
        for path in tracked(prefix)
        if path != Path(__file__)
        for number, line in notes(path)
        if (problem := replaced_word(line))
    ] == []


SCENARIOS = sorted((ROOT / "lab" / "tidegauge_lab" / "scenario" / "files").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_shipped_scenario_has_one_word_for_one_thing(path: Path) -> None:
    """Its title, its rule and its notes are what a learner reads; names of arguments stay as scripts have them."""
    steps = re.compile(r"\b(answer|answers): ")
    lines = (steps.sub("", line) for line in path.read_text(encoding="utf-8").splitlines())
    assert [f"{number}: {problem}" for number, line in enumerate(lines, 1) if (problem := replaced_word(line))] == []


NOT_IN_NAMES = set(REPLACED_WORDS) - {"cut", "cuts", "cutting", "gone", "under way"}
"""Names leave these to their English senses: a cut of a file's bytes, an element gone from a set."""

NAMES_THAT_SCRIPTS_USE = {
    "lab/tidegauge_lab/scenario/group_steps.py: answer",
    "lab/tidegauge_lab/scenario/share_steps.py: answer",
    "lab/tidegauge_lab/scenario/broker_steps.py: answer",
    "lab/tidegauge_lab/scenario/transaction_steps.py: answer",
    "lab/tidegauge_lab/scenario/state_steps.py: answers",
    "lab/tidegauge_lab/scenario/player.py: _wait_answer",
}
"""Fields and verbs of scenario files, and former names that work for one more release."""

ANY_IN_A_NAME = re.compile("|".join(NOT_IN_NAMES), re.IGNORECASE)


def words_in(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def defined_names(text: str) -> Iterator[str]:
    """Names that a text binds; parses only a text that has one of the words at all."""
    if not ANY_IN_A_NAME.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case _:
                pass


@pytest.mark.parametrize("prefix", [*PRODUCT, *TESTS, "docs/", "examples/"])
def test_names_have_the_glossary_s_words(prefix: str) -> None:
    """Functions, classes, parameters, variables, attributes and files; names that scripts use are listed."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked(prefix)
        for name in [path.stem, *defined_names(path.read_text(encoding="utf-8"))]
        if words_in(name) & NOT_IN_NAMES
    }
    assert found == {name for name in NAMES_THAT_SCRIPTS_USE if name.startswith(prefix)}


def test_a_name_with_a_replaced_word_is_found() -> None:
    text = (
        "class Answer:\n    def is_told(self, folder, *answers, **told_so):\n        self.folders = life = 1\n"
        "        lifetime = 2\nfrom a import b as nobody\n"
    )
    found = [name for name in defined_names(text) if words_in(name) & NOT_IN_NAMES]
    assert sorted(found) == ["Answer", "answers", "folder", "folders", "is_told", "life", "nobody", "told_so"]


def test_the_glossary_names_the_replaced_words() -> None:
    """Its words in italics are those that are held; a word of one table only would mislead."""
    table = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Terms")[0]
    held = {word for cell in re.findall(r"\*([^*\n]+)\*", table) for word in cell.split(", ")} - {"italics"}
    assert held <= REPLACED_WORDS.keys()
    assert {word for word in REPLACED_WORDS if not word.endswith(("s", "ed", "ing")) or word == "outstanding"} <= held
