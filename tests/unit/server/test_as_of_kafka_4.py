"""The responses of brokers in KRaft mode that differ from ZooKeeper mode: as Apache Kafka 4.3.1."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from tidegauge.kafka.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from tidegauge.kafka.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tidegauge.kafka.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidegauge.kafka.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint, ReplicaState
from tidegauge.settings.topic import REMOVED_IN_KAFKA_4
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.handlers import as_of_kafka_4, describe_configs, fetch
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_ASKED_FOR
from tidegauge_broker.server.wire.kafka.responses import Held, Pending, settled

VARIANTS = {one.key: one for one in as_of_kafka_4.KRAFT_VARIANTS}
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


class Quotas:
    """Quotas of nothing; each filter that gets here is noted."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def describe(self, wanted: Any, *, strict: bool) -> list[Any]:
        self.asked.append((wanted, strict))
        return []


async def described(*components: ComponentData) -> tuple[Any, Quotas]:
    quotas = Quotas()
    context: Any = SimpleNamespace(service=SimpleNamespace(configs=SimpleNamespace(quotas=quotas)))
    request = DescribeClientQuotasRequest(list(components), strict=True)
    response: Any = VARIANTS[apis.DESCRIBE_CLIENT_QUOTAS].handle(request, context)
    return (await response if inspect.isawaitable(response) else response), quotas


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (ComponentData("user", EXACT, None), "MATCH_TYPE_EXACT, but set match string to null."),
        (ComponentData("user", DEFAULT, "a"), "MATCH_TYPE_DEFAULT, but also specified a match string."),
        (ComponentData("client-id", SPECIFIED, ""), "MATCH_TYPE_SPECIFIED, but also specified a match string."),
        (ComponentData("ip", 9, None), "Unknown match type 9"),
    ],
)
async def test_a_filter_that_does_not_fit_its_kind_of_match_is_refused(component: ComponentData, message: str) -> None:
    response, quotas = await described(component)
    assert (response.error_code, response.entries, quotas.asked) == (ErrorCode.INVALID_REQUEST, None, [])
    assert response.error_message.endswith(message)


async def test_a_filter_that_fits_reaches_the_quotas() -> None:
    response, quotas = await described(ComponentData("user", EXACT, "a"), ComponentData("client-id", SPECIFIED, None))
    assert (response.error_code, response.entries, len(quotas.asked)) == (0, [], 1)


async def test_a_wrong_type_comes_before_a_wrong_match() -> None:
    """Components are judged one by one, the type first (``ClientQuotasImage.describe``)."""
    response, _ = await described(ComponentData("", DEFAULT, "a"))
    assert (response.error_code, response.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Unexpected empty filter component entity type",
    )
    response, _ = await described(ComponentData("host", DEFAULT, "a"))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


def handled_as(response: Any) -> Callable[[Any, Any], Any]:
    return lambda *_: response


async def test_settings_that_kafka_4_has_removed_are_not_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of topics alone: brokers of Kafka 4 have other settings, which are described as they are."""
    names = ["cleanup.policy", *sorted(REMOVED_IN_KAFKA_4)]
    entries = [DescribeConfigsResourceResult(name, "x", False, True, 5) for name in names]
    results = [
        DescribeConfigsResult(0, "", kind, "a", list(entries))
        for kind in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER)
    ]
    monkeypatch.setattr(describe_configs, "handle", handled_as(DescribeConfigsResponse(results=results)))
    anything: Any = None
    found: Any = await settled(VARIANTS[apis.DESCRIBE_CONFIGS].handle(anything, anything))
    assert [[one.name for one in result.configs] for result in found.results] == [["cleanup.policy"], names]


async def test_groups_have_the_operations_of_settings_where_they_were_asked_for() -> None:
    """READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS as bits (``AclEntry.supportedOperations``)."""
    groups = [ConsumerGroup(group_id="a", authorized_operations=328), ConsumerGroup(group_id="b")]
    groups[1].authorized_operations = NOT_ASKED_FOR
    handler = as_of_kafka_4._with_operations_of(handled_as(ConsumerGroupDescribeResponse(groups=groups)))
    anything: Any = None
    found: Any = await settled(handler(anything, anything))
    assert [one.authorized_operations for one in found.groups] == [3400, NOT_ASKED_FOR]


async def test_settings_of_client_metrics_are_refused_in_kraft_modes_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """In ZooKeeper mode Kafka says that they are supported in KRaft mode, which is no reason there."""
    kinds = (ConfigResourceType.CLIENT_METRICS, ConfigResourceType.BROKER)
    results = [DescribeConfigsResult(ErrorCode.INVALID_REQUEST, "only in KRaft", kind, "m") for kind in kinds]
    monkeypatch.setattr(describe_configs, "handle", handled_as(DescribeConfigsResponse(results=results)))
    context: Any = None
    found = await settled(VARIANTS[apis.DESCRIBE_CONFIGS].handle(None, context))
    assert [one.error_code for one in found.results] == [ErrorCode.INVALID_REQUEST] * 2
    assert ["KIP-714" in one.error_message for one in found.results] == [True, False]


def fetched(kind: str) -> Any:
    """Return a response that names a leader, in one of a handler's forms."""
    message = FetchResponse(node_endpoints=[NodeEndpoint(2, "host", 9092)])
    if kind == "held":
        return Held(message, SimpleNamespace())  # type: ignore[arg-type]
    future = asyncio.get_running_loop().create_future()
    future.set_result(message)
    if kind == "pending":
        return Pending(future, lambda found: found)
    return asyncio.wait_for(future, None) if kind == "coroutine" else message


@pytest.mark.parametrize("kind", ["message", "held", "coroutine", "pending"])
@pytest.mark.parametrize("is_follower", [True, False])
async def test_a_follower_is_not_given_the_addresses_of_leaders(
    monkeypatch: pytest.MonkeyPatch, kind: str, is_follower: bool
) -> None:
    """KafkaApis.handleFetchRequest of 4.3 gives them to consumers alone (KIP-951)."""
    monkeypatch.setattr(fetch, "handle", lambda *_: fetched(kind))
    request = FetchRequest(replica_state=ReplicaState(1 if is_follower else -1, 5))
    context: Any = SimpleNamespace(version=17)
    response = VARIANTS[apis.FETCH].handle(request, context)
    assert isinstance(response, Pending) is (kind == "pending"), "a parked follower costs no task"
    found = await settled(response)
    message = found.message if isinstance(found, Held) else found
    assert [one.node_id for one in message.node_endpoints] == ([] if is_follower else [2])
