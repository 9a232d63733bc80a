"""ListTransactions (key 66) of Kafka 3.9.1: versions 0-1, flexible in 0+.

The versions up to 2 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ListTransactionsRequest:
    state_filters: Sequence[str] = array("string")
    producer_id_filters: Sequence[int] = array("int64")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


@dataclass(slots=True)
class TransactionState:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@dataclass(slots=True)
class ListTransactionsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: Sequence[str] = array("string")
    transaction_states: Sequence[TransactionState] = array(TransactionState)
