"""The responses that differ between KRaft mode and ZooKeeper mode: as in Apache Kafka 4.3, not in 3.9.

- Groups have settings (KIP-1043), so DESCRIBE_CONFIGS and ALTER_CONFIGS are operations of theirs
  (``AclEntry.supportedOperations``).
- Settings of topics that Kafka 4 has removed are not described (KIP-724, KIP-937); why there are none of client
  metrics is said in KRaft mode's words.
- A follower is not given the addresses of leaders, which it knows by its own metadata (``handleFetchRequest``).
- A filter of client quotas that names an entity beside a match that needs no name, or none beside one that needs it,
  is refused (``ClientQuotasImage.describe``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tidegauge.cluster_metadata.access_lists import ResourceType
from tidegauge.cluster_metadata.client_quotas import TYPES
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tidegauge.kafka.messages.fetch import FetchRequest, FetchResponse
from tidegauge.settings.topic import REMOVED_IN_KAFKA_4
from tidegauge_broker.security.acls.authorizer import OPERATIONS_IN_KRAFT
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.authorization.asking import changed
from tidegauge_broker.server.wire.kafka.fetch_reader import is_followers
from tidegauge_broker.server.wire.kafka.handlers import (
    client_quotas,
    consumer_group_describe,
    describe_configs,
    describe_groups,
    fetch,
    share_group_describe,
)
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_ASKED_FOR
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Held, Pending, Response
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

GROUP_OPERATIONS = sum(1 << one for one in OPERATIONS_IN_KRAFT[ResourceType.GROUP])
_EXACT, _DEFAULT, _SPECIFIED = "MATCH_TYPE_EXACT", "MATCH_TYPE_DEFAULT", "MATCH_TYPE_SPECIFIED"
_NO_CLIENT_METRICS = "Brokers here collect no metrics of clients (KIP-714), so there are no settings for them"
_MATCHES = {0: _EXACT, 1: _DEFAULT, 2: _SPECIFIED}


def _with_operations_of(handler: Handler) -> Handler:
    """Return a handler that describes groups with all operations of groups."""

    def change(message: Any) -> None:
        for group in message.groups:
            if group.authorized_operations != NOT_ASKED_FOR:
                group.authorized_operations = GROUP_OPERATIONS

    return lambda request, context: changed(handler(request, context), change)


def _describe_configs(request: Any, context: Context) -> Response:
    """Describe resources without the settings of topics that are no longer there."""

    def change(message: Any) -> None:
        for one in message.results:
            if one.resource_type == ConfigResourceType.CLIENT_METRICS and one.error_code:
                one.error_message = _NO_CLIENT_METRICS
            if one.resource_type == ConfigResourceType.TOPIC:
                one.configs = [entry for entry in one.configs if entry.name not in REMOVED_IN_KAFKA_4]

    return changed(describe_configs.handle(request, context), change)


def _fetch(request: FetchRequest, context: Context) -> Response:
    """Read for a consumer or a follower; a follower's response costs no task where ZooKeeper mode's costs none."""
    response = fetch.handle(request, context)
    if not is_followers(request, context.version):
        return response
    if isinstance(response, Pending):
        return Pending(response.future, lambda found: _without_addresses(response.respond(found)))
    if asyncio.iscoroutine(response):
        return changed(response, _remove_addresses)
    return _without_addresses(response)


def _without_addresses(response: Any) -> Any:
    _remove_addresses(response.message if isinstance(response, Held) else response)
    return response


def _remove_addresses(message: FetchResponse) -> None:
    message.node_endpoints = ()


def _describe_quotas(request: DescribeClientQuotasRequest, context: Context) -> Response:
    """Return the quotas that the filter matches, if its components are valid."""
    refused = _refusal(request.components)
    if refused is not None:
        return DescribeClientQuotasResponse(0, ErrorCode.INVALID_REQUEST, refused, None)
    return client_quotas.describe(request, context)


def _refusal(components: Sequence[ComponentData]) -> str | None:
    """Return why a component's match makes a filter unusable, or None.

    None: no match does.

    A wrong type is reported before that, component by component; it is left to the handler.
    """
    seen: set[str] = set()
    for one in components:
        if one.entity_type not in TYPES or one.entity_type in seen:
            return None
        seen.add(one.entity_type)
        match = _MATCHES.get(one.match_type)
        if match is None:
            return f"Unknown match type {one.match_type}"
        if match == _EXACT and one.match is None:
            return f"Request specified {match}, but set match string to null."
        if match != _EXACT and one.match is not None:
            return f"Request specified {match}, but also specified a match string."
    return None


_OF_GROUPS = (describe_groups.API, consumer_group_describe.API, share_group_describe.API)
_QUOTAS = next(one for one in client_quotas.SERVED_APIS if one.key == apis.DESCRIBE_CLIENT_QUOTAS)
KRAFT_VARIANTS: tuple[ServedApi, ...] = (
    *(one._replace(handle=_with_operations_of(one.handle)) for one in _OF_GROUPS),
    describe_configs.API._replace(handle=_describe_configs),
    fetch.API._replace(handle=_fetch),
    _QUOTAS._replace(handle=_describe_quotas),
)
"""The APIs whose responses differ; the rest of each is the same as in ZooKeeper mode."""
