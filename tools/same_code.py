#!/usr/bin/env python3
"""Says whether two commits have the same code but for docstrings and comments.

Usage::

    python tools/same_code.py BASE [HEAD]

Compares the syntax trees, without docstrings, of all Python files that differ between the commits. A file that is
there in one of them alone counts as different, and so does a text that is no docstring: what users see is code.
Exit 0: the same; 1: the files that differ are printed.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence

_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def shape(source: str) -> str:
    """Return a text that is equal for sources with the same code.

    Docstrings and comments do not count. A text after an assignment documents the name before it; it is no code either.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING):
            node.body = [one for one in node.body if not _is_text(one)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def different(base: str, head: str) -> Iterator[str]:
    """Yield the files whose code differs between two commits."""
    for name in _git("diff", "--name-only", "--no-renames", base, head, "--", "*.py").splitlines():
        if not is_same(_source(base, name), _source(head, name)):
            yield name


def is_same(before: str | None, after: str | None) -> bool:
    """Whether both commits have a file with the same code; a file that is no Python differs."""
    try:
        return before is not None and after is not None and shape(before) == shape(after)
    except SyntaxError:
        return False


def _source(commit: str, name: str) -> str | None:
    found = subprocess.run(["git", "show", f"{commit}:{name}"], capture_output=True, text=True, check=False)
    return found.stdout if found.returncode == 0 else None


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def main(arguments: Sequence[str]) -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("base")
    parser.add_argument("head", nargs="?", default="HEAD")
    options = parser.parse_args(arguments)
    found = list(different(options.base, options.head))
    print(*(found or ["the code is the same"]), sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
