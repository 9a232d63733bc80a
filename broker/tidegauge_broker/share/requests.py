"""Checks of a ShareFetch or ShareAcknowledge by itself, before its session is looked at.

Source: KafkaApis (handleShareFetchRequest, handleShareAcknowledgeRequest, validateAcknowledgementBatches).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.states import AcknowledgeType

MAX_MEMBER_ID_LENGTH = 36
_TYPES = frozenset(int(one) for one in AcknowledgeType)
_TYPES_BEFORE_RENEWAL = _TYPES - {int(AcknowledgeType.RENEW)}


def is_valid_member_id(member_id: str | None) -> bool:
    """Whether a member id is valid: 1 to 36 characters, which the client makes up."""
    return member_id is not None and 0 < len(member_id) <= MAX_MEMBER_ID_LENGTH


def are_valid(batches: Sequence[Acknowledgement], *, renews: bool) -> bool:
    """Whether the acknowledgements of a partition are well formed; else it gets INVALID_REQUEST.

    Args:
        batches: in the order of the request, which must be the order of their offsets.
        renews: whether the request renews locks (isRenewAck): no other one may have the type 4.
    """
    known = _TYPES if renews else _TYPES_BEFORE_RENEWAL
    previous_end = -1
    for batch in batches:
        count = batch.last_offset - batch.first_offset + 1
        if count < 1 or batch.first_offset < previous_end:
            return False
        if not batch.types or len(batch.types) not in {1, count}:
            return False
        if not known.issuperset(batch.types):
            return False
        previous_end = batch.last_offset
    return True


def is_valid_renewal(*, max_bytes: int, min_bytes: int, max_records: int, max_wait_ms: int) -> bool:
    """Whether a ShareFetch that renews locks fetches nothing beside it, as it must (KIP-1222)."""
    return max_bytes == min_bytes == max_records == max_wait_ms == 0
