"""Which directory's cluster a verb means, and commands to paste that mean the cluster of a given one.

A sentence that names a command without ``--dir`` means the cluster in the directory that verbs find by themselves. Of a
cluster elsewhere it is false, and pasted it pauses, kills or deletes another one.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

DIRECTORY_VARIABLE = "TIDEGAUGE_DIR"
DEFAULT_DIRECTORY = "./tidegauge-data"


def found_directory() -> Path:
    """Return the directory that verbs without ``--dir`` use."""
    return Path(os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY)


def directory_argument(directory: Path) -> str:
    """Return `` --dir DIR`` where the verbs would not find the directory by themselves; empty otherwise."""
    is_found = found_directory().absolute() == directory.absolute()
    return "" if is_found else f" --dir {shlex.quote(str(directory))}"


def command_for(directory: Path, words: str) -> str:
    """Return a command for a sentence: in backticks, with the directory of the cluster that it is to mean.

    Args:
        directory: the cluster's.
        words: what follows ``tidegauge``: the verb, its arguments and other options.
    """
    return f"`tidegauge {words}{directory_argument(directory)}`"
