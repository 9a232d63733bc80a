"""Archives of modules, compiled: what the page ``play`` loads needs no compiler any more. Pure.

The browser's Python runs this module when the page's files are brought (``play.compiling``), since bytecode is of one
version of Python; so it imports the standard library alone.

Rules:
    1. A compiled module has the header that CPython calls unchecked: nothing looks for its source. Its field for a hash
       has the first eight bytes of the source's SHA-256, by which ``play.code_archive`` knows whether it is of the
       source that there is.
    2. Docstrings are left out. A class keeps one of a character: a dataclass without any makes one from its signature,
       which takes longer than to compile it. Assertions stay.
    3. The same modules give the same bytes.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import marshal
import zipfile
from collections.abc import Collection
from fnmatch import fnmatchcase

_UNCHECKED = (1).to_bytes(4, "little")
_HEADER = len(importlib.util.MAGIC_NUMBER) + len(_UNCHECKED)
_HASH_BYTES = 8
_EPOCH = (1980, 1, 1, 0, 0, 0)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def hash_of(source: bytes) -> bytes:
    """Return the hash of a module's source, kept in its compiled form (rule 1)."""
    return hashlib.sha256(source).digest()[:_HASH_BYTES]


def carried_hash(compiled: bytes) -> bytes:
    """Return the hash of the source of which a compiled module was made."""
    return compiled[_HEADER : _HEADER + _HASH_BYTES]


def compiled_module(source: bytes, name: str) -> bytes:
    """Return a module compiled for the Python that runs this.

    Args:
        source: its text.
        name: its path, for tracebacks.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            _without_docstring(node)
    code = compile(tree, name, "exec", dont_inherit=True, optimize=0)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + hash_of(source) + marshal.dumps(code)


def _without_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str()) as text), *_] if isinstance(node, ast.ClassDef):
            text.value = "."
        case [ast.Expr(value=ast.Constant(value=str())) as first]:
            node.body[0] = ast.copy_location(ast.Pass(), first)
        case [ast.Expr(value=ast.Constant(value=str())), *_]:
            del node.body[0]
        case _:
            pass


def _is_left_out(path: str, left_out: Collection[str]) -> bool:
    return path.partition("/")[0] in left_out or any(fnmatchcase(path, one) for one in left_out if "/" in one)


def compiled_archive(archive: bytes, left_out: Collection[str] = ()) -> bytes:
    """Return an archive with the modules of another one, compiled.

    Args:
        archive: a ZIP file of sources.
        left_out: first parts of the paths that are not taken, and patterns (``fnmatch``) of paths without their suffix.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as given, zipfile.ZipFile(content, "w") as out:
        for path in sorted(given.namelist()):
            if path.endswith(".py") and not _is_left_out(path.removesuffix(".py"), left_out):
                info = zipfile.ZipInfo(f"{path}c", _EPOCH)
                out.writestr(info, compiled_module(given.read(path), path), zipfile.ZIP_DEFLATED, 9)
    return content.getvalue()
