"""``describe-log-dirs``: the lines, and the document of kafka-log-dirs.sh (LogDirsCommand.formatAsJson)."""

from __future__ import annotations

from tidegauge.v1 import metadata_pb2
from tidegauge_client.cli.log_dirs import as_json, table


def replica(topic: str, partition: int, size_bytes: int, log_dir: str, **more: int) -> metadata_pb2.ReplicaDescription:
    return metadata_pb2.ReplicaDescription(
        topic=topic, partition=partition, size_bytes=size_bytes, log_dir=log_dir, role="follower", **more
    )


FOUND = {
    0: [replica("b", 1, 70, "/d2"), replica("a", 10, 30, "/d1"), replica("a", 2, 5, "/d1"), replica("c", 0, 0, "")],
    1: None,
    2: [],
}


def test_replicas_stand_under_their_directory_by_name_and_number() -> None:
    assert table(FOUND) == [
        "Broker: 0\tLogDir: (offline)\tReplicas: 1\tSize: unknown",
        "\tTopic: c\tPartition: 0\tSize: unknown",
        "Broker: 0\tLogDir: /d1\tReplicas: 2\tSize: 35",
        "\tTopic: a\tPartition: 2\tSize: 5",
        "\tTopic: a\tPartition: 10\tSize: 30",
        "Broker: 0\tLogDir: /d2\tReplicas: 1\tSize: 70",
        "\tTopic: b\tPartition: 1\tSize: 70",
    ]


def test_json_is_kafkas_document() -> None:
    lagging = {0: [replica("a", 0, 7, "/d", high_watermark=9, log_end_offset=4)]}
    assert as_json(lagging) == {
        "version": 1,
        "brokers": [
            {
                "broker": 0,
                "logDirs": [
                    {
                        "partitions": [{"partition": "a-0", "size": 7, "offsetLag": 5, "isFuture": False}],
                        "error": None,
                        "logDir": "/d",
                    }
                ],
            }
        ],
    }
    offline, silent, empty = as_json(FOUND)["brokers"]
    assert offline["logDirs"][0] == {
        "partitions": [{"partition": "c-0", "size": -1, "offsetLag": -1, "isFuture": False}],
        "error": "KAFKA_STORAGE_ERROR",
        "logDir": "(offline)",
    }
    assert silent == {"broker": 1, "logDirs": [], "error": "REQUEST_TIMED_OUT"}
    assert empty == {"broker": 2, "logDirs": []}
