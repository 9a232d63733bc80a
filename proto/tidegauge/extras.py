"""The instructions to install the requirements of an extra of Tidegauge.

Tidegauge is on no package index, so ``pip install tidegauge[watch]`` can't work; the requirements of its extras are.
"""

from __future__ import annotations

import re
import shlex
import sys

DISTRIBUTION = "tidegauge"


def install_command(extra: str) -> str:
    """Return the command that installs an extra's requirements into this Python, for messages.

    Args:
        extra: its name in pyproject.toml.
    """
    from importlib import metadata  # noqa: PLC0415  (slow to load, for the sake of a sentence)

    try:
        requirements = requirements_of(metadata.requires(DISTRIBUTION) or [], extra)
    except metadata.PackageNotFoundError:  # run from a source directory, or from a zip file sent along
        requirements = []
    if not requirements:
        return f"pip install PACKAGES, with the packages of the extra `{extra}` in Tidegauge's pyproject.toml"
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


def requirements_of(all_requirements: list[str], extra: str) -> list[str]:
    """Return the requirements (PEP 508) that an extra adds, without markers."""
    of_extra = re.compile(rf"""\bextra\s*==\s*(["']){re.escape(extra)}\1""")
    parts = (requirement.partition(";") for requirement in all_requirements)
    return [wanted.strip() for wanted, _, marker in parts if of_extra.search(marker)]
