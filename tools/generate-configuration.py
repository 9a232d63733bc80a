#!/usr/bin/env python3
"""Writes docs/configuration.md and docs/server.properties from the table of settings; --check only compares."""

from __future__ import annotations

import sys

from generated_files import write_or_compare

from tidegauge.settings.document import configuration_page, properties_file

FILES = {"docs/configuration.md": configuration_page, "docs/server.properties": properties_file}

if __name__ == "__main__":
    command = "python tools/generate-configuration.py"
    raise SystemExit(write_or_compare(sys.argv[1:], FILES, "the settings are", command))
