#!/usr/bin/env python3
"""Changes the code of a room in one place at a time, and counts how often its unit tests see it.

Usage::

    python -m tools.mutation replica --sample 40 --seed 1

A mutant is one change that a test should see: a comparison turned or moved by one, ``and`` for ``or``, a condition
negated, a number one higher, a statement of a block left out. The sample is drawn from all possible ones by the seed,
so that a figure can be repeated. A mutant that survives is printed with its line: either a test is missing, or the
change makes no difference that a caller could see. Assertions and texts are not changed.

The room's package is copied, and the mutant is put in the copy: the work tree stays as it is.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LIMIT_SECONDS = 900.0
"""A mutant that takes longer has made the code run for ever: it counts as seen."""


class Room(NamedTuple):
    """One room.

    Attributes:
        package: the directory that is copied, from the root of the repository.
        below: the directories in it whose code is changed.
        tests: its unit tests.
    """

    package: str
    below: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "replica": Room("broker/tidegauge_broker", ("replica",), ("tests/unit/core",)),
    "coordinator": Room("broker/tidegauge_broker", ("coordinator",), ("tests/unit/coordinator",)),
    "decisions": Room(
        "controller/tidegauge_controller",
        ("rules", "zookeeper/decisions", "metadata/decisions"),
        ("tests/unit/controller", "tests/unit/metadata"),
    ),
}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_LEFT_OUT = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Raise, ast.Delete)


class Mutant(NamedTuple):
    """One change: the file, the number of the change in it, its line, and what it does."""

    path: Path
    number: int
    line: int
    text: str


def changed(tree: ast.Module, number: int) -> tuple[int, str] | None:
    """Make one change in a tree; return its line and words, None if there is no change of this number."""
    places = list(_places(tree))
    if number >= len(places):
        return None
    node, kind = places[number]
    return node.lineno, _make(tree, node, kind)


def _places(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield what can be changed, in the order of the tree."""
    hidden = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Assert) for inner in ast.walk(node)}
    hidden |= {id(inner) for node in ast.walk(tree) for inner in _annotations(node)}
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _TURNED:
            yield node, "compare"
        elif isinstance(node, ast.BoolOp):
            yield node, "bool"
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node, "negate"
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, "number"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.If | ast.For | ast.With):
            left_out = (one for one in node.body if isinstance(one, _LEFT_OUT) and not _is_text(one))
            yield from ((one, "leave out") for one in left_out if not _ends_as_without(node, one))


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    found = [getattr(node, name, None) for name in ("annotation", "returns")]
    for one in found:
        if isinstance(one, ast.AST):
            yield from ast.walk(one)


def _ends_as_without(node: ast.stmt, last: ast.stmt) -> bool:
    """Whether a statement is the ``return None`` at the end of a function, which returns the same without it."""
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if not (is_function and isinstance(last, ast.Return) and last is node.body[-1]):
        return False
    return last.value is None or (isinstance(last.value, ast.Constant) and last.value.value is None)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _make(tree: ast.Module, node: ast.expr | ast.stmt, kind: str) -> str:
    """Make a change at a node; return its words."""
    before = ast.unparse(node).splitlines()[0]
    if isinstance(node, ast.Compare):
        node.ops[0] = _TURNED[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant):
        node.value += 1
    else:
        _leave_out(tree, node)
        return f"left out: {before}"
    ast.fix_missing_locations(tree)
    return f"{before}  ->  {ast.unparse(node).splitlines()[0]} ({kind})"


def _leave_out(tree: ast.Module, gone: ast.expr | ast.stmt) -> None:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and gone in body:
            body[body.index(gone)] = ast.copy_location(ast.Pass(), gone)
            return


def mutants(room: Room) -> list[Mutant]:
    """Return all changes to a room's code."""
    found = []
    for below in room.below:
        for path in sorted((ROOT / room.package / below).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            lines = [(node.lineno, kind) for node, kind in _places(tree)]
            found += [Mutant(path, number, line, kind) for number, (line, kind) in enumerate(lines)]
    return found


def is_seen(room: Room, mutant: Mutant, directory: Path) -> tuple[bool, str]:
    """Run the room's tests on a copy of its package with one change; return whether one fails, and the change."""
    target = directory / Path(room.package).name / mutant.path.relative_to(ROOT / room.package)
    source = mutant.path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    found = changed(tree, mutant.number)
    assert found is not None, "the number was counted in the same source"
    target.write_text(ast.unparse(tree), encoding="utf-8")
    path = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not long", *room.tests]
    try:
        run = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        seen = run.returncode != 0
    except subprocess.TimeoutExpired:
        seen = True
    finally:
        target.write_text(source, encoding="utf-8")
    return seen, found[1]


def main() -> int:
    """Sample, run, print; return 0."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--sample", type=int, default=40, metavar="N", help="mutants to try")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the sample")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append a line of JSON with the figure")
    options = parser.parse_args()
    room = ROOMS[options.room]
    possible = mutants(room)
    sample = random.Random(options.seed).sample(possible, min(options.sample, len(possible)))
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        directory = Path(name)
        shutil.copytree(ROOT / room.package, directory / Path(room.package).name)
        for count, mutant in enumerate(sample, 1):
            seen, text = is_seen(room, mutant, directory)
            survivors += not seen
            verdict = "seen" if seen else "SURVIVES"
            print(f"{count}/{len(sample)} {verdict} {mutant.path.relative_to(ROOT)}:{mutant.line} {text}", flush=True)
    print(f"{options.room}: {len(sample) - survivors} of {len(sample)} mutants seen ({len(possible)} possible)")
    if options.output:
        row = {"room": options.room, "seed": options.seed, "tried": len(sample), "seen": len(sample) - survivors}
        with options.output.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(row)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
