"""Requests of the persister as messages of Kafka's protocol, and the results in the responses: the APIs 83 to 87.

A message is about one group, and has a part for each share partition; so has its response.
Source: ``PersisterStateManager.RequestCoalescerHelper``, ``DefaultStatePersister``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from tidegauge.share_groups import (
    NO_COUNT,
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    ReadShareSummary,
    ShareStateRequest,
    ShareStateResult,
    StateBatch,
    WriteShareState,
)


class Form(NamedTuple):
    """The encoding of one kind of request on the wire.

    Attributes:
        key: of its API.
        name: what Kafka calls it in its sentences.
        message: the request's class.
        topic: the class of a topic in it.
        partition: makes the part of a share partition.
    """

    key: int
    name: str
    message: Callable[[str, list[Any]], Any]
    topic: Callable[[bytes, list[Any]], Any]
    partition: Callable[[Any], Any]


def _initialization(one: InitializeShareState) -> initialize_share_group_state.PartitionData:
    return initialize_share_group_state.PartitionData(one.key.partition, one.state_epoch, one.start_offset)


def _reading(one: ReadShareState) -> read_share_group_state.PartitionData:
    return read_share_group_state.PartitionData(one.key.partition, one.leader_epoch)


def _writing(one: WriteShareState) -> write_share_group_state.PartitionData:
    return write_share_group_state.PartitionData(
        one.key.partition,
        one.state_epoch,
        one.leader_epoch,
        one.start_offset,
        one.complete_count,
        [write_share_group_state.StateBatch(*batch) for batch in one.batches],
    )


def _deletion(one: DeleteShareState) -> delete_share_group_state.PartitionData:
    return delete_share_group_state.PartitionData(one.key.partition)


def _summary(one: ReadShareSummary) -> read_share_group_state_summary.PartitionData:
    return read_share_group_state_summary.PartitionData(one.key.partition, one.leader_epoch)


FORMS: Mapping[type, Form] = {
    InitializeShareState: Form(
        apis.INITIALIZE_SHARE_GROUP_STATE,
        "initialize state RPC",
        initialize_share_group_state.InitializeShareGroupStateRequest,
        initialize_share_group_state.InitializeStateData,
        _initialization,
    ),
    ReadShareState: Form(
        apis.READ_SHARE_GROUP_STATE,
        "read state RPC",
        read_share_group_state.ReadShareGroupStateRequest,
        read_share_group_state.ReadStateData,
        _reading,
    ),
    WriteShareState: Form(
        apis.WRITE_SHARE_GROUP_STATE,
        "write state RPC",
        write_share_group_state.WriteShareGroupStateRequest,
        write_share_group_state.WriteStateData,
        _writing,
    ),
    DeleteShareState: Form(
        apis.DELETE_SHARE_GROUP_STATE,
        "delete state RPC",
        delete_share_group_state.DeleteShareGroupStateRequest,
        delete_share_group_state.DeleteStateData,
        _deletion,
    ),
    ReadShareSummary: Form(
        apis.READ_SHARE_GROUP_STATE_SUMMARY,
        "read state summary RPC",
        read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
        read_share_group_state_summary.ReadStateSummaryData,
        _summary,
    ),
}
"""The forms, by the class of the request."""


def request_message(form: Form, group_id: str, requests: Iterable[ShareStateRequest]) -> Any:
    """Return the message of one group's requests of one kind."""
    topics: dict[bytes, list[Any]] = {}
    for one in requests:
        topics.setdefault(one.key.topic_id, []).append(form.partition(one))
    return form.message(group_id, [form.topic(topic_id, parts) for topic_id, parts in topics.items()])


def results_in(response: Any) -> dict[tuple[bytes, int], ShareStateResult]:
    """Return the results in a response, by topic id and partition."""
    return {
        (bytes(topic.topic_id), one.partition): _result(one) for topic in response.results for one in topic.partitions
    }


def _result(one: Any) -> ShareStateResult:
    """Return a partition's result; absent fields have their defaults."""
    return ShareStateResult(
        ErrorCode.of(one.error_code),
        one.error_message,
        getattr(one, "state_epoch", 0),
        getattr(one, "leader_epoch", 0),
        getattr(one, "start_offset", 0),
        getattr(one, "delivery_complete_count", NO_COUNT),
        tuple(
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in getattr(one, "state_batches", ())
        ),
    )
