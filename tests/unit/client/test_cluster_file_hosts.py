"""A cluster's file gives back each broker as it was saved, its host for Kafka clients too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge_client.cluster_file import BrokerEntry, ClusterFile, load_cluster_file


@pytest.mark.parametrize("host", ["", "::1", "192.0.2.7", "kafka.example.org"])
def test_a_broker_keeps_the_host_of_its_kafka_listener(tmp_path: Path, host: str) -> None:
    entry = BrokerEntry(0, "127.0.0.1", 19092, "broker-0", kafka_port=9092, kafka_host=host)
    file = ClusterFile("127.0.0.1:2181", zookeeper_managed=True, profile="fast", brokers=[entry], kafka_host=host)
    file.save(tmp_path)
    loaded = load_cluster_file(tmp_path)
    assert loaded.brokers == [entry]
    assert loaded == file
