"""ListConfigResources (74), versions 0-1, in KRaft mode: the resources that may have settings, by kind (KIP-1142).

Version 0 lists client metrics subscriptions, of which there are none here. In version 1 no kinds mean all: topics,
brokers with their loggers, and groups that have settings of their own. Another kind is refused as a whole.
Source: ``KafkaApis.handleListConfigResources``, ``ListConfigResourcesRequest.supportedResourceTypes``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft.apis import LIST_CONFIG_RESOURCES
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.kraft.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

_WITH_KINDS = 1
_OF_BROKERS = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


async def handle(request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    """List the resources of the kinds that are asked for."""
    if context.version < _WITH_KINDS:
        return ListConfigResourcesResponse()
    kinds = set(request.resource_types) or set(ConfigResourceType)
    if not kinds <= set(ConfigResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[one async for one in with_turns(_resources(kinds, context), ITEMS_PER_TURN)]
    )


def _resources(kinds: set[int], context: Context) -> Iterator[ConfigResource]:
    if ConfigResourceType.GROUP in kinds:
        yield from (ConfigResource(one, ConfigResourceType.GROUP) for one in context.service.configs.groups.ids)
    of_brokers = [kind for kind in _OF_BROKERS if kind in kinds]
    with_topics = ConfigResourceType.TOPIC in kinds
    if not of_brokers and not with_topics:
        return
    view = context.service.metadata(context.caller, None if with_topics else (), may_create=False)
    yield from (ConfigResource(str(one.broker_id), kind) for one in view.brokers for kind in of_brokers)
    yield from (ConfigResource(one.name, ConfigResourceType.TOPIC) for one in view.topics)


KRAFT_API = ServedApi(
    LIST_CONFIG_RESOURCES,
    handle,
    guard=whole.of_cluster(Operation.DESCRIBE_CONFIGS),
    only_reads=True,
    is_counted=True,
    protocol=KRAFT_BROKER_PROTOCOL,
)
