"""The Lab service's messages, to and from the plain values of ``model``; and what a failed call means."""

from __future__ import annotations

import grpc
import grpc.aio

from tidegauge.channel_options import was_slow_to_connect
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.messages import describe_fault
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2, metadata_pb2
from tidegauge_client.quorum_file import node_name, node_words
from tidegauge_lab.switches.model import (
    BrokerSwitches,
    Change,
    Fault,
    Step,
    Until,
)

UNTIL = {Until.RESPONSE: lab_pb2.STEP_UNTIL_RESPONSE, Until.REQUEST: lab_pb2.STEP_UNTIL_REQUEST}


def to_partition(at: TopicPartition) -> lab_pb2.LabPartition:
    """On the wire."""
    return lab_pb2.LabPartition(topic=at.topic, partition=at.partition)


def from_partition(message: lab_pb2.LabPartition) -> TopicPartition:
    """From the wire."""
    return TopicPartition(message.topic, message.partition)


def from_fault(broker_id: int, message: lab_pb2.LabFault) -> Fault:
    """From the wire."""
    return Fault(broker_id, message.fault_id, describe_fault(message), message.met, message.held, message)


def from_list(message: lab_pb2.ListFaultsResponse) -> BrokerSwitches:
    """From the wire."""
    held = {
        from_partition(item.partition): item.response_withheld_by if item.HasField("response_withheld_by") else None
        for item in message.held
    }
    return BrokerSwitches(message.broker_id, [from_fault(message.broker_id, fault) for fault in message.faults], held)


def from_step(at: TopicPartition, broker_id: int, response: lab_pb2.StepFetchResponse) -> Step:
    """From the wire."""
    leader = response.leader_id if response.HasField("leader_id") else None
    changes = differences(broker_id, response.follower_before, response.follower_after)
    if leader is not None and response.HasField("leader_after"):
        changes += differences(leader, response.leader_before, response.leader_after)
    return Step(
        topic_partition=at,
        broker_id=broker_id,
        error=ErrorCode.of(response.error),
        message=response.error_message,
        leader=leader,
        response_withheld=response.response_withheld,
        text=_describe_step(at, broker_id, response),
        changes=changes,
        response=response,
    )


def differences(
    broker_id: int, before: metadata_pb2.ReplicaDescription, after: metadata_pb2.ReplicaDescription
) -> list[Change]:
    """Return what differs between two descriptions of one replica."""
    old, new = _attributes(before), _attributes(after)
    return [
        Change(broker_id, after.role, name, old.get(name, "-"), new.get(name, "-"))
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def _attributes(replica: metadata_pb2.ReplicaDescription) -> dict[str, str]:
    found = {
        "leader epoch": str(replica.leader_epoch) if replica.HasField("leader_epoch") else "-",
        "LEO": str(replica.log_end_offset),
        "HW": str(replica.high_watermark),
        "log start": str(replica.log_start_offset),
        "epochs": " ".join(f"{entry.leader_epoch}@{entry.start_offset}" for entry in replica.epochs) or "-",
    }
    if replica.role == "leader":
        for remote in replica.remote_replicas:
            known = str(remote.log_end_offset) if remote.HasField("log_end_offset") else "-"
            found[f"remote LEO of {remote.broker_id}"] = known
        found["ISR"] = ",".join(map(str, replica.isr))
    return found


def _describe_step(at: TopicPartition, broker_id: int, response: lab_pb2.StepFetchResponse) -> str:
    error = ErrorCode.of(response.error)
    if not response.HasField("leader_id"):
        return f"{node_name(broker_id)} sent no request for {at}: {error.name}: {response.error_message}"
    leader = node_words(response.leader_id)
    follower = node_name(broker_id)
    if response.kind == lab_pb2.STEP_KIND_EPOCH_END:
        question = response.epoch_question
        asked = f"{follower} asked {leader} where epoch {question.leader_epoch} of {at} ends"
    else:
        fetch = response.fetch
        epoch = f", last epoch {fetch.last_fetched_epoch}" if fetch.HasField("last_fetched_epoch") else ""
        asked = f"{follower} asked {leader} for {at} from offset {fetch.fetch_offset}{epoch}"
    if response.response_withheld:
        return f"{asked}; {leader} has taken the request and withholds the response"
    if error is not ErrorCode.NONE:
        return f"{asked}: {error.name}: {response.error_message}"
    return f"{asked}: {_describe_response(response)}"


def _describe_response(response: lab_pb2.StepFetchResponse) -> str:
    if response.kind == lab_pb2.STEP_KIND_EPOCH_END:
        end = response.epoch_result
        if not end.HasField("end"):
            return "it knows no such epoch"
        return f"epoch {end.end.leader_epoch} ends at {end.end.end_offset}"
    result = response.fetch_result
    if result.HasField("diverging_epoch"):
        epoch = result.diverging_epoch
        return f"the logs part: its epoch {epoch.leader_epoch} ends at {epoch.end_offset}"
    records = f"{response.records_bytes} bytes of record batches" if response.records_bytes else "no records"
    return f"{records}, high watermark {result.high_watermark}"


class BrokerSilentError(TidegaugeError):
    """BROKER_NOT_AVAILABLE: a broker does not respond.

    Attributes:
        broker_id: the broker.
    """

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} does not respond: is it down or paused?")


def was_never_sent(problem: grpc.aio.AioRpcError) -> bool:
    """Return whether a call failed by a timeout of the connection attempt."""
    return problem.code() is grpc.StatusCode.UNAVAILABLE and was_slow_to_connect(problem.details() or "")


def from_problem(broker_id: int, problem: grpc.aio.AioRpcError) -> TidegaugeError:
    """Return the error that a failed call of the Lab service stands for."""
    code, text = problem.code(), problem.details() or ""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return TidegaugeError(
            ErrorCode.UNSUPPORTED_VERSION, f"broker {broker_id} has no Lab service: it runs without lab.enable=true"
        )
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
        return TidegaugeError(ErrorCode.INVALID_REQUEST, text)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, f"broker {broker_id} did not respond in time")
    if code is grpc.StatusCode.UNAVAILABLE:
        return BrokerSilentError(broker_id)
    return TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id}: {code.name}: {text}")
