"""The modules that the browser's Python needs, found by their import statements, as one archive. Pure but for reading.

A module that an ``import`` at the top level of another one names is taken, with the packages around it; an import
behind ``TYPE_CHECKING`` or inside a function is not, and no module of other packages is: the seams of
compiled helpers (``tidegauge.checksum``, ``record_codec``, ``compressors``) do without. Of a module that was compiled
for the browser's Python (``play.compiling``), and not changed since, the compiled form is taken.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tidegauge_lab.play.bytecode import carried_hash, hash_of

ENTRY = "tidegauge_proof.hand.desk"
"""The module whose ``Desk`` is the worker's whole interface. It is named, not imported: the lab knows no proofs."""
LATER = tuple(
    f"tidegauge_proof.hand.{name}"
    for name in ("applications", "client_processes", "coordinator_facts", "share_leaders", "share_members")
)
"""Modules that the worker imports when a cluster has coordinators, or share groups."""
_OURS = (
    "tidegauge",
    "tidegauge_broker",
    "tidegauge_client",
    "tidegauge_controller",
    "tidegauge_lab",
    "tidegauge_proof",
)
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of each file in the archive: the same sources give the same bytes."""


def roots() -> dict[str, Path]:
    """Return the directory of each installed package of ours, without imports."""
    found = {}
    for name in _OURS:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found[name] = Path(next(iter(spec.submodule_search_locations)))
    return found


def modules_needed(entries: tuple[str, ...], packages: dict[str, Path]) -> dict[str, Path]:
    """Return the modules that some need, by name, with their files.

    Args:
        entries: full names of modules.
        packages: the directory of each package of the top level.
    """
    found: dict[str, Path] = {}
    wanted = list(entries)
    while wanted:
        name = wanted.pop()
        file = None if name in found else _file_of(name, packages)
        if file is None:
            continue
        found[name] = file
        if "." in name:
            wanted.append(name.rpartition(".")[0])
        wanted += _imported(ast.parse(file.read_text(encoding="utf-8")).body)
    return dict(sorted(found.items()))


def _file_of(name: str, packages: dict[str, Path]) -> Path | None:
    package, _, rest = name.partition(".")
    if package not in packages:
        return None
    place = packages[package].joinpath(*rest.split(".")) if rest else packages[package]
    for file in (place / "__init__.py", place.with_suffix(".py")):
        if file.is_file():
            return file
    return None


def _imported(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements of a module's top level import."""
    for statement in statements:
        match statement:
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module
                yield from (f"{module}.{one.name}" for one in names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                yield from _imported(orelse)
            case ast.If(body=body, orelse=orelse):
                yield from _imported(body + orelse)
            case ast.Try(body=body, handlers=handlers, orelse=orelse):
                yield from _imported(body + [one for handler in handlers for one in handler.body] + orelse)
            case _:
                pass


@cache
def archive(entries: tuple[str, ...] = (ENTRY, *LATER), compiled: Path | None = None) -> bytes:
    """Return the archive, made once: a ZIP file with the paths of the modules.

    Args:
        entries: full names of the modules that are wanted.
        compiled: an archive of compiled modules, if there is one.
    """
    packages = roots()
    content = io.BytesIO()
    known = _compiled(compiled)
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name, file in modules_needed(entries, packages).items():
            package = name.partition(".")[0]
            inside = file.relative_to(packages[package].parent).as_posix()
            source = file.read_bytes()
            made = known.get(f"{inside}c", b"")
            path, taken = (f"{inside}c", made) if carried_hash(made) == hash_of(source) else (inside, source)
            out.writestr(zipfile.ZipInfo(path, _EPOCH), taken, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _compiled(archive_file: Path | None) -> dict[str, bytes]:
    """Return compiled modules by path; none if there is no valid archive."""
    try:
        if archive_file is None:
            return {}
        with zipfile.ZipFile(archive_file) as given:
            return {path: given.read(path) for path in given.namelist()}
    except (OSError, zipfile.BadZipFile):
        return {}
