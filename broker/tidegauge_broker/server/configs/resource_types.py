"""The types of resources with settings, by Kafka's numbers."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """Kafka's numbers (``ConfigResource.Type``); GROUP counts where the consumer protocol is served."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
