#!/usr/bin/env python3
"""Writes docs/configuration.md and docs/server.properties from the table of settings; --check only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from tidegauge.settings.document import configuration_page, properties_file

ROOT = Path(__file__).parents[1]
FILES = {"docs/configuration.md": configuration_page, "docs/server.properties": properties_file}


def main(arguments: list[str]) -> int:
    """Write, or compare and return 1 where a file differs."""
    stale = []
    for name, make in FILES.items():
        path, text = ROOT / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                path.write_text(text, encoding="utf-8")
    if "--check" in arguments and stale:
        sys.stderr.write(f"Not as the settings are: {', '.join(stale)}. Run: python tools/generate-configuration.py\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
