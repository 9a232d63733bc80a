"""Names for helpers of these tests and of the neighbouring directories."""

from __future__ import annotations

from pathlib import Path

from tests.neighbours import provide

HERE = Path(__file__).parent
provide("memory_zookeeper", HERE.parent / "controller" / "memory_zookeeper.py")
provide("config_zookeeper", HERE.parent / "server" / "config_zookeeper.py")
provide("hostile_broker", HERE / "hostile_broker.py")
provide("kafka_peer", HERE.parent / "server" / "kafka_peer.py")
