"""DescribeAcls, CreateAcls and DeleteAcls at the controller.

Without an authorizer they get SECURITY_DISABLED. Source: ``AclApis``, ``ControllerApis``; KIP-801.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from tidegauge.cluster_metadata.access_lists import (
    Binding,
    Entry,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import create_acls, delete_acls, describe_acls
from tidegauge_broker.server.acls.matching_lists import matching_lists
from tidegauge_broker.server.acls.message_forms import binding_of, filter_of
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller.authorization import Authorization
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_broker.server.quorum.controller.large_requests import in_turns, prepared
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part
from tidegauge_broker.server.wire.kafka.turns import converted
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions import access_lists
from tidegauge_controller.metadata.decisions.view import Decision

_RANDOM = random.SystemRandom()
_NO_AUTHORIZER = "No Authorizer is configured."


def served(controller: QuorumController, authorization: Authorization) -> list[Served]:
    """Return the APIs."""
    return [
        Served(apis.DESCRIBE_ACLS, in_turns(partial(_describe, authorization))),
        Served(
            apis.CREATE_ACLS,
            prepared(controller, partial(_create, authorization)),
            Form((Part("results", "creations", {}),)),
            is_forwarded=True,
        ),
        Served(
            apis.DELETE_ACLS,
            prepared(controller, partial(_delete, authorization)),
            Form((Part("filter_results", "filters", {}),)),
            is_forwarded=True,
        ),
    ]


async def _describe(authorization: Authorization, call: Call) -> None:
    message: describe_acls.DescribeAclsRequest = call.message
    authorizer = authorization.authorizer
    if authorizer is None:
        call.refuse(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
        return
    resources = [
        describe_acls.DescribeAclsResource(*pattern, await converted(_described, entries))
        async for pattern, entries in matching_lists(authorizer, filter_of(message))
    ]
    call.respond(describe_acls.DescribeAclsResponse(error_message=None, resources=resources))


def _described(entry: Entry) -> describe_acls.AclDescription:
    return describe_acls.AclDescription(entry.principal, entry.host, entry.operation, entry.permission)


def _create(authorization: Authorization, call: Call) -> WriteEvent | None:
    message: create_acls.CreateAclsRequest = call.message
    if not authorization.is_configured:
        call.refuse(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
        return None
    bindings = [binding_of(one, one.resource_pattern_type) for one in message.creations]

    def decide(active: ActiveController, _: int) -> Decision[list[TidegaugeError | None]]:
        return access_lists.create_entries(active.view, bindings, _RANDOM)

    def done(results: Sequence[TidegaugeError | None]) -> None:
        found = [create_acls.AclCreationResult(*_error_of(problem)) for problem in results]
        call.respond(create_acls.CreateAclsResponse(results=found))

    return WriteEvent("createAcls", decide, done, call.refuse)


def _delete(authorization: Authorization, call: Call) -> WriteEvent | None:
    message: delete_acls.DeleteAclsRequest = call.message
    if not authorization.is_configured:
        call.refuse(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
        return None
    filters = [filter_of(one) for one in message.filters]

    def decide(active: ActiveController, _: int) -> Decision[list[access_lists.DeletionResult]]:
        return access_lists.delete_entries(active.view, filters)

    def done(results: Sequence[access_lists.DeletionResult]) -> None:
        found = [
            delete_acls.DeleteAclsFilterResult(*_error_of(problem), [_matching(one) for one in removed])
            for problem, removed in results
        ]
        call.respond(delete_acls.DeleteAclsResponse(filter_results=found))

    return WriteEvent("deleteAcls", decide, done, call.refuse)


def _matching(binding: Binding) -> delete_acls.DeleteAclsMatchingAcl:
    (kind, name, pattern_type), entry = binding
    return delete_acls.DeleteAclsMatchingAcl(
        0, None, kind, name, pattern_type, entry.principal, entry.host, entry.operation, entry.permission
    )


def _error_of(problem: TidegaugeError | None) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if problem is None else (problem.code, problem.message)
