"""Handlers of offsets and of DeleteRecords, in Kafka's protocol: versions, errors, and calls of the service."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka_service import FakeService, ask, versions
from tests.wire_responses.probe import message

from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetFetch, OffsetFetchResult
from tidegauge_broker.replica.messages import DeleteRecordsResult, EpochEnd, EpochEndResult, OffsetResult


def returning(value: Any) -> Any:
    return lambda *_, **__: value


def coming(value: Any) -> Any:
    async def come(*_: Any, **__: Any) -> Any:
        return value

    return come


def offsets_request(timestamp: int, *, twice: bool = False, **more: Any) -> Any:
    item = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": more.pop("count", 1)}
    return message("ListOffsets", topics=[{"name": "t", "partitions": [item] * (2 if twice else 1)}], **more)


FIRST_VERSIONS = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9}


@pytest.mark.parametrize("timestamp", [-1, -2, -3, -4, -5, -6])
async def test_a_special_time_needs_its_version(timestamp: int) -> None:
    service = FakeService(
        list_offset=coming((OffsetResult(offset=5, leader_epoch=2), -1)),
        old_style_offsets=returning((ErrorCode.NONE, [5])),
    )
    for version in versions("ListOffsets"):
        response = await ask(service, "ListOffsets", version, offsets_request(timestamp, replica_id=-1))
        is_known = version >= FIRST_VERSIONS.get(timestamp, 99)
        assert response.topics[0].partitions[0].error_code == (0 if is_known else 35), version


async def test_a_partition_named_twice_is_refused_from_version_1_on() -> None:
    service = FakeService(
        list_offset=coming((OffsetResult(offset=5), -1)), old_style_offsets=returning((ErrorCode.NONE, [5]))
    )
    for version in versions("ListOffsets"):
        response = await ask(service, "ListOffsets", version, offsets_request(-1, twice=True, replica_id=-1))
        codes = [one.error_code for one in response.topics[0].partitions]
        assert codes == ([0, 0] if version == 0 else [42, 42])


async def test_offsets_that_are_not_known_yet_have_the_versions_error() -> None:
    service = FakeService(list_offset=coming((OffsetResult(ErrorCode.OFFSET_NOT_AVAILABLE), -1)))
    for version in range(1, 10):
        response = await ask(service, "ListOffsets", version, offsets_request(-1, replica_id=-1))
        assert response.topics[0].partitions[0].error_code == (78 if version >= 5 else 5)


@pytest.mark.parametrize("replica_id", [-1, -2, 7])
async def test_the_replica_id_decides_what_is_seen(replica_id: int) -> None:
    service = FakeService(
        list_offset=coming((OffsetResult(offset=5), -1)), old_style_offsets=returning((ErrorCode.NONE, [9, 0]))
    )
    await ask(service, "ListOffsets", 9, offsets_request(-1, replica_id=replica_id))
    assert service.calls[0][1][0].replica_id == replica_id
    response = await ask(service, "ListOffsets", 0, offsets_request(-1, replica_id=replica_id, count=4))
    lookup, count = service.calls[1][1]
    assert (lookup.timestamp_ms, lookup.replica_id, count) == (-1, replica_id, 4)
    assert list(response.topics[0].partitions[0].old_style_offsets) == [9, 0]


@pytest.mark.parametrize(("timestamp", "known"), [(-1, (1_000, 5, 2)), (-5, (-1, -1, -1))])
async def test_the_latest_tiered_offset_is_unknown_and_others_are_known(timestamp: int, known: tuple[int, ...]) -> None:
    service = FakeService(list_offset=coming((OffsetResult(offset=5, leader_epoch=2), 1_000)))
    response = await ask(service, "ListOffsets", 9, offsets_request(timestamp, replica_id=-1))
    [found] = response.topics[0].partitions
    assert (found.timestamp, found.offset, found.leader_epoch) == known


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (5, 2), (-1, -1)])
async def test_an_offset_has_its_epoch_the_first_one_too_and_none_has_none(offset: int, epoch: int) -> None:
    service = FakeService(list_offset=coming((OffsetResult(offset=offset, leader_epoch=2), 1_000)))
    response = await ask(service, "ListOffsets", 9, offsets_request(-1, replica_id=-1))
    [found] = response.topics[0].partitions
    assert (found.offset, found.leader_epoch) == (offset, epoch)


async def test_a_negative_number_of_offsets_is_an_unexpected_error() -> None:
    """Once the partition is found: an unknown one has its own error."""
    for error, expected in ((ErrorCode.NONE, -1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 3)):
        service = FakeService(old_style_offsets=returning((error, [])))
        response = await ask(service, "ListOffsets", 0, offsets_request(-1, count=-1))
        assert response.topics[0].partitions[0].error_code == expected


async def test_no_offsets_at_all_may_be_asked_for() -> None:
    """KafkaApis.handleListOffsetRequestV0 takes any number for which an array can be made."""
    service = FakeService(old_style_offsets=returning((ErrorCode.NONE, [])))
    response = await ask(service, "ListOffsets", 0, offsets_request(-1, count=0))
    assert (response.topics[0].partitions[0].error_code, service.calls[0][1][1]) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("version", versions("OffsetForLeaderEpoch"))
async def test_an_epochs_end_is_asked_with_the_known_epoch_only(version: int) -> None:
    """A current epoch of -1 is not checked."""
    asked: list[Any] = []

    def response(question: Any) -> EpochEndResult:
        asked.append(question)
        return EpochEndResult(question.topic_partition, ErrorCode.NONE, EpochEnd(3, 8))

    item = {"partition": 0, "leader_epoch": 3, "current_leader_epoch": 4}
    request = message("OffsetForLeaderEpoch", topics=[{"topic": "t", "partitions": [item]}])
    service = FakeService(offset_for_leader_epoch=response)
    response = await ask(service, "OffsetForLeaderEpoch", version, request)
    [found] = response.topics[0].partitions
    assert (found.error_code, found.end_offset) == (0, 8)
    assert found.leader_epoch == (3 if version >= 1 else -1)
    assert asked[0].current_leader_epoch == (4 if version >= 2 else None)


@pytest.mark.parametrize("version", versions("DeleteRecords"))
async def test_records_are_deleted_partition_by_partition(version: int) -> None:
    async def delete(wanted: Any, timeout_ms: int) -> Any:
        assert timeout_ms == 70
        return [
            DeleteRecordsResult(one.topic_partition, low_watermark=4)
            if one.topic_partition.partition == 0
            else DeleteRecordsResult(one.topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for one in wanted
        ]

    items = [{"partition_index": at, "offset": offset} for at, offset in ((0, 4), (1, 4), (2, -2))]
    request = message("DeleteRecords", timeout_ms=70, topics=[{"name": "t", "partitions": items}])
    response = await ask(FakeService(delete_records=delete, knows=returning(True)), "DeleteRecords", version, request)
    found = sorted((p.partition_index, p.error_code, p.low_watermark) for t in response.topics for p in t.partitions)
    assert found == [(0, 0, 4), (1, 6, -1), (2, 6, -1)], "who does not lead says so, whatever the offset is"


async def test_the_offsets_of_several_groups_are_fetched_side_by_side() -> None:
    """A proof of leadership may take two seconds; the response to a request over many groups takes no longer."""
    waiting: dict[str, asyncio.Future[OffsetFetchResult]] = {}

    async def fetch_offsets(request: OffsetFetch) -> OffsetFetchResult:
        assert request.group_id is not None
        waiting[request.group_id] = asyncio.get_running_loop().create_future()
        return await waiting[request.group_id]

    service = FakeService(groups=FakeService(fetch_offsets=fetch_offsets))
    names = ("a", "b", "c")
    wanted = message("OffsetFetch", groups=[{"group_id": name, "topics": []} for name in names], require_stable=True)
    response = asyncio.ensure_future(ask(service, "OffsetFetch", 8, wanted))
    for _ in range(5):
        await asyncio.sleep(0)
    assert list(waiting) == list(names)
    for name in reversed(names):
        waiting[name].set_result(OffsetFetchResult(ErrorCode.NOT_COORDINATOR if name == "b" else ErrorCode.NONE))
    found = (await response).groups
    assert [(one.group_id, one.error_code) for one in found] == [("a", 0), ("b", 16), ("c", 0)]
