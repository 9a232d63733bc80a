"""DescribeTransactions (key 65) of Kafka 3.9.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class DescribeTransactionsRequest:
    transactional_ids: Sequence[str] = array("string")


@dataclass(slots=True)
class TopicData:
    topic: str = string()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class TransactionState:
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: Sequence[TopicData] = array(TopicData)


@dataclass(slots=True)
class DescribeTransactionsResponse:
    throttle_time_ms: int = int32()
    transaction_states: Sequence[TransactionState] = array(TransactionState)
