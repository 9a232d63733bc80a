"""UpdateRaftVoter (key 82) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string, struct, uint16, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class KRaftVersionFeature:
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@dataclass(slots=True)
class UpdateRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: Sequence[Listener] = array(Listener)
    kraft_version_feature: KRaftVersionFeature | None = struct(KRaftVersionFeature)


@dataclass(slots=True)
class CurrentLeader:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


@dataclass(slots=True)
class UpdateRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader | None = struct(CurrentLeader, tag=0)
