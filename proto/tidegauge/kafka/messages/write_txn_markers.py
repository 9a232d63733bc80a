"""WriteTxnMarkers (key 27) of Kafka 3.9.1: versions 0-1, flexible in 1+.

The versions up to 2 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int8, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class WritableTxnMarkerTopic:
    name: str = string()
    partition_indexes: Sequence[int] = array("int32")


@dataclass(slots=True)
class WritableTxnMarker:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: Sequence[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+")


@dataclass(slots=True)
class WriteTxnMarkersRequest:
    markers: Sequence[WritableTxnMarker] = array(WritableTxnMarker)


@dataclass(slots=True)
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class WritableTxnMarkerTopicResult:
    name: str = string()
    partitions: Sequence[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@dataclass(slots=True)
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: Sequence[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@dataclass(slots=True)
class WriteTxnMarkersResponse:
    markers: Sequence[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
