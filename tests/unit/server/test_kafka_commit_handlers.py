"""OffsetCommit as the handler takes it apart for the coordinator, in each version."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_service import FakeService, ask, versions
from tests.wire_responses.probe import message

from tidegauge.errors import ErrorCode
from tidegauge.groups import NO_TIMESTAMP_MS, OffsetCommit, OffsetCommitResult, OffsetToCommit
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition

T_ID, U_ID = bytes(range(16)), bytes(range(16, 32))
IDS = {"t": topic_id_text(T_ID), "u": topic_id_text(U_ID)}
T0, T4, U0 = TopicPartition("t", 0), TopicPartition("t", 4), TopicPartition("u", 0)


class Groups(FakeService):
    """A coordinator that takes each commit except u-0's."""

    async def commit_offsets(self, request: OffsetCommit) -> OffsetCommitResult:
        self.calls.append(("commit_offsets", (request,), {}))
        refused = {U0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return OffsetCommitResult(
            {one.topic_partition: refused.get(one.topic_partition, ErrorCode.NONE) for one in request.offsets}
        )


def a_commit() -> Any:
    def partition(index: int, offset: int) -> dict[str, Any]:
        return {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "committed_metadata": "m",
            "commit_timestamp": 77,
        }

    topics = [
        {"name": "t", "partitions": [partition(0, 5), partition(4, 6)]},
        {"name": "u", "partitions": [partition(0, 7)]},
    ]
    return message("OffsetCommit", group_id="g", generation_id_or_member_epoch=2, member_id="m1", topics=topics)


def errors(response: Any) -> list[tuple[str, int, int]]:
    return [(topic.name, one.partition_index, one.error_code) for topic in response.topics for one in topic.partitions]


@pytest.mark.parametrize("version", [version for version in versions("OffsetCommit") if version])
async def test_a_commit_reaches_the_coordinator_with_what_its_version_has(version: int) -> None:
    """A time of its own is version 1's alone; a leader epoch comes with version 6."""
    groups = Groups()
    response = await ask(FakeService(groups=groups, topic_id=IDS.get), "OffsetCommit", version, a_commit())
    [(_, (request,), _)] = groups.calls
    epoch, time_ms = (3 if version >= 6 else -1), (77 if version == 1 else NO_TIMESTAMP_MS)
    assert (request.group_id, request.generation, request.member_id) == ("g", 2, "m1")
    assert request.offsets == tuple(
        OffsetToCommit(at, offset, epoch, "m", time_ms, topic_id)
        for at, offset, topic_id in ((T0, 5, T_ID), (T4, 6, T_ID), (U0, 7, U_ID))
    )
    assert errors(response) == [("t", 0, 0), ("t", 4, 0), ("u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_a_commit_to_zookeeper_is_of_an_unsupported_version_for_each_partition() -> None:
    groups = Groups()
    response = await ask(FakeService(groups=groups), "OffsetCommit", 0, a_commit())
    assert groups.calls == []
    assert errors(response) == [(*at, ErrorCode.UNSUPPORTED_VERSION) for at in (T0, T4, U0)]


async def test_a_topic_that_is_named_by_its_id_is_committed_with_it() -> None:
    """Version 10: what another topic of the name would be is not looked up (KafkaApis.handleOffsetCommitRequest)."""
    groups = Groups()
    request = a_commit()
    request.topics[0].topic_id, request.topics[1].topic_id = T_ID, U_ID
    names = {topic_id_text(T_ID): "t"}
    service = FakeService(groups=groups, topic_name=names.get)
    response = await ask(service, "OffsetCommit", 10, request, protocol=KRAFT_BROKER_PROTOCOL)
    [(_, (asked,), _)] = groups.calls
    assert [(one.topic_partition, one.topic_id) for one in asked.offsets] == [(T0, T_ID), (T4, T_ID)]
    of_u = [one.error_code for topic in response.topics if topic.topic_id == U_ID for one in topic.partitions]
    assert of_u == [ErrorCode.UNKNOWN_TOPIC_ID]
