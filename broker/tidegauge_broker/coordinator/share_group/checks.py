"""Checks of a share group's heartbeat by itself, before the group is looked up, in Kafka's order.

Source: KafkaApis.handleShareGroupHeartbeat; GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid.
"""

from __future__ import annotations

from tidegauge.consumer_groups import JOINING_EPOCH, LEAVING_EPOCH
from tidegauge.errors import ErrorCode
from tidegauge.share_groups import ShareGroupHeartbeat
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal
from tidegauge_broker.coordinator.text_limits import is_too_long

MAX_MEMBER_ID_LENGTH = 36


def is_member_id(member_id: str) -> bool:
    """Return whether a text may be a member's id (KafkaApis.isMemberIdValid)."""
    return 0 < len(member_id) <= MAX_MEMBER_ID_LENGTH


def check(request: ShareGroupHeartbeat) -> None:
    """Check a heartbeat.

    Raises:
        GroupRefusal: INVALID_REQUEST.
    """
    _require(is_member_id(request.member_id), "Invalid member id in the request.")
    _require(bool(request.group_id), "GroupId can't be empty.")
    _require(request.rack_id != "", "RackId can't be empty.")
    if request.member_epoch == JOINING_EPOCH:
        _require(bool(request.topic_names), "SubscribedTopicNames must be set in first request.")
    else:
        _require(request.member_epoch >= LEAVING_EPOCH, "MemberEpoch is invalid.")
    texts = (
        request.group_id,
        request.rack_id,
        request.client_id,
        request.client_host,
        *(request.topic_names or ()),
    )
    _require(not any(is_too_long(text) for text in texts), "A text is longer than a record can hold, 32767 bytes.")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise GroupRefusal(ErrorCode.INVALID_REQUEST, otherwise)
