#!/usr/bin/env python3
"""Writes the tables of docs/which-mode.md; --check only compares."""

from __future__ import annotations

import sys

from generated_files import ROOT, write_or_compare

sys.path.insert(0, str(ROOT))

from tools.modes import PAGE, page


def made() -> str:
    """Return the page with its tables."""
    return page((ROOT / PAGE).read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(write_or_compare(sys.argv[1:], {PAGE: made}, "scenarios, labs and tools/modes.py have it", "make modes"))
