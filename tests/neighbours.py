"""Makes helper files importable by name: with importlib mode a test can't import its neighbours otherwise."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def provide(name: str, path: Path) -> None:
    """Load a helper file under a name, once per run."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
