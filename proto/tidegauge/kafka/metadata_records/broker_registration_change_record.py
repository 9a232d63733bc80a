"""BrokerRegistrationChangeRecord of Kafka 4.3.1: versions 0-3, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int32, int64
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class BrokerRegistrationChangeRecord:
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: Sequence[bytes] = array("uuid", "2+", tag=2)
    cordoned_log_dirs: Sequence[bytes] | None = array("uuid", "3+", nullable="3+", default=None, tag=3)
