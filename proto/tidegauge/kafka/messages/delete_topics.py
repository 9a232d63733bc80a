"""DeleteTopics (key 20) of Kafka 3.9.1: versions 0-6, flexible in 4+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class DeleteTopicState:
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+")


@dataclass(slots=True)
class DeleteTopicsRequest:
    topics: Sequence[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: Sequence[str] = array("string", "0-5")
    timeout_ms: int = int32()


@dataclass(slots=True)
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


@dataclass(slots=True)
class DeleteTopicsResponse:
    throttle_time_ms: int = int32("1+")
    responses: Sequence[DeletableTopicResult] = array(DeletableTopicResult)
