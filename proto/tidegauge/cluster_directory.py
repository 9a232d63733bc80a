"""The directory of a verb's cluster, and commands to paste that name the cluster of a given one.

A sentence that names a command without ``--dir`` means the cluster in the directory that verbs find by themselves. Of a
cluster elsewhere it is false, and pasted it pauses, kills or deletes another one.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

DIRECTORY_VARIABLE = "TIDEGAUGE_DIR"
DEFAULT_DIRECTORY = "./tidegauge-data"
_ADVISED = re.compile(r"(?<!`)`tidegauge (?P<verb>[a-z][a-z-]*)(?P<rest>(?: [^`]*)?)`")
_OF_NO_CLUSTER = frozenset({"broker", "demo", "dump-log", "explore", "replay", "scenario", "simulate"})
_OF_A_DIRECTORY = frozenset(
    {
        *("control", "down", "kill", "lab", "logs", "pause", "restore", "resume", "snapshot", "start", "status"),
        *("stop", "timeline", "up", "zk-tree"),
    }
)
"""Verbs that need the cluster's directory: an address of a broker is not enough for them."""


def found_directory() -> Path:
    """Return the directory that verbs without ``--dir`` use."""
    return Path(os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY)


def directory_argument(directory: Path) -> str:
    """Return `` --dir DIR`` if verbs would not find the directory; else empty."""
    is_found = found_directory().absolute() == directory.absolute()
    return "" if is_found else f" --dir {shlex.quote(str(directory))}"


def command_for(directory: Path, words: str) -> str:
    """Return a command in backticks, with the directory of its cluster.

    Args:
        directory: the cluster's.
        words: what follows ``tidegauge``: the verb, its arguments and other options.
    """
    return f"`tidegauge {words}{directory_argument(directory)}`"


def of_directory(sentence: str, directory: Path) -> str:
    """Return a sentence whose advised commands mean the cluster in a directory.

    A command that names a cluster stays as it is, and so does the mere mention of what `tidegauge up` started.

    Args:
        sentence: with commands in backticks.
        directory: the cluster's.
    """
    return _with_cluster(sentence, directory_argument(directory), frozenset())


def of_servers(sentence: str, arguments: str) -> str:
    """Return a sentence with each command completed by a cluster's address, if possible.

    Args:
        sentence: with commands in backticks.
        arguments: the options that name the cluster, with a space before each.
    """
    return _with_cluster(sentence, arguments, _OF_A_DIRECTORY)


def _with_cluster(sentence: str, arguments: str, left_out: frozenset[str]) -> str:
    def named(found: re.Match[str]) -> str:
        verb, rest = found["verb"], found["rest"]
        is_mention = verb == "up" and not rest
        names_one = any(f" {option} " in rest for option in ("--dir", "-b", "--bootstrap-server"))
        if is_mention or names_one or verb in _OF_NO_CLUSTER or verb in left_out:
            return found[0]
        return f"`tidegauge {verb}{rest}{arguments}`"

    return _ADVISED.sub(named, sentence)
