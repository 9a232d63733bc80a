"""Code of a broker and a controller that names ZooKeeper outside its rooms: a second controller has to touch it.

Import rules (pyproject.toml) hold who may import its rooms; this holds what speaks of it: names and texts in code, not
in docstrings and comments. docs/kraft-and-raft.md has the list for the whole project.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMES = re.compile("zookeeper|znode|kazoo", re.IGNORECASE)
BROKER, CONTROLLER = "broker/tidegauge_broker/", "controller/tidegauge_controller/"
KNOWN = {
    BROKER + "server/cluster/chosen.py": "chooses where a broker finds its cluster's metadata",
    BROKER + "server/coordinators/group_runner.py": "a setting says which group protocols ZooKeeper mode serves",
    BROKER + "server/lab/lab.py": "chooses what the lab does to a broker's membership",
    BROKER + "server/lab/fault_table.py": "a partition from ZooKeeper is a fault",
    BROKER + "server/metrics/collect.py": "Kafka's metric of sessions",
    BROKER + "server/wire/grpc/broker.py": "DescribeReplicas returns the topic ids in znodes",
    BROKER + "server/wire/kafka/handlers/offset_commit.py": "version 0 of OffsetCommit is of offsets in ZooKeeper",
    BROKER + "server/wire/kafka/handlers/offset_fetch.py": "version 0 of OffsetFetch is of offsets in ZooKeeper",
    CONTROLLER + "diagrams.py": "draws the tables of ZooKeeper's controller",
}
"""By file: why it names ZooKeeper."""


def words_of(tree: ast.AST) -> Iterator[str]:
    """Yield the names and texts of a module, without docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(word) | ast.Attribute(attr=word) | ast.arg(word) | ast.alias(word) | ast.keyword(arg=word):
                yield word or ""
            case ast.Constant(str(word)) if id(node) not in docstrings:
                yield word
            case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word) | ast.ClassDef(name=word):
                yield word
            case ast.ImportFrom(module=word):
                yield word or ""


@pytest.mark.parametrize("component", [BROKER, CONTROLLER])
def test_only_these_files_outside_its_rooms_name_zookeeper(component: str) -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / component).rglob("*.py")
        if not any("zookeeper" in part for part in path.relative_to(ROOT).parts)
        and any(map(NAMES.search, words_of(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == {path for path in KNOWN if path.startswith(component)}


def test_the_page_lists_them() -> None:
    page = (ROOT / "docs" / "kraft-and-raft.md").read_text(encoding="utf-8")
    missing = [path for path in KNOWN if path.startswith(BROKER) and path.removeprefix(BROKER) not in page]
    assert missing == []
