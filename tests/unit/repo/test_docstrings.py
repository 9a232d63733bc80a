"""Names that a docstring lists under Attributes and Args exist: a renamed attribute leaves no former name behind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.unit.repo.test_repository import ROOT, own_python

ENTRY = re.compile(r"(?P<names>`*\**\w+`*(?:, `*\**\w+`*)*):\s")


def listed(docstring: str, section: str) -> list[str]:
    """Return the names that a section of a docstring explains."""
    names: list[str] = []
    lines = iter(docstring.splitlines())
    if not any(line == f"{section}:" for line in lines):
        return names
    for line in lines:
        if line and not line.startswith("    "):
            break
        if re.match(r" {4}\S", line) and (entry := ENTRY.match(line.strip())):
            names += [name.strip("`* ") for name in entry["names"].split(",")]
    return names


def own_names(found: ast.ClassDef) -> set[str]:
    """Return a class's names: fields, methods, and attributes of ``self``."""
    names: set[str] = set()
    for node in ast.walk(found):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return names


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of a function's parameters."""
    all_of = function.args
    several = [one for one in (all_of.vararg, all_of.kwarg) if one is not None]
    return {one.arg for one in (*all_of.posonlyargs, *all_of.args, *all_of.kwonlyargs, *several)}


def defined(parent: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the classes and functions of a module and of its classes."""
    for node in parent.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from defined(node)


def untrue(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and name of what a docstring lists and its class or function does not have.

    Attributes of a base class are listed if it is one of another module: only classes without bases are judged by
    their attributes, and tuples and dataclasses, which have their fields in themselves.
    """
    for node in defined(tree):
        docstring = ast.get_docstring(node) or ""
        attributes, args = listed(docstring, "Attributes"), listed(docstring, "Args")
        if not attributes and not args:
            continue
        if isinstance(node, ast.ClassDef):
            names = own_names(node)
            made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
            taken = parameters(made[0]) if made else names
            if not node.bases or ast.unparse(node.bases[0]) in {"NamedTuple", "Protocol"}:
                yield from ((node.lineno, one) for one in attributes if one not in names)
        else:
            taken = parameters(node)
        yield from ((node.lineno, one) for one in args if one not in taken)


def test_names_that_are_not_there_are_found() -> None:
    code = '''
class A:
    """A.

    Args:
        one: is there.
        two: is not.

    Attributes:
        here: it is.
        ``gone``, three: one of them.
            details: of it.
    """

    def __init__(self, one):
        self.here = self.three = one

    def f(self, *rest, last):
        """F.

        Args:
            rest: is there.
            last: too.
            never: was.

        Raises:
            ValueError: no name.
        """
'''
    assert [name for _, name in untrue(ast.parse(code))] == ["gone", "two", "never"]


def test_docstrings_list_what_is_there() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in own_python()
        if "Args:" in (text := path.read_text()) or "Attributes:" in text
        for line, name in untrue(ast.parse(text))
    ]
    assert found == []
