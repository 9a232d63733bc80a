"""Requests between controller and brokers that were refused leave an event, a log line and the reason (refusals.py)."""

from __future__ import annotations

from typing import Any

import pytest
from lone_broker import ME, OTHER, A, B, LoneBroker, broker_of, role

from tidegauge.control import (
    ControlHeader,
    IsrVerdict,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.refusals import MOST_KEPT, Refusal, Refusals


def leader_and_isr(
    broker: LoneBroker, topic_id: str, epoch: int, *, controller_epoch: int = 1, broker_epoch: int = 1
) -> PartitionsResponse:
    """A LeaderAndIsr for partition A that makes this broker the leader."""
    state = PartitionState(A, topic_id, 1, ME, epoch, (ME, OTHER), epoch, (ME, OTHER))
    header = ControlHeader(0, controller_epoch, broker_epoch)
    request = LeaderAndIsrRequest(header, [LeaderAndIsrPartition(state, is_new=False)], ())
    response, effects = broker.control_requests.leader_and_isr(request, {}, broker.now_ms)
    broker.execute(effects)
    return response


def refusals_of(broker: LoneBroker) -> list[dict[str, Any]]:
    return [dict(note.fields) for note in broker.notes if note.kind == "refusal"]


def kept(broker: LoneBroker) -> list[tuple[str, str]]:
    return [(one.request, one.error.name) for one, _ in broker.core.hosted.refusals.of(None)]


def test_a_leader_and_isr_with_another_topic_id_leaves_an_event_a_line_and_both_ids() -> None:
    """ReplicaManager.becomeLeaderOrFollower logs an error with both ids and responds INCONSISTENT_TOPIC_ID."""
    broker = broker_of(A)
    role(broker, ME, 0)
    assert leader_and_isr(broker, "another", 1).partitions == {A: ErrorCode.INCONSISTENT_TOPIC_ID}
    assert refusals_of(broker) == [
        {
            "request": "LeaderAndIsr",
            "error": "INCONSISTENT_TOPIC_ID",
            "leader_epoch": 1,
            "topic_id": "another",
            "own_topic_id": "id",
        }
    ]
    assert broker.lines[-1] == (
        "[Broker id=1] Topic ID in memory: id does not match the topic ID for partition t-0 received: another."
    )
    ((refusal, at_ms),) = broker.core.hosted.refusals.of({"t"})
    assert (refusal.topic_id, refusal.own_topic_id, at_ms) == ("another", "id", broker.now_ms)


def test_a_refusal_that_repeats_is_one_event_and_its_time_is_that_of_the_last() -> None:
    broker = broker_of(A)
    role(broker, ME, 0)
    leader_and_isr(broker, "another", 1)
    lines = len(broker.lines)
    broker.now_ms += 5
    leader_and_isr(broker, "another", 1)
    assert (len(refusals_of(broker)), len(broker.lines)) == (1, lines)
    assert [at_ms for _, at_ms in broker.core.hosted.refusals.of(None)] == [broker.now_ms]
    leader_and_isr(broker, "another", 2)
    assert len(refusals_of(broker)) == 2, "another epoch is another refusal"


def test_an_older_leader_epoch_is_a_refusal_and_the_same_one_a_repetition() -> None:
    """Each new controller sends the states that are in force again."""
    broker = broker_of(A)
    role(broker, ME, 3)
    assert leader_and_isr(broker, "id", 3).partitions == {A: ErrorCode.STALE_CONTROLLER_EPOCH}
    assert refusals_of(broker) == []
    assert leader_and_isr(broker, "id", 2).partitions == {A: ErrorCode.STALE_CONTROLLER_EPOCH}
    assert refusals_of(broker) == [{"request": "LeaderAndIsr", "error": "STALE_CONTROLLER_EPOCH", "leader_epoch": 2}]


def test_the_reason_is_kept_until_a_request_succeeds_or_the_replica_is_deleted() -> None:
    broker = broker_of(A, B)
    role(broker, ME, 0)
    leader_and_isr(broker, "another", 1)
    role(broker, ME, 2, of=[B])
    assert kept(broker) == [("LeaderAndIsr", "INCONSISTENT_TOPIC_ID")], "another partition's success says nothing"
    role(broker, ME, 2, of=[A])
    assert kept(broker) == []
    leader_and_isr(broker, "another", 3)
    stop = StopReplicaRequest(ControlHeader(0, 1, 1), [StopReplicaPartition(A, 9, delete=True)])
    broker.execute(broker.control_requests.stop_replica(stop)[1])
    assert kept(broker) == []


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({"controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"broker_epoch": 0}, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_a_request_that_is_fenced_as_a_whole_is_an_event_of_no_partition(
    header: dict[str, int], error: ErrorCode
) -> None:
    broker = broker_of(A)
    role(broker, ME, 0)
    assert leader_and_isr(broker, "id", 1, **header).error is error
    assert refusals_of(broker) == [{"request": "LeaderAndIsr", "error": error.name}]
    assert broker.notes[-1].topic_partition is None
    assert error.name in broker.lines[-1]
    assert broker.control_requests.fence("UpdateMetadata", ControlHeader(0, 1, 1)) == (ErrorCode.NONE, [])
    assert (
        broker.control_requests.fence("UpdateMetadata", ControlHeader(0, 0, 1))[0] is ErrorCode.STALE_CONTROLLER_EPOCH
    )


def test_a_stop_replica_that_is_refused_is_an_event() -> None:
    broker = broker_of(A)
    role(broker, ME, 5)
    stop = StopReplicaRequest(ControlHeader(0, 1, 1), [StopReplicaPartition(A, 4, delete=False)])
    response, effects = broker.control_requests.stop_replica(stop)
    broker.execute(effects)
    assert response.partitions == {A: ErrorCode.FENCED_LEADER_EPOCH}
    assert refusals_of(broker) == [{"request": "StopReplica", "error": "FENCED_LEADER_EPOCH"}]


def proposes(broker: LoneBroker) -> None:
    """Let the follower lag until the leader proposes to remove it from the ISR."""
    broker.now_ms += 100_000
    broker.execute(broker.core.tick(broker.now_ms))


def test_a_refused_alter_partition_is_an_event_and_a_reason_until_the_controller_accepts() -> None:
    """UNKNOWN_TOPIC_ID ends the proposal without a change (Partition.handleAlterPartitionError)."""
    broker = broker_of(A)
    role(broker, ME, 0)
    proposes(broker)
    (proposal,) = broker.proposals
    verdict = IsrVerdict(A, ErrorCode.UNKNOWN_TOPIC_ID)
    broker.execute(broker.core.isr_verdict(proposal, verdict, broker.now_ms))
    assert refusals_of(broker) == [{"request": "AlterPartition", "error": "UNKNOWN_TOPIC_ID", "leader_epoch": 0}]
    assert kept(broker) == [("AlterPartition", "UNKNOWN_TOPIC_ID")]
    role(broker, ME, 1)
    assert kept(broker) == [], "a LeaderAndIsr is news to the proposal, too"
    broker.execute(broker.core.isr_verdict(proposal, verdict, broker.now_ms))
    assert kept(broker) == [], "the verdict is stale"


def test_only_the_newest_refusals_are_kept() -> None:
    refusals, out = Refusals(), list[Any]()
    for number in range(MOST_KEPT + 5):
        at = A._replace(partition=number)
        refusals.refused(Refusal(at, "LeaderAndIsr", ErrorCode.INVALID_REQUEST, 0), 1, "warning", "x", out)
    kept_now = refusals.of(None)
    assert len(kept_now) == MOST_KEPT
    assert kept_now[0][0].topic_partition.partition == 5
