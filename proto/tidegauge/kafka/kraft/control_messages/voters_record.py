"""VotersRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string, struct, uint16, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class Endpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class KRaftVersionFeature:
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@dataclass(slots=True)
class Voter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: Sequence[Endpoint] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature | None = struct(KRaftVersionFeature)


@dataclass(slots=True)
class VotersRecord:
    version: int = int16()
    voters: Sequence[Voter] = array(Voter)
