"""Checks of AlterConfigs and IncrementalAlterConfigs by a broker in KRaft mode, before it forwards them.

Only a broker knows which of its settings may change while it runs, and to which values: the controller keeps any value
given for a broker. So a broker refuses wrong values for itself or for all brokers, and contradictions for
any resource; the rest goes to the controller.
Source: ``ConfigAdminManager.preprocess`` and ``copyWithoutPreprocessed``.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages import alter_configs as replaced
from tidegauge.kafka.messages import incremental_alter_configs as changed
from tidegauge.settings.parsing import broker_setting
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.handlers import alter_configs, incremental_alter_configs
from tidegauge_broker.server.wire.kafka.handlers.altered_resources import Problem, null_settings, repeated_setting
from tidegauge_broker.server.wire.kafka.handlers.common import message_of
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

Forward = Callable[[Any, Context], Awaitable[Any]]
Judge = Callable[[Any, Context], Awaitable[Problem]]
"""Returns a broker's verdict on a validate-only alteration of broker settings."""
_KEPT_ELSEWHERE = {ConfigResourceType.TOPIC, ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS}
"""Kinds of resources of which the controller judges all."""


def handler_of(key: int, forward: Forward) -> Handler:
    """Return the handler of one of the two APIs.

    Args:
        key: of the API.
        forward: hands a request on and returns the controller's response.
    """

    async def handle(request: Any, context: Context) -> Any:
        problems = await _problems(key, request.resources, context)
        left = [one for number, one in enumerate(request.resources) if number not in problems]
        judged = {}
        if left or not request.resources:
            response = await forward(dataclasses.replace(request, resources=left), context)
            if not problems:
                return response
            judged = {(one.resource_type, one.resource_name): one for one in response.responses}
        return _RESPONSES[key](responses=list(_in_order(key, request.resources, problems, judged)))

    return handle


async def _problems(key: int, resources: Sequence[Any], context: Context) -> dict[int, Problem]:
    """Return the refusals made here, by the resource's number."""
    named = Counter((one.resource_type, one.resource_name) for one in resources)
    found: dict[int, Problem] = {}
    for number, one in enumerate(resources):
        if named[one.resource_type, one.resource_name] > 1:
            problem: Problem | None = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            problem = await _problem(key, one, context)
        if problem is not None:
            found[number] = problem
        if not (number + 1) % ITEMS_PER_TURN:
            await asyncio.sleep(0)
    return found


async def _problem(key: int, resource: Any, context: Context) -> Problem | None:
    problem = repeated_setting(resource.configs) or null_settings(_null_names(key, resource.configs))
    if problem is not None or resource.resource_type in _KEPT_ELSEWHERE:
        return problem
    if resource.resource_type != ConfigResourceType.BROKER:
        return ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}"
    # Of listeners, too (listener.name.*); Kafka keeps others unseen, as well.
    known = [one for one in resource.configs if broker_setting(one.name) is not None]
    error, message = await _JUDGES[key](dataclasses.replace(resource, configs=known), context)
    return None if error is ErrorCode.NONE else (error, message)


def _null_names(key: int, configs: Iterable[Any]) -> Iterable[str]:
    may_be_null = incremental_alter_configs.Operation.DELETE if key == apis.INCREMENTAL_ALTER_CONFIGS else None
    return (
        one.name
        for one in configs
        if one.value is None and (may_be_null is None or one.config_operation != may_be_null)
    )


def _in_order(
    key: int,
    resources: Sequence[Any],
    problems: Mapping[int, Problem],
    judged: Mapping[tuple[int, str], Any],
) -> Iterable[Any]:
    """Yield the responses in the order of the request."""
    for number, one in enumerate(resources):
        at = (one.resource_type, one.resource_name)
        if number in problems:
            error, message = problems[number]
            yield _RESOURCES[key](error, message_of(error, message), *at)
        else:
            yield judged.get(at) or _RESOURCES[key](ErrorCode.UNKNOWN_SERVER_ERROR, None, *at)


async def _judge_replaced(resource: Any, context: Context) -> Problem:
    return await alter_configs.alter(resource, context, validate_only=True)


async def _judge_changed(resource: Any, context: Context) -> Problem:
    return await incremental_alter_configs.alter(resource, context, validate_only=True)


_JUDGES: Mapping[int, Judge] = {
    apis.ALTER_CONFIGS: _judge_replaced,
    apis.INCREMENTAL_ALTER_CONFIGS: _judge_changed,
}
_RESPONSES: Mapping[int, Callable[..., Any]] = {
    apis.ALTER_CONFIGS: replaced.AlterConfigsResponse,
    apis.INCREMENTAL_ALTER_CONFIGS: changed.IncrementalAlterConfigsResponse,
}
_RESOURCES: Mapping[int, Callable[..., Any]] = {
    apis.ALTER_CONFIGS: replaced.AlterConfigsResourceResponse,
    apis.INCREMENTAL_ALTER_CONFIGS: changed.AlterConfigsResourceResponse,
}
JUDGED_FIRST = tuple(_JUDGES)
"""The two APIs."""
