"""What prose names is there: paths and tests in pages, parameters and functions in docstrings."""

from __future__ import annotations

import ast
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
"""Names what was there at the time."""
OF_OTHERS = {"compatibility.md", "scenarios.md"}
PATH = re.compile(
    rf"(?<![\w./*<-])(?:{'|'.join(PACKAGES)}|docs|examples|docker)/[\w./-]*\w\.(?:py|md|json|txt|html|sh|yml|gz)\b"
)
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
    """Also one that stands in no link and between no backticks."""
    gone = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in pages()
        for path in PATH.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists() and not (page.parent / path).exists()
    ]
    assert gone == []


def test_every_test_that_a_page_names_exists() -> None:
    """In pages that name ours: guides invent some for the reader, and one page names those of other suites."""
    there = names_of_tests()
    gone = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        if page.parent == ROOT / "docs" and page.name not in OF_OTHERS
        for name in re.findall(r"\btest_[a-z0-9_]*[a-z0-9]\b", page.read_text(encoding="utf-8"))
        if name not in there
    ]
    assert gone == []


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the docstrings of a module: of classes, functions, and behind attributes."""
    for node in ast.walk(tree):
        for one in getattr(node, "body", ()) if isinstance(getattr(node, "body", None), list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.value


def words_of_code(tree: ast.AST) -> Iterator[str]:
    """Yield the names in a module's code, and the words of its texts, docstrings left out."""
    left_out = {id(one) for one in docstrings(tree)}
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "arg", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield from value.split(".")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield from re.findall(r"[A-Za-z_][A-Za-z0-9_]*", node.value)


def test_every_name_between_backquotes_in_a_docstring_exists() -> None:
    """A parameter that was renamed lives on in prose otherwise. Kafka's own names are in camel case, ours are not."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES and "_pb2" not in path.name
    }
    known = {word for tree in trees.values() for word in words_of_code(tree)}
    for path in tracked():
        known |= {part.partition(".")[0] for part in path.relative_to(ROOT).parts} | {path.name}
        if path.suffix in {".proto", ".toml", ".yml", ".js", ".sh", ".html", ".json"} or path.name == "Makefile":
            known |= set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", path.read_text(encoding="utf-8")))
    endings = {f"_{word.rpartition('_')[2]}" for word in known}
    gone = [
        f"{path.relative_to(ROOT)}:{docstring.lineno}: {name}"
        for path, tree in trees.items()
        for docstring in docstrings(tree)
        for name in NAME.findall(docstring.value)
        if not all(part in known or (part.startswith("_") and part in endings) for part in name.split("."))
    ]
    assert gone == []
