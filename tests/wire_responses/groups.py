"""Facts about consumer groups: coordinators, membership, committed offsets."""

from __future__ import annotations

from typing import Any

from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import TOPIC

GROUP = "probe-group"
APIS = ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch")
ADMIN_APIS = ("DescribeGroups", "ListGroups", "DeleteGroups", "OffsetDelete")
COORDINATOR_NOT_AVAILABLE = 15
METADATA = b"\0\1" + bytes(8)
GROUP_KEY, TRANSACTION_KEY = 0, 1


def coordinator(probe: Probe, name: str, kind: int = GROUP_KEY) -> int:
    """Return the coordinator of a group or transactional id, once there is one."""
    request = message("FindCoordinator", key_type=kind, coordinator_keys=[name])
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = probe.ask(0, 4, request).coordinators
        return bool(found[0].error_code != COORDINATOR_NOT_AVAILABLE)

    probe.wait_for(is_there)
    return int(found[0].node_id)


def join(group: str = GROUP, member: str = "", **more: Any) -> Any:
    """Return a JoinGroup request."""
    settings: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 5_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA}],
    }
    return message("JoinGroup", group_id=group, member_id=member, **settings | more)


def commit(group: str, generation: int, member: str, **more: Any) -> Any:
    """Return an OffsetCommit request for one partition."""
    name = more.pop("topic", TOPIC)
    item = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""} | more
    topics = [{"name": name, "partitions": [item]}]
    return message(
        "OffsetCommit", group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
    )


def committed(group: str, partitions: dict[str, list[int]] | None, **more: Any) -> Any:
    """Return an OffsetFetch request of version 8 or later."""
    topics = None
    if partitions is not None:
        topics = [{"name": name, "partition_indexes": at} for name, at in partitions.items()]
    return message("OffsetFetch", groups=[{"group_id": group, "topics": topics}], **more)


def groups(probe: Probe) -> None:
    """All of it, where the cluster serves groups."""
    if not probe.serves(*APIS):
        return
    probe.say("groups")
    mine = coordinator(probe, GROUP)
    stranger = next(broker for broker in probe.brokers if broker != mine)
    _coordinators(probe)
    _refused_joins(probe, mine, stranger)
    member = _membership(probe, mine)
    _offsets(probe, mine, stranger, member)
    if probe.serves(*ADMIN_APIS):
        _administration(probe, mine, stranger)
    _leaves(probe, mine, member)


def _coordinators(probe: Probe) -> None:
    def ask(kind: int, *keys: str) -> Any:
        return message("FindCoordinator", key_type=kind, coordinator_keys=list(keys))

    probe.case("FindCoordinator of two groups", 0, 4, ask(GROUP_KEY, GROUP, f"{GROUP}2"), lambda found: [
        (one.key, one.error_code, one.error_message) for one in found.coordinators
    ])  # fmt: skip
    probe.case("FindCoordinator of none", 0, 4, ask(GROUP_KEY))
    for version in range(4):
        request = message("FindCoordinator", key=GROUP, key_type=GROUP_KEY)
        probe.case(f"FindCoordinator v{version}", 0, version, request)
    probe.case("FindCoordinator of an unknown kind", 0, 4, ask(9, "a"))
    probe.case("FindCoordinator of a share group", 0, 6, ask(2, "a"))
    probe.case("FindCoordinator of the empty group", 0, 4, ask(GROUP_KEY, ""))


def _refused_joins(probe: Probe, mine: int, stranger: int) -> None:
    probe.case("JoinGroup at another broker", stranger, 5, join())
    cases = {
        "empty group": join(""),
        "session timeout too short": join(session_timeout_ms=1),
        "session timeout too long": join(session_timeout_ms=2_000_000_000),
        "unknown member of no group": join(member="zzz"),
        "no protocols": join(protocols=[]),
        "empty protocol type": join(protocol_type=""),
    }
    for name, request in cases.items():
        for version in (5, 9):
            probe.case(f"JoinGroup v{version} {name}", mine, version, request)


def _membership(probe: Probe, mine: int) -> str:
    member = str(probe.case("JoinGroup first", mine, 5, join()).member_id)
    probe.case("JoinGroup with the id", mine, 5, join(member=member))
    sync = {"group_id": GROUP, "member_id": member, "protocol_type": "consumer", "protocol_name": "range"}
    assignments = [{"member_id": member, "assignment": b"abc"}]

    def synced(generation: int = 1, **more: Any) -> Any:
        return message("SyncGroup", generation_id=generation, assignments=assignments, **sync | more)

    def beat(generation: int = 1, of: str = member, group: str = GROUP) -> Any:
        return message("Heartbeat", group_id=group, generation_id=generation, member_id=of)

    probe.case("Heartbeat before the assignment", mine, 4, beat())
    probe.case("SyncGroup wrong generation", mine, 5, synced(99))
    probe.case("SyncGroup wrong protocol", mine, 5, synced(protocol_name="x"))
    probe.case("SyncGroup wrong protocol type", mine, 5, synced(protocol_type="x"))
    probe.case("SyncGroup unknown member", mine, 5, synced(member_id="x"))
    probe.case("SyncGroup", mine, 5, synced())
    probe.case("SyncGroup again", mine, 5, synced())
    probe.case("Heartbeat", mine, 4, beat())
    probe.case("Heartbeat wrong generation", mine, 4, beat(9))
    probe.case("Heartbeat unknown member", mine, 4, beat(of="x"))
    probe.case("Heartbeat unknown group", mine, 4, beat(group="nope"), lambda found: found.error_code in {16, 25})
    return member


def _offsets(probe: Probe, mine: int, stranger: int, member: str) -> None:
    probe.case("OffsetCommit", mine, 8, commit(GROUP, 1, member))
    cases = {
        "wrong generation": commit(GROUP, 99, member),
        "without a member": commit(GROUP, -1, ""),
        "unknown member": commit(GROUP, 1, "x"),
        "unknown topic": commit(GROUP, 1, member, topic="nope"),
        "unknown partition": commit(GROUP, 1, member, partition_index=99),
        "metadata of 5000": commit(GROUP, 1, member, committed_metadata="m" * 5_000),
        "metadata of 4096": commit(GROUP, 1, member, committed_metadata="m" * 4_096),
        "null metadata": commit(GROUP, 1, member, committed_metadata=None),
        "again": commit(GROUP, 1, member),
    }
    for name, request in cases.items():
        probe.case(f"OffsetCommit {name}", mine, 8, request)
    probe.case("OffsetCommit at another broker", stranger, 8, commit(GROUP, 1, member))
    new = f"{GROUP}-new"
    at = coordinator(probe, new)
    for version in (8, 9):
        probe.case(f"OffsetCommit v{version} generation of no group", at, version, commit(new, 3, "x"))
    probe.case("OffsetCommit without generation to no group", at, 8, commit(new, -1, ""))
    probe.case("OffsetFetch", mine, 8, committed(GROUP, {TOPIC: [0, 1, 77]}))
    probe.case("OffsetFetch all", mine, 8, committed(GROUP, None))
    probe.case("OffsetFetch unknown topic", mine, 8, committed(GROUP, {"nope": [0]}))
    probe.case("OffsetFetch at another broker", stranger, 8, committed(GROUP, {TOPIC: [0]}))
    topics = [{"name": TOPIC, "partition_indexes": [0, 1]}]
    for version in range(1, 8):
        request = message("OffsetFetch", group_id=GROUP, topics=topics)
        probe.case(f"OffsetFetch v{version}", mine, version, request)


def _administration(probe: Probe, mine: int, stranger: int) -> None:
    def describe(name: str) -> Any:
        return message("DescribeGroups", groups=[name])

    def described(found: Any) -> Any:
        return [
            (one.error_code, one.group_state, one.protocol_type, one.protocol_data, len(one.members))
            for one in found.groups
        ]

    probe.case("DescribeGroups", mine, 5, describe(GROUP), described)
    unknown = "probe-unknown"
    probe.case("DescribeGroups unknown", coordinator(probe, unknown), 5, describe(unknown), described)
    probe.case("DescribeGroups at another broker", stranger, 5, describe(GROUP), described)
    probe.case("DeleteGroups with members", mine, 2, message("DeleteGroups", groups_names=[GROUP]))
    items = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    probe.case("OffsetDelete", mine, 0, message("OffsetDelete", group_id=GROUP, topics=items))

    def listed(found: Any) -> Any:
        return [(one.group_state, one.group_type, one.protocol_type) for one in found.groups if one.group_id == GROUP]

    filters: dict[str, dict[str, list[str]]] = {
        "all": {},
        "type consumer": {"types_filter": ["consumer"]},
        "type classic": {"types_filter": ["classic"]},
        "state stable": {"states_filter": ["stable"]},
        "unknown state": {"states_filter": ["nope"]},
    }
    for name, wanted in filters.items():
        probe.case(f"ListGroups {name}", mine, 5, message("ListGroups", **wanted), listed)


def _leaves(probe: Probe, mine: int, member: str) -> None:
    both = message("LeaveGroup", group_id=GROUP, members=[{"member_id": "zz"}, {"member_id": member}])
    probe.case("LeaveGroup unknown and own", mine, 5, both)
    beat = message("Heartbeat", group_id=GROUP, generation_id=1, member_id=member)
    probe.case("Heartbeat after leaving", mine, 4, beat)
    probe.case("LeaveGroup v1 again", mine, 1, message("LeaveGroup", group_id=GROUP, member_id=member))
    joined = probe.case("JoinGroup v3 without an id", mine, 3, join())
    probe.ask(mine, 1, message("LeaveGroup", group_id=GROUP, member_id=joined.member_id))
    if probe.serves(*ADMIN_APIS):
        for name in ("DeleteGroups", "DeleteGroups again"):
            probe.case(name, mine, 2, message("DeleteGroups", groups_names=[GROUP]))
