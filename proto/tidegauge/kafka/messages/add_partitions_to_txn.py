"""AddPartitionsToTxn (key 24) of Kafka 3.9.1: versions 0-5, flexible in 3+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class AddPartitionsToTxnTransaction:
    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: Sequence[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


@dataclass(slots=True)
class AddPartitionsToTxnRequest:
    transactions: Sequence[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: int = int16()


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@dataclass(slots=True)
class AddPartitionsToTxnResult:
    transactional_id: str = string("4+")
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")


@dataclass(slots=True)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("4+")
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")
