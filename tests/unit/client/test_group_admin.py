"""Groups as an admin client sees them: over Kafka's protocol, with the Lab service's view if there is one."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from tidegauge.kafka.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidegauge.kafka.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_client import admin_groups
from tidegauge_client.admin import Admin
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.group.consumer_protocol import encode_assignment
from tidegauge_client.metadata import BrokerInfo, ClusterInfo

INFO = ClusterInfo(brokers={0: BrokerInfo(0, "b", 1, None, {"PLAINTEXT": "b:9"})})
AT = TopicPartition("t", 0)
ASSIGNED = encode_assignment([AT])
STABLE = DescribedGroup(
    0, None, "g", "Stable", "consumer", "range", [DescribedGroupMember("m", None, "c", "/h", b"", ASSIGNED)]
)


class Broker:
    """One broker, which coordinates all, over both wires.

    Attributes:
        responses: by API, one after the other; the last one stays.
        view: of the group in the Lab service; None: there is no such service, or it may not be asked.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.admin = Admin("b:1", retry_backoff_ms=0)
        self.responses: dict[int, list[Any]] = {}
        self.view: lab_pb2.ObservedGroup | None = None
        self.asked: list[int] = []

        async def metadata(*_: Any) -> ClusterInfo:
            return INFO

        monkeypatch.setattr(self.admin, "metadata", metadata)
        monkeypatch.setattr(self.admin._cluster.kafka, "ask", self.ask)
        monkeypatch.setattr(self.admin._cluster.channels, "channel", lambda _: None)
        monkeypatch.setattr(admin_groups.lab_service_pb2_grpc, "LabServiceStub", lambda _: self)

    async def ask(self, address: str, key: int, message: Any, timeout_ms: float, **_: Any) -> Any:
        assert (address, timeout_ms > 0) == ("b:9", True)
        if key == apis.FIND_COORDINATOR:
            return FindCoordinatorResponse(coordinators=[Coordinator(message.coordinator_keys[0], 0, "b", 9)])
        self.asked.append(key)
        found = self.responses[key]
        return found.pop(0) if len(found) > 1 else found[0]

    async def ObserveGroups(self, request: Any, timeout: float) -> lab_pb2.ObserveGroupsResponse:  # noqa: ASYNC109, N802
        assert (list(request.group_ids), timeout > 0) == (["g"], True)
        if self.view is None:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNIMPLEMENTED, nothing, nothing)
        return lab_pb2.ObserveGroupsResponse(groups=[self.view])


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    return Broker(monkeypatch)


async def test_a_group_is_described_with_what_the_lab_service_shows(broker: Broker) -> None:
    """Rule 5: generation, reasons and timers are in no response of Kafka's."""
    broker.responses[apis.DESCRIBE_GROUPS] = [DescribeGroupsResponse(groups=[STABLE])]
    member = lab_pb2.GroupMember(
        member_id="m", client_id="c", client_host="/h", assignment=ASSIGNED, parked="JoinGroup"
    )
    broker.view = lab_pb2.ObservedGroup(
        group_id="g",
        description=lab_pb2.GroupDescription(
            state="PreparingRebalance",
            protocol_type="consumer",
            protocol_name="range",
            generation=7,
            reason="why",
            members=[member],
            phase_left_ms=5,
        ),
    )
    found = await broker.admin.describe_group("g")
    assert (found.state, found.generation, found.reason, found.phase_left_ms) == ("PreparingRebalance", 7, "why", 5)
    assert (found.members[0].parked, found.members[0].assignment) == ("JoinGroup", ()), "of a Stable group alone"


async def test_without_the_lab_service_a_group_is_what_kafkas_response_has(broker: Broker) -> None:
    broker.responses[apis.DESCRIBE_GROUPS] = [DescribeGroupsResponse(groups=[STABLE])]
    found = await broker.admin.describe_group("g")
    assert (found.state, found.coordinator, found.generation, found.protocol_name) == ("Stable", 0, -1, "range")
    assert [(one.member_id, one.assignment) for one in found.members] == [("m", (AT,))]


async def test_a_group_out_of_service_has_its_reason(broker: Broker) -> None:
    refused = DescribedGroup(ErrorCode.UNKNOWN_SERVER_ERROR, group_id="g")
    broker.responses[apis.DESCRIBE_GROUPS] = [DescribeGroupsResponse(groups=[refused])]
    broker.view = lab_pb2.ObservedGroup(group_id="g", out_of_service="a record makes no sense")
    with pytest.raises(TidegaugeError, match="the group is out of service: a record makes no sense"):
        await broker.admin.describe_group("g")


async def test_while_the_coordinator_moves_a_request_is_sent_again(broker: Broker) -> None:
    """Rules 2 and 3."""

    def response(code: ErrorCode) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic("t", partitions=[OffsetCommitResponsePartition(0, code)])]
        )

    moved, done = response(ErrorCode.NOT_COORDINATOR), response(ErrorCode.NONE)
    broker.responses[apis.OFFSET_COMMIT] = [moved, moved, done]
    assert await broker.admin.commit_offsets("g", {AT: OffsetAndMetadata(5)}) == {AT: None}
    assert broker.asked == [apis.OFFSET_COMMIT] * 3
    broker.responses[apis.OFFSET_COMMIT] = [moved]
    with pytest.raises(TidegaugeError) as late:
        await broker.admin.commit_offsets("g", {AT: OffsetAndMetadata(5)}, timeout_ms=0)
    assert late.value.code is ErrorCode.NOT_COORDINATOR
    broker.responses[apis.OFFSET_COMMIT] = [response(ErrorCode.UNKNOWN_MEMBER_ID)]
    [(_, problem)] = (await broker.admin.commit_offsets("g", {AT: OffsetAndMetadata(5)})).items()
    assert problem is not None
    assert problem.code is ErrorCode.UNKNOWN_MEMBER_ID
