"""The states of share partitions at their share coordinator: InitializeShareGroupState (83), ReadShareGroupState (84),
WriteShareGroupState (85), DeleteShareGroupState (86) and ReadShareGroupStateSummary (87) (KIP-932).

They come from group coordinators and from leaders of partitions, and need CLUSTER_ACTION. Each share partition is
handled for itself; a request without a group id, or without topics, has an empty response. A state of very many batches
is taken, and given out, in several turns of the event loop.
Source: ``KafkaApis.handleInitializeShareGroupStateRequest`` and the four after it; ``ShareCoordinatorService``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from tidegauge.share_groups import (
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    ReadShareSummary,
    SharePartitionKey,
    ShareStateRequest,
    ShareStateResult,
    StateBatch,
    WriteShareState,
)
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import converted


class _Kind(NamedTuple):
    """One of the five APIs.

    Attributes:
        key: the API's.
        request: makes the request about a share partition of the part about it, without the batches of a state.
        response: the class of the response.
        topic: the class of a topic in it.
        result: makes the result of a share partition, without the batches of a state.
        is_explained: whether an error of the whole has a message.
    """

    key: int
    request: Callable[[SharePartitionKey, Any], ShareStateRequest]
    response: Callable[[list[Any]], Any]
    topic: Callable[[bytes, list[Any]], Any]
    result: Callable[[int, ShareStateResult], Any]
    is_explained: bool = True


def _initialize(key: SharePartitionKey, part: initialize_share_group_state.PartitionData) -> InitializeShareState:
    return InitializeShareState(key, part.state_epoch, part.start_offset)


def _read(key: SharePartitionKey, part: read_share_group_state.PartitionData) -> ReadShareState:
    return ReadShareState(key, part.leader_epoch)


def _write(key: SharePartitionKey, part: write_share_group_state.PartitionData) -> WriteShareState:
    return WriteShareState(key, part.state_epoch, part.leader_epoch, part.start_offset, part.delivery_complete_count)


def _delete(key: SharePartitionKey, _part: delete_share_group_state.PartitionData) -> DeleteShareState:
    return DeleteShareState(key)


def _summarize(key: SharePartitionKey, part: read_share_group_state_summary.PartitionData) -> ReadShareSummary:
    return ReadShareSummary(key, part.leader_epoch)


def _read_result(partition: int, found: ShareStateResult) -> read_share_group_state.PartitionResult:
    return read_share_group_state.PartitionResult(
        partition, found.error, found.message, found.state_epoch, found.start_offset
    )


def _summary_result(partition: int, found: ShareStateResult) -> read_share_group_state_summary.PartitionResult:
    return read_share_group_state_summary.PartitionResult(
        partition,
        found.error,
        found.message,
        found.state_epoch,
        found.leader_epoch,
        found.start_offset,
        found.complete_count,
    )


def _bare(result: Callable[..., Any]) -> Callable[[int, ShareStateResult], Any]:
    """Return what makes a result that has an error and a message alone."""
    return lambda partition, found: result(partition, found.error, found.message)


_KINDS = (
    _Kind(
        apis.INITIALIZE_SHARE_GROUP_STATE,
        _initialize,
        initialize_share_group_state.InitializeShareGroupStateResponse,
        initialize_share_group_state.InitializeStateResult,
        _bare(initialize_share_group_state.PartitionResult),
        is_explained=False,
    ),
    _Kind(
        apis.READ_SHARE_GROUP_STATE,
        _read,
        read_share_group_state.ReadShareGroupStateResponse,
        read_share_group_state.ReadStateResult,
        _read_result,
    ),
    _Kind(
        apis.WRITE_SHARE_GROUP_STATE,
        _write,
        write_share_group_state.WriteShareGroupStateResponse,
        write_share_group_state.WriteStateResult,
        _bare(write_share_group_state.PartitionResult),
    ),
    _Kind(
        apis.DELETE_SHARE_GROUP_STATE,
        _delete,
        delete_share_group_state.DeleteShareGroupStateResponse,
        delete_share_group_state.DeleteStateResult,
        _bare(delete_share_group_state.PartitionResult),
    ),
    _Kind(
        apis.READ_SHARE_GROUP_STATE_SUMMARY,
        _summarize,
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        read_share_group_state_summary.ReadStateSummaryResult,
        _summary_result,
    ),
)


async def _handle(kind: _Kind, request: Any, context: Context) -> Any:
    """Hand each share partition to the coordinator, and return all results when the last one is there."""
    if not request.group_id:
        return kind.response([])
    ask = context.service.groups.shares.ask
    parts = [
        await _wanted(kind.request(_key(request, topic, one), one), one)
        for topic in request.topics
        for one in topic.partitions
    ]
    found = iter(await asyncio.gather(*map(ask, parts)))
    return kind.response(
        [
            kind.topic(topic.topic_id, [await _result(kind, one.partition, next(found)) for one in topic.partitions])
            for topic in request.topics
        ]
    )


async def _wanted(wanted: ShareStateRequest, part: Any) -> ShareStateRequest:
    """Return a request about a share partition with the batches that it writes."""
    if not isinstance(wanted, WriteShareState) or not part.state_batches:
        return wanted
    batches = await converted(
        lambda one: StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count),
        part.state_batches,
    )
    return replace(wanted, batches=tuple(batches))


async def _result(kind: _Kind, partition: int, found: ShareStateResult) -> Any:
    """Return the result of a share partition with the batches that were read."""
    result = kind.result(partition, found)
    if kind.key == apis.READ_SHARE_GROUP_STATE and found.batches:
        result.state_batches = await converted(lambda one: read_share_group_state.StateBatch(*one), found.batches)
    return result


def _items_of(part: Any) -> int:
    """Return for how many items a share partition of a request counts."""
    return 1 + len(getattr(part, "state_batches", ()))


def _key(request: Any, topic: Any, part: Any) -> SharePartitionKey:
    return SharePartitionKey(request.group_id, bytes(topic.topic_id), part.partition)


def _form(kind: _Kind) -> Form:
    partitions = Part("partitions", "partitions", same("partition"))
    return Form((Part("results", "topics", same("topic_id"), partitions),), is_explained=kind.is_explained)


SERVED_APIS = tuple(
    ServedApi(
        kind.key,
        partial(_handle, kind),
        guard=whole.of_cluster_explained(Operation.CLUSTER_ACTION),
        form=_form(kind),
        only_reads=kind.key == apis.READ_SHARE_GROUP_STATE_SUMMARY,
        divisible=(("topics", "partitions"),),
        division=Division("topics", "results", ("partitions", "partitions"), size_of=_items_of),
        is_counted=True,
    )
    for kind in _KINDS
)
