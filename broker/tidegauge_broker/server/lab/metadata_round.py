"""A stepped round of the metadata log, as the Lab service reports it: the fetched data and its effect. Pure.

The node's own requests say what its log has: a fetch names the end of it, and what the node knows to be committed. So
the fetch after the round describes the replica as the round left it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import fetch_pb2, lab_pb2, metadata_pb2
from tidegauge_broker.server.lab.held_fetches import METADATA, HeldFetches, SteppedFetch

_UNKNOWN = -1
_LARGEST = 2**63 - 1
"""The high watermark of a fetch that knows none (FetchRequest.json)."""


async def metadata_round(
    held: HeldFetches, until: lab_pb2.StepUntil.ValueType, node_at: Callable[[str], int | None]
) -> lab_pb2.StepFetchResponse:
    """Let a node whose fetches are held do one round.

    Args:
        held: the hold of its fetches.
        until: whether the response waits for the next step.
        node_at: returns the node that listens at an address.

    Raises:
        TidegaugeError: INVALID_REQUEST, its fetches are not held.
    """
    try:
        fetched = await held.step(withholds=until == lab_pb2.STEP_UNTIL_REQUEST)
    except TidegaugeError as problem:
        if problem.code is ErrorCode.INVALID_REQUEST:
            raise
        failed = lab_pb2.StepFetchResponse(error_message=problem.message)
        failed.error = int(problem.code)  # type: ignore[assignment]  # the numbers are Kafka's on both sides
        return failed
    return described(fetched, node_at(fetched.address))


def described(fetched: SteppedFetch, asked: int | None) -> lab_pb2.StepFetchResponse:
    """Return a round's message; ``asked`` is the fetch's controller, if known."""
    request, response = fetched.request.topics[0].partitions[0], fetched.response
    found = response.responses[0].partitions[0] if response.responses else None
    message = lab_pb2.StepFetchResponse(
        kind=lab_pb2.STEP_KIND_FETCH,
        leader_id=_leader(found) if asked is None else asked,
        response_withheld=fetched.is_withheld,
        fetch=fetch_pb2.FetchPartition(
            topic=METADATA.topic,
            partition=METADATA.partition,
            current_leader_epoch=request.current_leader_epoch,
            fetch_offset=request.fetch_offset,
            last_fetched_epoch=request.last_fetched_epoch,
        ),
    )
    if fetched.is_withheld:
        return message
    error = ErrorCode.of(response.error_code or (0 if found is None else found.error_code))
    message.error = int(error)  # type: ignore[assignment]  # the numbers are Kafka's on both sides
    message.error_message = "" if error is ErrorCode.NONE else f"the controller refused the fetch with {error.name}"
    if found is not None and error is ErrorCode.NONE:
        message.fetch_result.CopyFrom(_result(found))
        message.records_bytes = _size(found.records)
    if fetched.following is not None:
        message.follower_before.CopyFrom(_replica(fetched.request))
        message.follower_after.CopyFrom(_replica(fetched.following))
    return message


def _leader(found: Any) -> int:
    leader = None if found is None else found.current_leader
    return _UNKNOWN if leader is None else leader.leader_id


def _result(found: Any) -> fetch_pb2.FetchPartitionResult:
    result = fetch_pb2.FetchPartitionResult(
        topic=METADATA.topic,
        partition=METADATA.partition,
        high_watermark=found.high_watermark,
        log_start_offset=found.log_start_offset,
    )
    diverging = found.diverging_epoch
    if diverging is not None and diverging.epoch >= 0 and diverging.end_offset >= 0:
        result.diverging_epoch.leader_epoch = diverging.epoch
        result.diverging_epoch.end_offset = diverging.end_offset
    return result


def _size(records: Any) -> int:
    return sum(map(len, records)) if isinstance(records, list) else len(records or b"")


def _replica(fetch: Any) -> metadata_pb2.ReplicaDescription:
    """Return what a fetch says of its sender's log."""
    partition = fetch.topics[0].partitions[0]
    known = partition.high_watermark
    return metadata_pb2.ReplicaDescription(
        topic=METADATA.topic,
        partition=METADATA.partition,
        role="follower",
        leader_epoch=partition.current_leader_epoch,
        log_end_offset=partition.fetch_offset,
        high_watermark=_UNKNOWN if known == _LARGEST else known,
    )
