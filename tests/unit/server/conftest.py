"""Names for the helpers of these tests."""

from __future__ import annotations

from pathlib import Path

from tests.neighbours import provide

provide("config_zookeeper", Path(__file__).with_name("config_zookeeper.py"))
provide("kafka_cluster", Path(__file__).with_name("kafka_cluster.py"))
provide("kafka_peer", Path(__file__).with_name("kafka_peer.py"))
provide("sample_requests", Path(__file__).with_name("sample_requests.py"))
provide("kafka_service", Path(__file__).with_name("kafka_service.py"))
provide("share_partitions", Path(__file__).with_name("share_partitions.py"))
provide("quorum_peer", Path(__file__).with_name("quorum_peer.py"))
