"""Names for the helpers of the core's tests."""

from __future__ import annotations

from pathlib import Path

from tests.neighbours import provide

HERE = Path(__file__).parent
provide("memory_zookeeper", HERE.parent / "controller" / "memory_zookeeper.py")
provide("memory_broker", HERE / "memory_broker.py")
provide("lone_broker", HERE / "lone_broker.py")
provide("core_harness", HERE / "harness.py")
provide("transcript", HERE / "transcript.py")
