"""What a node's memory is made of: private bytes by import, package by package, for docs/performance.md.

    PYTHONPATH=bench python bench/memory_by_import.py [broker|controller|status]

A fresh process imports what the node imports; what each module adds to the process's private memory (Linux:
/proc/self/smaps_rollup) counts for the package that it belongs to, what a library imports for the library. The order of
imports decides who pays for what two packages share. Memory that is given back between two looks counts as zero.
"""

from __future__ import annotations

import builtins
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOTS: Mapping[str, str] = {
    "broker": "tidegauge_broker.server.verb",
    "controller": "tidegauge_broker.server.quorum.verb",
    "status": "tidegauge_lab.cli.running",
}
_OWN = "tidegauge"
_LEAST_KIB = 100
"""A package below this is not listed by itself."""


def private_kib() -> int:
    """Return the private memory of this process, in KiB."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def package_of(name: str) -> str:
    """Return the package that pays for a module: two levels of Tidegauge's own, one of others, Python's as one."""
    first = name.split(".", maxsplit=1)[0]
    if first in sys.stdlib_module_names:
        return "Python's library"
    return ".".join(name.split(".")[:2]) if first.startswith(_OWN) else first


class Meter:
    """Replaces the import statement by one that looks at the memory before and after."""

    def __init__(self) -> None:
        self.kib: Counter[str] = Counter()
        self.modules: Counter[str] = Counter()
        self._original = builtins.__import__
        self._payer: list[str] = []
        self._last_kib = private_kib()

    def __call__(self, name: str, *arguments: Any, **named: Any) -> Any:
        level = arguments[3] if len(arguments) > 3 else named.get("level", 0)
        if level or name in sys.modules:
            return self._original(name, *arguments, **named)
        package = package_of(name)
        is_of_library = bool(self._payer) and not self._payer[-1].startswith(_OWN) and self._payer[-1] != package
        payer = self._payer[-1] if is_of_library and package == "Python's library" else package
        self._charge()
        self._payer.append(payer)
        self.modules[payer] += 1
        try:
            return self._original(name, *arguments, **named)
        finally:
            self._charge()
            self._payer.pop()

    def _charge(self) -> None:
        now = private_kib()
        if self._payer:
            self.kib[self._payer[-1]] += max(0, now - self._last_kib)
        self._last_kib = now


def measured(node: str) -> None:
    """Import what a node imports, and print the table."""
    before = private_kib()
    builtins.__import__ = meter = Meter()
    importlib.import_module(ROOTS[node])
    total = private_kib()
    print(f"| {node}: imports | MB | modules |\n|---|---|---|")
    print(f"| the interpreter | {before / 1024:.1f} | |")
    small = 0
    for package, kib in meter.kib.most_common():
        if kib < _LEAST_KIB:
            small += kib
        else:
            print(f"| {package} | {kib / 1024:.1f} | {meter.modules[package]} |")
    print(f"| all others | {small / 1024:.1f} | |\n| together | {total / 1024:.1f} | {len(sys.modules)} |")


def main() -> None:
    """Measure each node in a process of its own."""
    if sys.argv[1:2] == ["--one"]:
        measured(sys.argv[2])
        return
    for node in sys.argv[1:] or list(ROOTS):
        subprocess.run([sys.executable, __file__, "--one", node], check=True)
        print()


if __name__ == "__main__":
    main()
