"""The mutants of the simulator's tests are judged here, too."""

from __future__ import annotations

from pathlib import Path

from tests.neighbours import provide

provide("mutants", Path(__file__).parents[1] / "simulator" / "mutants.py")
