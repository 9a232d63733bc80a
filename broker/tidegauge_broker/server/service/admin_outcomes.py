"""The responses to requests of admins, in plain values, and numbers that the requests have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tidegauge.cluster_metadata import Assignment
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import SettingView


class ElectionType(IntEnum):
    """Kafka's numbers for the kinds of elections that an admin can ask for."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class PartitionOutcomes:
    """The response to a request of an admin about partitions.

    Attributes:
        error: of the whole request; then there are no partitions.
        partitions: error and message for each.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    partitions: Mapping[TopicPartition, tuple[ErrorCode, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reassignments:
    """The reassignments that are in progress, or an error."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[TopicPartition, Assignment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """The response to an alteration of settings: an error with its message, or the number of the change."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    change_number: int = -1


@dataclass(frozen=True, slots=True)
class DescribedConfigs:
    """The settings of one resource, or an error with its message.

    Attributes:
        applied_change: number of the newest change that this broker has applied.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    entries: Sequence[SettingView] = ()
    applied_change: int = -1
