"""The verbs of the command line, by name: entry points of the group ``tidegauge.verbs``.

Tidegauge's own are read from the file that its installation wrote. importlib.metadata, which also finds verbs of other
packages, is imported only for an unknown name and for a list: it costs 20 ms of CPU, which each verb and each Tab would
pay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tidegauge.verbs"
_INSTALLED = "tidegauge-*.dist-info/entry_points.txt"


class VerbTable:
    """Finds verbs by name.

    Args:
        path: directories where packages are installed.
    """

    def __init__(self, path: Iterable[str] | None = None) -> None:
        self._path = sys.path if path is None else list(path)

    @cached_property
    def names(self) -> list[str]:
        """Names of all verbs, sorted."""
        return sorted({*self._own, *self._every})

    def load(self, name: str) -> object | None:
        """Import a verb; None if there is none of this name.

        Raises:
            ImportError: its module needs a package that is not installed.
            AttributeError: its module does not have it.
        """
        if (target := self._own.get(name)) is not None:
            module, _, attribute = target.partition(":")
            found: object = getattr(import_module(module), attribute)
            return found
        entry = self._every.get(name)
        return None if entry is None else entry.load()

    @cached_property
    def _own(self) -> Mapping[str, str]:
        for directory in self._path:
            for file in Path(directory).glob(_INSTALLED):
                if found := own_verbs(file.read_text(encoding="utf-8")):
                    return found
        return {}

    @cached_property
    def _every(self) -> Mapping[str, EntryPoint]:
        from importlib.metadata import entry_points  # noqa: PLC0415 - not for every verb

        return {entry.name: entry for entry in entry_points(group=GROUP)}


def own_verbs(text: str) -> dict[str, str]:
    """Return the group's entry points in a file ``entry_points.txt``, each with its ``module:attribute``."""
    found: dict[str, str] = {}
    is_ours = False
    for line in text.splitlines():
        name, equals, target = (part.strip() for part in line.partition("="))
        if name.startswith("["):
            is_ours = name == f"[{GROUP}]"
        elif is_ours and equals:
            found[name] = target
    return found
