"""Names in prose exist: paths and tests in pages, parameters and functions in docstrings and comments."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.unit.repo.test_named_tests import names_of_tests

ROOT = Path(__file__).parents[3]
PACKAGES = ("proto", "broker", "controller", "client", "spark_jobs", "lab", "proof", "tests", "tools", "bench")
HISTORY = "CHANGELOG.md"
"""Names things of its time."""
OF_OTHERS = {"compatibility.md", "scenarios.md"}
PATH = re.compile(
    rf"(?<![\w./*<-])(?:{'|'.join(PACKAGES)}|docs|examples|docker)/[\w./-]*\w\.(?:py|md|json|txt|html|sh|yml|gz)\b"
)
CODE = {".py", ".proto", ".toml", ".yml", ".js", ".sh", ".html", ".json"}
WORD = re.compile(r"\w+")
QUOTED = re.compile(r"``[^`]*``")
NAME = re.compile(r"``([a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)*)(?:\(\))?``")


@cache
def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    out = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in out.splitlines() if (ROOT / line).is_file()]


def pages() -> Iterator[Path]:
    yield from (path for path in tracked() if path.suffix == ".md" and path.name != HISTORY)


def test_every_path_that_a_page_names_exists() -> None:
    """Also one in no link and between no backticks."""
    gone = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in pages()
        for path in PATH.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists() and not (page.parent / path).exists()
    ]
    assert gone == []


def test_every_test_that_a_page_names_exists() -> None:
    """In pages that name ours: guides invent some for the reader, and one page names other suites' tests."""
    there = names_of_tests()
    gone = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        if page.parent == ROOT / "docs" and page.name not in OF_OTHERS
        for name in re.findall(r"\btest_[a-z0-9_]*[a-z0-9]\b", page.read_text(encoding="utf-8"))
        if name not in there
    ]
    assert gone == []


def test_every_name_between_backquotes_exists() -> None:
    """A parameter that was renamed lives on in prose otherwise. Kafka's own names are in camel case, ours are not.

    Names of one word are left out: they are in prose, too.
    """
    texts = {
        path: path.read_text(encoding="utf-8") for path in tracked() if path.suffix in CODE or path.name == "Makefile"
    }
    known = {part.partition(".")[0] for path in tracked() for part in path.relative_to(ROOT).parts}
    for text in texts.values():
        known.update(WORD.findall(QUOTED.sub("", text)))
    endings = {f"_{word.rpartition('_')[2]}" for word in known}
    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts.items()
        if path.suffix == ".py"
        for name in NAME.findall(text)
        for part in name.split(".")
        if "_" in part and part not in known and part not in endings
    ]
    assert gone == []
