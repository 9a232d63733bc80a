"""Common parts of the tools that write files: write files that differ, or with --check only compare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_or_compare(
    arguments: Sequence[str], files: Mapping[str, Callable[[], str]], source: str, command: str
) -> int:
    """Write the files that differ from the generated text; with ``--check`` compare only.

    Args:
        arguments: of the command line.
        files: by path from the root, what makes a file's text.
        source: what the files derive from, for the sentence about files that differ.
        command: what writes them.

    Returns:
        The exit status: 1 where ``--check`` has found a difference.
    """
    stale = []
    for name, make in files.items():
        path, text = ROOT / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                path.write_text(text, encoding="utf-8")
    if "--check" not in arguments or not stale:
        return 0
    sys.stderr.write(f"Not as {source}: {', '.join(stale)}. Run: {command}\n")
    return 1
