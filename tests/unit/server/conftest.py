"""Makes ``config_zookeeper`` importable by name: with importlib mode a test can't import its neighbours otherwise."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

NAME = "config_zookeeper"

if NAME not in sys.modules:
    _spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name(f"{NAME}.py"))
    assert _spec is not None
    assert _spec.loader is not None
    _module = sys.modules[NAME] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
