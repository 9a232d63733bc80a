"""Print what a file pyproject.toml asks for, a line each, so that it can be installed before the code is there.

Used by the Dockerfile: a layer with dependencies stays valid while only code changes.

Usage: requirements.py PYPROJECT [EXTRA...] | requirements.py --build PYPROJECT
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any


def requirements(pyproject: dict[str, Any], extras: list[str]) -> list[str]:
    """Return the dependencies, and those of the extras.

    Raises:
        KeyError: there is no such extra.
    """
    project = pyproject["project"]
    optional = project.get("optional-dependencies", {})
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


def main(words: list[str]) -> None:
    """Read and print."""
    is_build, *rest = (True, *words[1:]) if words[0] == "--build" else (False, *words)
    pyproject = tomllib.loads(Path(rest[0]).read_text(encoding="utf-8"))
    lines = pyproject["build-system"]["requires"] if is_build else requirements(pyproject, rest[1:])
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(sys.argv[1:])
