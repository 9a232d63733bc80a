"""The limit of texts in Kafka's protocol and in the coordinators' records: a STRING has its length as an int16. Pure.

Over Kafka's protocol a longer one can't be read (its connection is closed); over gRPC it arrives, and is refused before
anything changes, since no record could hold it.
"""

from __future__ import annotations

from tidegauge.groups import JoinGroup
from tidegauge.kafka.fields import MAX_STRING_BYTES

_ALWAYS_SHORT = MAX_STRING_BYTES // 4
"""Characters that are at most ``MAX_STRING_BYTES`` bytes of UTF-8, whichever they are."""
_UUID_BYTES = len("-") + 36


def is_too_long(text: str | None, room_bytes: int = 0) -> bool:
    """Whether a text, with room for some more bytes, is longer than a STRING."""
    if text is None or len(text) + room_bytes <= _ALWAYS_SHORT:
        return False
    return len(text.encode()) + room_bytes > MAX_STRING_BYTES


def joins_with_long_text(request: JoinGroup) -> bool:
    """Whether the member's fields in a JoinGroup do not fit into a record of the group.

    A member without id gets one that begins with its instance id or client id, and ends with a UUID.
    """
    makes_id = 0 if request.member_id else _UUID_BYTES
    texts = (request.member_id, request.protocol_type, request.client_host, *(one.name for one in request.protocols))
    return (
        is_too_long(request.group_instance_id, _UUID_BYTES)
        or is_too_long(request.client_id, makes_id)
        or any(is_too_long(text) for text in texts)
    )
