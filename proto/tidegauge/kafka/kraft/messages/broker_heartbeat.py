"""BrokerHeartbeat (key 63) of Kafka 4.3.1: versions 0-2, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, int64
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class BrokerHeartbeatRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: Sequence[bytes] = array("uuid", "1+", tag=0)
    cordoned_log_dirs: Sequence[bytes] | None = array("uuid", "2+", nullable="2+", default=None, tag=1)


@dataclass(slots=True)
class BrokerHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
