"""Names for the helpers of the controller's tests."""

from __future__ import annotations

from pathlib import Path

from tests.neighbours import provide

HERE = Path(__file__).parent
provide("memory_zookeeper", HERE / "memory_zookeeper.py")
provide("controller_world", HERE / "controller_world.py")
