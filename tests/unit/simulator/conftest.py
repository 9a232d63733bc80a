"""Names for the helpers of these tests."""

from __future__ import annotations

from pathlib import Path

from tests.neighbours import provide

provide("mutants", Path(__file__).with_name("mutants.py"))
provide("plain_classes", Path(__file__).parents[3] / "tools" / "plain_classes.py")
provide("compile_packages", Path(__file__).parents[3] / "tools" / "compile_packages.py")
