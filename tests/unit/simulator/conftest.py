"""Makes ``mutants`` importable by name: with importlib mode a test can't import its neighbours otherwise."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if "mutants" not in sys.modules:
    spec = importlib.util.spec_from_file_location("mutants", Path(__file__).with_name("mutants.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules["mutants"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["mutants"])
