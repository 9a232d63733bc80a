"""AddRaftVoter (key 80) of Kafka 4.3.1: versions 0-1, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, string, uint16, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class AddRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: Sequence[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


@dataclass(slots=True)
class AddRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
