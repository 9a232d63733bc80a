"""The warning about a name of Python's that works for one release only."""

from __future__ import annotations

import warnings


def former(name: str, replacement: str) -> None:
    """Warn the caller of whoever calls this that a name works for this release only."""
    warnings.warn(f"{name} goes with the next release: {replacement}", DeprecationWarning, stacklevel=3)
