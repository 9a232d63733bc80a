"""Consequences of the responses of brokers to control requests."""

from __future__ import annotations

from typing import assert_never

from tidegauge.control import LeaderAndIsrRequest, PartitionsResponse, StopReplicaRequest, UpdateMetadataRequest
from tidegauge_controller.zookeeper.decisions.broker_events import process_leader_and_isr_response
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.decisions.reassignment import process_replicas_deleted
from tidegauge_controller.zookeeper.decisions.steps import ControlRequest, Steps


def process_response(
    context: ControllerContext, broker_id: int, request: ControlRequest, response: PartitionsResponse
) -> Steps[None]:
    """Handle a response, unless the request went to a previous incarnation of the broker.

    Such a response may be handled after the broker's failure and start-up, if it was queued while these were being
    handled; its outcomes would undo later changes: a replica that works again would be stopped for good, a
    deletion would not end. Kafka accepts it (``processLeaderAndIsrResponseReceived``).
    """
    broker = context.live.get(broker_id)
    if broker is None or broker.epoch != request.header.broker_epoch:
        return
    match request:
        case StopReplicaRequest():
            deleted = [entry.topic_partition for entry in request.partitions if entry.delete]
            if deleted:
                yield from process_replicas_deleted(context, broker_id, deleted, response)
        case LeaderAndIsrRequest():
            yield from process_leader_and_isr_response(context, broker_id, response)
        case UpdateMetadataRequest():
            pass  # nothing follows from it
        case _:
            assert_never(request)
