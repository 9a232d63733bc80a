"""Admin requests over gRPC: what the request itself gets wrong is refused before the controller is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from tidegauge.errors import ErrorCode
from tidegauge_broker.server.wire.grpc.admin import AdminServicer
from tidegauge_broker.server.wire.grpc.injected_responses import METHODS
from tidegauge_controller.admin import TopicOutcome


class Service:
    """Does all that it is asked, and notes the names."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def _do(self, topics: Sequence[Any], timeout_ms: int) -> list[TopicOutcome]:
        self.asked += [getattr(topic, "name", topic) for topic in topics]
        return [TopicOutcome(name) for name in self.asked]

    create_topics = create_partitions = delete_topics = _do


@pytest.mark.parametrize(
    ("rpc", "field"), [("CreateTopics", "topics"), ("CreatePartitions", "topics"), ("DeleteTopics", "names")]
)
async def test_a_topic_that_is_named_twice_has_an_error_and_the_others_are_handled(rpc: str, field: str) -> None:
    """KafkaApis.handleCreateTopicsRequest and its siblings: the request contradicts itself about this topic."""
    service = Service()
    names = ["t", "u", "t"]
    items = names if field == "names" else [{"name": name} for name in names]
    request = ParseDict({field: items}, GetMessageClass(METHODS[rpc].input_type)())
    response = await getattr(AdminServicer(service), rpc)(request, None)  # type: ignore[arg-type] # what it asks of it
    assert service.asked == ["u"]
    assert [(one.name, one.status.error) for one in response.topics] == [
        ("u", ErrorCode.NONE),
        ("t", ErrorCode.INVALID_REQUEST),
    ]
    assert response.topics[1].status.message == "Found multiple entries for this topic."
