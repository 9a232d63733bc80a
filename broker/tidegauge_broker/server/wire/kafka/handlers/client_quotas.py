"""DescribeClientQuotas (48) and AlterClientQuotas (49), versions 0-1.

Any broker serves both. A filter of an unknown type gets UNSUPPORTED_VERSION; one of an unknown kind of match, or that
asks for an exact name and gives none, UNKNOWN_SERVER_ERROR, as in Kafka.
Source: ``KafkaApis.handleDescribeClientQuotasRequest`` and ``handleAlterClientQuotasRequest``, KIP-546.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidegauge.cluster_metadata import MetadataUnavailable
from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.cluster_metadata.client_quotas import ANY_NAME, TYPES, AnyName, Quota, entity_of
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages import alter_client_quotas, describe_client_quotas
from tidegauge.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntryData,
)
from tidegauge.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
    ValueData,
)
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import to_its_end
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import converted

LOG = logging.getLogger("tidegauge.configs")
_EXACT, _DEFAULT, _ANY = 0, 1, 2


async def describe(request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    """Return the quotas that the filter matches."""
    try:
        wanted = _filter(request.components)
        found = await context.service.configs.quotas.describe(wanted, strict=request.strict)
    except TidegaugeError as problem:
        message = None if problem.code is ErrorCode.UNKNOWN_SERVER_ERROR else problem.message
        return DescribeClientQuotasResponse(0, problem.code, message, None)
    except MetadataUnavailable as problem:
        LOG.warning("Quotas could not be described: %r", problem)
        return DescribeClientQuotasResponse(0, ErrorCode.UNKNOWN_SERVER_ERROR, None, None)
    return DescribeClientQuotasResponse(error_message="", entries=await converted(_entry, found))


def _filter(components: Sequence[ComponentData]) -> dict[str, str | AnyName | None]:
    wanted: dict[str, str | AnyName | None] = {}
    matches = [_match(one) for one in components]
    for component, match in zip(components, matches, strict=True):
        kind = component.entity_type
        if not kind:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if kind not in TYPES:
            raise TidegaugeError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in wanted:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"Duplicate {kind} filter component entity type")
        wanted[kind] = match
    return wanted


def _match(component: ComponentData) -> str | AnyName | None:
    if component.match_type == _DEFAULT:
        return None
    if component.match_type == _ANY:
        return ANY_NAME
    if component.match_type != _EXACT or component.match is None:
        raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, "")
    return component.match


def _entry(quota: Quota) -> EntryData:
    return EntryData(
        [describe_client_quotas.EntityData(kind, name) for kind, name in sorted(quota.entity.items())],
        [ValueData(key, value) for key, value in sorted(quota.values.items())],
    )


async def alter(request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
    """Alter the entries one by one; an entity that is named twice has one result, the last."""
    return await to_its_end(_alter_each(request, context))


async def _alter_each(request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
    results: dict[tuple[tuple[str, str | None], ...], tuple[ErrorCode, str]] = {}
    for entry in request.entries:
        entity = entity_of([(part.entity_type, part.entity_name) for part in entry.entity])
        changes = {op.key: None if op.remove else op.value for op in entry.ops}
        key = tuple(sorted(entity.items()))
        try:
            await context.service.configs.quotas.alter(entity, changes, validate_only=request.validate_only)
            results[key] = (ErrorCode.NONE, "")
        except TidegaugeError as problem:
            results[key] = (problem.code, problem.message)
        except MetadataUnavailable as problem:
            LOG.warning("The quotas of %s could not be altered: %r", entity, problem)
            results[key] = (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error, message or None, [alter_client_quotas.EntityData(kind, name) for kind, name in entity]
            )
            for entity, (error, message) in results.items()
        ]
    )


SERVED_APIS = (
    ServedApi(
        apis.DESCRIBE_CLIENT_QUOTAS,
        describe,
        guard=whole.of_cluster(Operation.DESCRIBE_CONFIGS),
        form=Form(values={"entries": None}),
        only_reads=True,
        is_counted=True,
    ),
    ServedApi(
        apis.ALTER_CLIENT_QUOTAS,
        alter,
        guard=whole.of_cluster(Operation.ALTER_CONFIGS),
        form=Form(
            (Part("entries", "entries", {}, Part("entity", "entity", same("entity_type", "entity_name"))),),
            is_explained=True,
        ),
    ),
)
