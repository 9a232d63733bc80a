"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions 0-3: the lists in ZooKeeper.

Any broker serves all three. Without an authorizer they get SECURITY_DISABLED, so that administration tools and pages
say why there are none. Version 0 knows literal patterns alone.
Source: ``AclApis``, ``DescribeAclsResponse.aclsResources``, ``DeleteAclsResponse.filterResult``.
"""

from __future__ import annotations

from typing import Any

from tidegauge.cluster_metadata.access_lists import (
    Binding,
    Entry,
    Filter,
    Operation,
    PatternType,
)
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from tidegauge.kafka.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tidegauge.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tidegauge_broker.server.acls.access_control import Outcome
from tidegauge_broker.server.acls.matching_lists import matching_lists
from tidegauge_broker.server.acls.message_forms import binding_of, filter_of
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part
from tidegauge_broker.server.wire.kafka.handlers.common import to_its_end
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import converted

_NONE_TO_DESCRIBE = "No Authorizer is configured on the broker"
_NONE_TO_ALTER = "No Authorizer is configured."


async def describe(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    """Return the entries that the filter matches, by pattern."""
    acls = context.service.configs.acls
    if acls is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NONE_TO_DESCRIBE)
    wanted = filter_of(request)
    if _has_unknown(wanted):
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=_UNKNOWN)
    resources = [
        DescribeAclsResource(*pattern, await converted(_described, entries))
        async for pattern, entries in matching_lists(acls.authorizer, wanted)
        if context.version > 0 or pattern.pattern_type is PatternType.LITERAL
    ]
    return DescribeAclsResponse(error_message=None, resources=resources)


def _described(entry: Entry) -> AclDescription:
    return AclDescription(entry.principal, entry.host, entry.operation, entry.permission)


async def create(request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    """Add entries, each for itself."""
    acls = context.service.configs.acls
    if acls is None:
        refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, _NONE_TO_ALTER)
        return CreateAclsResponse(results=[refused] * len(request.creations))
    outcomes = await to_its_end(acls.create([binding_of(one, one.resource_pattern_type) for one in request.creations]))
    return CreateAclsResponse(results=[AclCreationResult(one.error, one.message) for one in outcomes])


async def delete(request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    """Remove the entries that the filters match."""
    acls = context.service.configs.acls
    if acls is None:
        refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, _NONE_TO_ALTER)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    wanted = [filter_of(one) for one in request.filters]
    if any(map(_has_unknown, wanted)):
        refused = DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, _UNKNOWN)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    results = await to_its_end(acls.delete(wanted))
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(0, None, [_deleted(*one) for one in each]) for each in results]
    )


_UNKNOWN = "The filter contains unknown elements"


def _has_unknown(wanted: Filter) -> bool:
    """Whether a filter has unknown values; it would match nothing, or too much."""
    return 0 in {wanted.kind, wanted.pattern_type, wanted.operation, wanted.permission}


def _deleted(binding: Binding, outcome: Outcome) -> Any:
    (kind, name, pattern_type), entry = binding
    return DeleteAclsMatchingAcl(
        outcome.error,
        outcome.message,
        kind,
        name,
        pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


SERVED_APIS = (
    ServedApi(
        apis.DESCRIBE_ACLS, describe, guard=whole.of_cluster(Operation.DESCRIBE), only_reads=True, is_counted=True
    ),
    ServedApi(
        apis.CREATE_ACLS,
        create,
        guard=whole.of_cluster(Operation.ALTER),
        form=Form((Part("results", "creations", {}),)),
    ),
    ServedApi(
        apis.DELETE_ACLS,
        delete,
        guard=whole.of_cluster(Operation.ALTER),
        form=Form((Part("filter_results", "filters", {}),)),
        is_counted=True,
    ),
)
