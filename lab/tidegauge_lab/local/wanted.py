"""What the user asks of a cluster, and the refusal of what contradicts the directory that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for; None where nothing was said."""

    brokers: int | None = None
    profile: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    zookeeper: str | None = None
    base_port: int | None = None
    zookeeper_port: int | None = None
    kafka_port: int | None = None
    kafka_host: str | None = None


def contradiction(directory: Path, fact: str) -> TidegaugeError:
    """Return the error for what an existing cluster can't become; ``fact`` says what it is."""
    return TidegaugeError(
        ErrorCode.INVALID_REQUEST,
        f"the cluster in {directory} {fact}; that can't be changed: use another directory (--dir), or remove this "
        f"cluster with {command_for(directory, 'down --purge')}",
    )
