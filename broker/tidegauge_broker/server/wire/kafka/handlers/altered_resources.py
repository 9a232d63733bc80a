"""The common part of AlterConfigs and IncrementalAlterConfigs: each resource for itself, and checks of its settings.

Source: ``KafkaApis.processLegacyAlterConfigsRequest`` and ``processIncrementalAlterConfigsRequest``,
``ConfigAdminManager``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from tidegauge.errors import ErrorCode
from tidegauge.settings import BROKER_SETTINGS, GROUP_CONFIGS, TOPIC_SETTINGS, Setting
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.handlers.common import message_of
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

RESOURCE_TABLES: Mapping[int, Mapping[str, Setting]] = {
    ConfigResourceType.TOPIC: TOPIC_SETTINGS,
    ConfigResourceType.BROKER: BROKER_SETTINGS,
    ConfigResourceType.GROUP: GROUP_CONFIGS,
}
"""The settings of each kind of resource, by Kafka's number."""


class Resource(Protocol):
    """A resource with settings, in a request."""

    resource_type: int
    resource_name: str


class Config(Protocol):
    """A setting in a request."""

    name: str


AResource = TypeVar("AResource", bound=Resource)
AResponse = TypeVar("AResponse")
Problem = tuple[ErrorCode, str]


def is_altered(context: Context, resource_type: int) -> bool:
    """Whether resources of this kind have settings here: groups do if a new protocol is served."""
    if resource_type == ConfigResourceType.GROUP:
        return context.service.groups.has_group_settings
    return resource_type in RESOURCE_TABLES


async def alter_each(
    resources: Sequence[AResource],
    alter: Callable[[AResource], Awaitable[Problem]],
    response: Callable[[int, str | None, int, str], AResponse],
) -> list[AResponse]:
    """Alter each resource for itself, others served between them; one that is named twice gets INVALID_REQUEST.

    Args:
        resources: the request's.
        alter: alters one, and returns the error (or none) and its message.
        response: makes a resource's response of error, message, type and name.
    """
    named = Counter((one.resource_type, one.resource_name) for one in resources)
    responses = []
    for number, resource in enumerate(resources, 1):
        if named[resource.resource_type, resource.resource_name] > 1:
            error, message = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            error, message = await alter(resource)
        responses.append(response(error, message_of(error, message), resource.resource_type, resource.resource_name))
        if not number % ITEMS_PER_TURN:
            await asyncio.sleep(0)
    return responses


def repeated_setting(configs: Sequence[Config]) -> Problem | None:
    """Return the refusal of a resource with a repeated setting, or None."""
    if len({config.name for config in configs}) == len(configs):
        return None
    return ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"


def null_settings(names: Iterable[str]) -> Problem | None:
    """Return the refusal of settings whose value is null, or None."""
    listed = list(names)
    return (ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(listed)}") if listed else None
