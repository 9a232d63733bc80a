"""Whether a group's record, which may be well formed, makes sense: whether a coordinator could have written it.

A client may write to ``__consumer_offsets`` (Kafka allows it to one whose id is ``__admin_client``), and a group that
is loaded from such a record would fail, or never come to rest, at some later request. Kafka's GroupMetadata.loadGroup
takes it as it is; the request that meets the contradiction fails there with UNKNOWN_SERVER_ERROR, or the members of the
group never get a response. Negative timeouts are no contradiction: a JoinGroup may bring a negative rebalance timeout.
"""

from __future__ import annotations

from tidegauge.kafka.coordinator.group_metadata import GroupMetadataValue


def incoherence(value: GroupMetadataValue) -> str | None:
    """Return why a group's record is incoherent, as a clause, or None.

        No coordinator can have written such a record.

    Args:
        value: the record's value.
    """
    ids = [member.member_id for member in value.members]
    instances = [member.group_instance_id for member in value.members if member.group_instance_id is not None]
    if value.generation < 0:
        return f"its generation is negative, {value.generation}"
    if len(set(ids)) < len(ids):
        return f"two members have the id '{_repeated(ids)}'"
    if "" in ids:
        return "a member has an empty id"
    if len(set(instances)) < len(instances):
        return f"two members have the group instance id '{_repeated(instances)}'"
    if value.leader is not None and value.leader not in ids:
        return f"its leader '{value.leader}' is not a member"
    if ids and not value.protocol_type:
        return "it has members and no protocol type"
    if ids and value.protocol is None:
        return "it has members and no protocol"
    return None


def _repeated(names: list[str]) -> str:
    """Return the first name that occurs twice."""
    return next(name for place, name in enumerate(names) if name in names[:place])
