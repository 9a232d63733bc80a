"""Checks of a heartbeat by itself, before the group is looked up, in Kafka's order.

Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.consumer_groups import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH, ConsumerGroupHeartbeat
from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal
from tidegauge_broker.coordinator.text_limits import is_too_long


def check(request: ConsumerGroupHeartbeat, assignors: Sequence[str]) -> None:
    """Check a heartbeat.

    Args:
        request: the heartbeat.
        assignors: the names of the assignors that the broker offers.

    Raises:
        GroupRefusal: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    needs_id = request.needs_member_id or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH
    _require(bool(request.member_id) or not needs_id, "MemberId can't be empty.")
    _require(bool(request.group_id), "GroupId can't be empty.")
    _require(request.instance_id != "", "InstanceId can't be empty.")
    _require(request.rack_id != "", "RackId can't be empty.")
    if epoch == JOINING_EPOCH:
        _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        _require(request.owned == (), "TopicPartitions must be empty when (re-)joining.")
        _require(
            request.topic_names is not None or request.topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == STATIC_LEAVING_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _require(epoch >= LEAVING_EPOCH, "MemberEpoch is invalid.")
    texts = (
        request.group_id,
        request.member_id,
        request.instance_id,
        request.rack_id,
        request.client_id,
        request.client_host,
        request.topic_regex,
        *(request.topic_names or ()),
    )
    _require(not any(is_too_long(text) for text in texts), "A text is longer than a record can hold, 32767 bytes.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise GroupRefusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise GroupRefusal(ErrorCode.INVALID_REQUEST, otherwise)
