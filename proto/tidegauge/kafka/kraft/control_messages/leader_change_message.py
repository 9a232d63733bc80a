"""LeaderChangeMessage of Kafka 4.3.1: versions 0-1, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class Voter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid("1+")


@dataclass(slots=True)
class LeaderChangeMessage:
    version: int = int16()
    leader_id: int = int32()
    voters: Sequence[Voter] = array(Voter)
    granting_voters: Sequence[Voter] = array(Voter)
