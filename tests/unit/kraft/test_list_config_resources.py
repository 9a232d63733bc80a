"""ListConfigResources: the resources that may have settings, by kind (KIP-1142)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft.messages.list_config_resources import ListConfigResourcesRequest
from tidegauge_broker.server.configs.resource_types import ConfigResourceType as Kind
from tidegauge_broker.server.service.cluster_view import TopicView
from tidegauge_broker.server.wire.kafka.handlers.list_config_resources import handle

ALL = {
    (Kind.TOPIC, "a"),
    (Kind.TOPIC, "b"),
    (Kind.BROKER, "7"),
    (Kind.BROKER_LOGGER, "7"),
    (Kind.GROUP, "readers"),
}


async def listed(version: int, *kinds: int) -> tuple[int, set[tuple[int, str]]]:
    """Return the error and the resources of a small cluster.

    It has one broker, two topics and a group with settings.
    """

    def metadata(_caller: object, topics: Any, *, may_create: bool) -> Any:
        assert not may_create
        names = ["a", "b"] if topics is None else topics
        return SimpleNamespace(topics=[TopicView(name) for name in names], brokers=[SimpleNamespace(broker_id=7)])

    configs = SimpleNamespace(groups=SimpleNamespace(ids=["readers"]))
    service = SimpleNamespace(metadata=metadata, configs=configs)
    context: Any = SimpleNamespace(service=service, caller=None, version=version)
    response = await handle(ListConfigResourcesRequest(kinds), context)
    found = {(one.resource_type, one.resource_name) for one in response.config_resources}
    assert len(found) == len(response.config_resources)
    return response.error_code, found


async def test_no_kind_means_all_kinds() -> None:
    assert await listed(1) == (ErrorCode.NONE, ALL)


@pytest.mark.parametrize("kind", [Kind.TOPIC, Kind.BROKER, Kind.BROKER_LOGGER, Kind.CLIENT_METRICS, Kind.GROUP])
async def test_a_kind_has_its_own_resources_alone(kind: Kind) -> None:
    assert await listed(1, kind) == (ErrorCode.NONE, {one for one in ALL if one[0] == kind})


async def test_an_unknown_kind_is_refused_as_a_whole() -> None:
    assert await listed(1, Kind.TOPIC, 99) == (ErrorCode.UNSUPPORTED_VERSION, set())


async def test_version_0_lists_client_metrics_alone() -> None:
    """It was ListClientMetricsResources (KIP-714); there are none here."""
    assert await listed(0) == (ErrorCode.NONE, set())
