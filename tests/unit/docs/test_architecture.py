"""ARCHITECTURE.md is a true map: each directory, file and name that it gives is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
MAP = TEXT.partition("## The map\n\n```\n")[2].partition("```")[0]
TABLE = TEXT.partition("## Where to look")[2].partition("\n## ")[0]
PLACE = re.compile(r"`([a-z_/]+(?:\.py)?)`((?:[:,] `[A-Za-z_.]+`)*)")
BROKER = ROOT / "broker" / "tidegauge_broker"


def places() -> list[tuple[str, list[str]]]:
    """The paths in the table, each with the names that follow it."""
    rows = [line for line in TABLE.splitlines() if line.startswith("| ") and "question" not in line]
    return [(path, re.findall(r"`([^`]+)`", names)) for row in rows for path, names in PLACE.findall(row)]


def full_path(path: str) -> Path:
    return (ROOT if path.partition("/")[0] in {"proto", "controller"} else BROKER) / path


def defined(path: Path) -> set[str]:
    """Functions and classes of a module, and methods with their class before them."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{node.name}.{one.name}" for one in methods}
    return found


def mapped_directories() -> list[Path]:
    """The directories of the map: an indented one is below the last that is not."""
    found, parent = [], ROOT
    for line in MAP.splitlines():
        name = re.match(r"( *)([a-z_0-9]+(?:/[a-z_0-9]+)*/)(?= |$)", line)
        if name is not None:
            path = (parent if name[1] else ROOT) / name[2]
            found.append(path)
            if not name[1]:
                parent = path
    return found


def test_every_directory_of_the_map_is_there() -> None:
    paths = mapped_directories()
    assert len(paths) > 40
    assert [str(path) for path in paths if not path.is_dir()] == []


def test_the_table_is_read_as_a_whole() -> None:
    """Else a place in another form would go unchecked."""
    assert len(places()) > 25
    quoted = set(re.findall(r"`([^`]+)`", "".join(line for line in TABLE.splitlines() if line.startswith("| "))))
    assert quoted == {path for path, _ in places()} | {name for _, names in places() for name in names}


@pytest.mark.parametrize(("path", "names"), places())
def test_every_place_of_the_table_is_there(path: str, names: list[str]) -> None:
    where = full_path(path)
    assert where.exists()
    if names:
        assert set(names) <= defined(where)
