"""The lab's seams, or plain ones.

Rule: without ``lab.enable=true`` nothing of the lab is loaded, listens, or can be asked for.
"""

from __future__ import annotations

from tidegauge.logical_clock import LogicalClock
from tidegauge.security import PLAIN, Security
from tidegauge.settings import Values
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.seams import Seams


def seams_of(
    settings: Values,
    broker_id: int,
    metadata: MetadataCache,
    security: Security = PLAIN,
    over_kafka: Security = PLAIN,
    logical_clock: LogicalClock | None = None,
) -> Seams:
    """Return the lab's seams if ``lab.enable`` is set, else plain ones."""
    if not settings.flag("lab.enable"):
        return Seams(security, over_kafka, logical_clock)
    from tidegauge_broker.server.lab.lab import Lab  # noqa: PLC0415 - a plain broker must not even load it

    return Lab(settings, broker_id, metadata, security, over_kafka, logical_clock)
