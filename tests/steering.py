"""The example's client of the control interface, ``examples/python/steering.py``, as a module for tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

CLIENT = Path(__file__).parents[1] / "examples" / "python" / "steering.py"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("steering", CLIENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


steering = _loaded()
