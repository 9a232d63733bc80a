"""The consequences of a response depend on its sender: a previous incarnation is not the present one."""

from __future__ import annotations

import pytest
from memory_zookeeper import Term, term_of_topic

from tidegauge.control import LeaderAndIsrRequest, PartitionsResponse, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.znodes import delete_topic_path
from tidegauge_controller.zookeeper.decisions.broker_events import process_broker_change
from tidegauge_controller.zookeeper.decisions.deletion import process_delete_markers
from tidegauge_controller.zookeeper.decisions.responses import process_response

AT = TopicPartition("orders", 0)
FAILED = PartitionsResponse(partitions={AT: ErrorCode.KAFKA_STORAGE_ERROR})


def made_leader() -> tuple[Term, LeaderAndIsrRequest]:
    """A controller, one partition on brokers 1 to 3, and the LeaderAndIsr that made broker 1 its leader."""
    term = term_of_topic(AT.topic)
    [request] = [
        request for broker, request in term.take_sent() if broker == 1 and isinstance(request, LeaderAndIsrRequest)
    ]
    return term, request


def test_the_present_incarnation_takes_its_replica_offline() -> None:
    term, request = made_leader()
    term.run(process_response(term.context, 1, request, FAILED))
    assert term.context.offline_directories[1] == {AT}
    assert term.zookeeper.state(AT).isr == (2, 3)


@pytest.mark.parametrize("returns", [True, False])
def test_a_response_that_a_restart_has_overtaken_stops_no_replica(*, returns: bool) -> None:
    """It was queued while the controller handled that the broker had died, or had come back: its replica is sound."""
    term, request = made_leader()
    if returns:
        term.zookeeper.register_broker(1)
    else:
        term.zookeeper.unregister_broker(1)
    term.run(process_broker_change(term.context))
    term.take_sent()
    term.run(process_response(term.context, 1, request, FAILED))
    assert term.sent == []
    assert term.context.offline_directories.get(1, set()) == set()
    assert term.context.is_online(1, AT) == returns


def test_a_deletion_by_a_previous_incarnation_is_not_that_of_the_present_one() -> None:
    """The restarted broker is asked again; its replica is deleted when it responds to that."""
    term, _ = made_leader()
    term.zookeeper.create(delete_topic_path(AT.topic), b"")
    term.run(process_delete_markers(term.context))
    asked = deletions_of(term)
    assert sorted(asked) == [1, 2, 3]
    term.zookeeper.register_broker(1)
    term.run(process_broker_change(term.context))
    done = PartitionsResponse(partitions={AT: ErrorCode.NONE})
    for broker_id in (1, 2, 3):
        term.run(process_response(term.context, broker_id, asked[broker_id], done))
    again = deletions_of(term)
    assert sorted(again) == [1]
    assert AT.topic in term.context.topics
    term.run(process_response(term.context, 1, asked[1], done))
    assert AT.topic in term.context.topics
    term.run(process_response(term.context, 1, again[1], done))
    assert AT.topic not in term.context.topics


def deletions_of(term: Term) -> dict[int, StopReplicaRequest]:
    """Take the requests by which brokers are to delete their replicas."""
    return {
        broker: request
        for broker, request in term.take_sent()
        if isinstance(request, StopReplicaRequest) and request.partitions[0].delete
    }
