"""Machine code in place of our own modules, if the package ``tidegauge_compiled`` is installed.

That package holds extension modules, compiled from modules of ours (tools/compile_packages.py), and a table of them.
``tidegauge`` and every other package whose modules may be compiled import this module first, so it decides before the
first of them is looked for, once for each process (docs/adr/0016-a-compiled-broker.md).

Rules:
    1. All of them or none: compiled modules call one another directly, and know how each other's objects are laid out.
    2. The digest of the sources must be equal: a checkout that has changed since runs from source.
    3. ``TIDEGAUGE_COMPILED=off`` in the environment leaves them out.
    4. A module that is missing or does not load is no error: the sources run, and ``reason`` says why.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

PACKAGE = "tidegauge_compiled"
VARIABLE = "TIDEGAUGE_COMPILED"
_OFF = frozenset({"off", "0", "no", "false"})


class Use(NamedTuple):
    """Whether this process runs machine code.

    Attributes:
        is_compiled: whether it does.
        reason: why it does not although ``tidegauge_compiled`` is installed; else empty.
    """

    is_compiled: bool
    reason: str = ""

    def __str__(self) -> str:
        if self.is_compiled:
            return "compiled"
        return f"interpreted: {self.reason}" if self.reason else "interpreted"

    @property
    def remark(self) -> str:
        """Return the remark behind a version; empty if nothing is installed."""
        return f" ({self})" if self.is_compiled or self.reason else ""


class _Unusable(Exception):
    """The extension modules belong to other sources, or do not load; the text says which."""


class Finder:
    """Finds extension modules by a table, in a directory with one directory for each package.

    Args:
        directory: of the extension modules.
        names: the modules' full names.
        suffix: what their files' names end with.
    """

    def __init__(self, directory: Path, names: Collection[str], suffix: str) -> None:
        self._directory = directory
        self._names = frozenset(names)
        self._suffix = suffix

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return where a module is loaded from; None: not from here."""
        del path, target
        if fullname not in self._names:
            return None
        return spec_from_file_location(fullname, self.file_of(fullname))

    def file_of(self, name: str) -> Path:
        """Return the file of a module."""
        return self._directory / f"{name.replace('.', '/')}{self._suffix}"


def digest(names: Iterable[str], roots: Mapping[str, Path]) -> str:
    """Return the digest of the sources of modules.

    Args:
        names: the modules' full names.
        roots: the directory of each package of the top level.

    Raises:
        OSError: a source can't be read.
        KeyError: a package has no directory.
    """
    import hashlib  # noqa: PLC0415 - only if there is something to compare

    found = hashlib.sha256()
    for name in sorted(names):
        package, _, rest = name.partition(".")
        found.update(f"{name}\n".encode())
        found.update((roots[package] / f"{rest.replace('.', '/')}.py").read_bytes())
    return found.hexdigest()


def use(environment: Mapping[str, str] = os.environ) -> Use:
    """Put the extension modules in the place of the sources, if they may be; return whether they are."""
    if find_spec(PACKAGE) is None:
        return Use(is_compiled=False)
    if environment.get(VARIABLE, "").lower() in _OFF:
        return Use(is_compiled=False, reason=f"{VARIABLE} is {environment[VARIABLE]}")
    table = import_module(PACKAGE)
    try:
        finder = _finder(table)
    except _Unusable as problem:
        return Use(is_compiled=False, reason=str(problem))
    sys.meta_path.insert(0, finder)
    try:
        import_module(table.LIBRARY)
    except ImportError as problem:
        sys.meta_path.remove(finder)
        return Use(is_compiled=False, reason=f"{PACKAGE} does not load: {problem}")
    return Use(is_compiled=True)


def _finder(table: ModuleType) -> Finder:
    directory = Path(table.__file__ or "").parent / "modules"
    finder = Finder(directory, {*table.MODULES, *table.HELPERS, table.LIBRARY}, table.SUFFIX)
    if table.SUFFIX not in EXTENSION_SUFFIXES or not finder.file_of(table.LIBRARY).is_file():
        raise _Unusable(f"{PACKAGE} is of another Python or another machine")
    try:
        is_same = digest(table.MODULES, _roots(table.MODULES)) == table.SOURCES
    except (OSError, KeyError) as problem:
        raise _Unusable(f"{PACKAGE} is of other sources ({problem})") from problem
    if not is_same:
        raise _Unusable(f"{PACKAGE} is of other sources")
    return finder


def _roots(names: Iterable[str]) -> dict[str, Path]:
    """Return the directory of each package of the top level, without importing any."""
    found: dict[str, Path] = {}
    for package in {name.partition(".")[0] for name in names}:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            found[package] = Path(spec.submodule_search_locations[0])
    return found


IN_USE = use()
"""The machine code of this process."""
