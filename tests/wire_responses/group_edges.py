"""Facts about requests of groups and transactions that name nothing, or a thing twice, or another's."""

from __future__ import annotations

from typing import Any

from tests.wire_responses.edges import NAME
from tests.wire_responses.groups import METADATA, commit, committed, coordinator, join
from tests.wire_responses.probe import Probe, message
from tests.wire_responses.transactions import ID, NOT_YET, TRANSACTION_KEY

GROUP = "probe-group-edges"
STATIC = "probe-group-static"
NEW = "probe-new"


def groups(probe: Probe) -> None:
    """All of them."""
    probe.say("edges of groups and transactions")
    _of_groups(probe)
    _of_offsets(probe)
    _of_static_members(probe)
    _of_transactions(probe)
    _of_brokers(probe)


def _of_groups(probe: Probe) -> None:
    at = coordinator(probe, GROUP)
    cases: dict[str, tuple[int, Any]] = {
        "FindCoordinator of the empty transactional id": (
            4,
            message("FindCoordinator", key_type=1, coordinator_keys=[""]),
        ),
        "DescribeGroups of none": (5, message("DescribeGroups", groups=[])),
        "DescribeGroups of the empty group": (5, message("DescribeGroups", groups=[""])),
        "DescribeGroups a group twice": (5, message("DescribeGroups", groups=[GROUP, GROUP])),
        "DescribeGroups with operations": (
            5,
            message("DescribeGroups", groups=[GROUP], include_authorized_operations=True),
        ),
        "DeleteGroups of none": (2, message("DeleteGroups", groups_names=[])),
        "DeleteGroups of the empty group": (2, message("DeleteGroups", groups_names=[""])),
        "DeleteGroups a group twice": (2, message("DeleteGroups", groups_names=[GROUP, GROUP])),
        "LeaveGroup of none": (5, message("LeaveGroup", group_id=GROUP, members=[])),
        "LeaveGroup of the empty group": (5, message("LeaveGroup", group_id="", members=[{"member_id": "x"}])),
        "LeaveGroup v1 of no member": (1, message("LeaveGroup", group_id=GROUP, member_id="")),
        "Heartbeat of the empty group": (4, message("Heartbeat", group_id="", generation_id=1, member_id="x")),
        "Heartbeat of an unknown instance": (
            4,
            message("Heartbeat", group_id=GROUP, generation_id=1, member_id="x", group_instance_id="y"),
        ),
        "SyncGroup of the empty group": (
            5,
            message("SyncGroup", group_id="", generation_id=1, member_id="x", protocol_type="c", protocol_name="r"),
        ),
        "SyncGroup without a protocol": (5, message("SyncGroup", group_id=GROUP, generation_id=1, member_id="x")),
        "JoinGroup a protocol twice": (5, join(GROUP, protocols=[{"name": "range", "metadata": METADATA}] * 2)),
        "JoinGroup an empty protocol": (5, join(GROUP, protocols=[{"name": "", "metadata": b""}])),
        "JoinGroup rebalance timeout -1": (5, join(GROUP, rebalance_timeout_ms=-1)),
        "JoinGroup session timeout -1": (5, join(GROUP, session_timeout_ms=-1)),
        "JoinGroup with a long reason": (9, join(GROUP, reason="r" * 300)),
        "ListGroups an unknown type": (5, message("ListGroups", types_filter=["nope"])),
        "ListGroups an empty state": (5, message("ListGroups", states_filter=[""])),
    }
    for name, (version, request) in cases.items():
        probe.case(name, at, version, request)


def _of_offsets(probe: Probe) -> None:
    at = coordinator(probe, GROUP)

    def put(*items: dict[str, Any], name: str = NAME, group: str = GROUP) -> Any:
        topics = [{"name": name, "partitions": list(items)}]
        return message("OffsetCommit", group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)

    item = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    later = item | {"committed_offset": 6}
    cases = {
        "of nothing": message("OffsetCommit", group_id=GROUP, generation_id_or_member_epoch=-1, topics=[]),
        "of a topic's nothing": put(),
        "a partition twice": put(item, later),
        "a negative offset": put(item | {"committed_offset": -1}),
        "a negative partition": put(item | {"partition_index": -1}),
        "an epoch below all": put(item | {"committed_leader_epoch": -2}),
        "known and unknown partitions": put(item, item | {"partition_index": 99}),
        "the empty group": put(item, group=""),
        "an empty topic": put(item, name=""),
    }
    for label, request in cases.items():
        probe.case(f"OffsetCommit edge: {label}", at, 8, request, _in_order)
    probe.case("OffsetCommit v2 with retention", at, 2, _with_retention(put(item)))
    probe.case("OffsetFetch edge: what was committed twice", at, 8, committed(GROUP, {NAME: [0]}))
    fetches = {
        "of nothing": committed(GROUP, {}),
        "of a topic's nothing": committed(GROUP, {NAME: []}),
        "a partition twice": committed(GROUP, {NAME: [0, 0]}),
        "negative partition": committed(GROUP, {NAME: [-1]}),
        "the empty group": committed("", {NAME: [0]}),
        "an unknown group": committed("probe-group-nobody", {NAME: [0]}),
        "all of an unknown group": committed("probe-group-nobody", None),
        "with a member": _with_member(committed(GROUP, {NAME: [0]})),
    }
    for label, request in fetches.items():
        probe.case(f"OffsetFetch edge: {label}", at, 9, request, _without_strangers)
    twice = committed(GROUP, {NAME: [0]})
    twice.groups = [*twice.groups] * 2
    probe.case("OffsetFetch edge: a group twice", at, 8, twice)
    probe.case("OffsetFetch edge: of no groups", at, 8, message("OffsetFetch", groups=[]))
    for version in (1, 2, 7):
        request = message("OffsetFetch", group_id=GROUP, topics=[])
        probe.case(f"OffsetFetch v{version} edge: no topics", at, version, request)
    for version in (2, 7):
        request = message("OffsetFetch", group_id=GROUP, topics=None)
        probe.case(f"OffsetFetch v{version} edge: all topics", at, version, request)

    def delete(*partitions: int, name: str = NAME, group: str = GROUP) -> Any:
        items = [{"partition_index": one} for one in partitions]
        return message("OffsetDelete", group_id=group, topics=[{"name": name, "partitions": items}])

    deletions = {
        "of nothing": message("OffsetDelete", group_id=GROUP, topics=[]),
        "of a topic's nothing": delete(),
        "of an unknown topic": delete(0, name="nope"),
        "of an unknown partition": delete(99),
        "of a partition without an offset": delete(1),
        "a partition twice": delete(0, 0),
        "of the empty group": delete(0, group=""),
        "of an unknown group": delete(0, group="probe-group-nobody"),
    }
    for label, request in deletions.items():
        where = coordinator(probe, "probe-group-nobody") if "unknown group" in label else at
        probe.case(f"OffsetDelete edge: {label}", where, 0, request)
    probe.case("DeleteGroups edge: a group with nothing left", at, 2, message("DeleteGroups", groups_names=[GROUP]))


def _in_order(found: Any) -> Any:
    """The response's partitions in their order; Kafka has those that are refused first."""
    return [
        (one.name, sorted((item.partition_index, item.error_code) for item in one.partitions)) for one in found.topics
    ]


def _with_retention(request: Any) -> Any:
    request.retention_time_ms = 3_600_000
    return request


def _with_member(request: Any) -> Any:
    request.groups[0].member_id = "nobody"
    request.groups[0].member_epoch = 3
    return request


def _without_strangers(found: Any) -> Any:
    """The response; of a group that another broker coordinates only that it does."""
    return [(one.error_code, one.topics) for one in found.groups]


def _of_static_members(probe: Probe) -> None:
    at = coordinator(probe, STATIC)
    own = {"group_instance_id": "i1"}
    first = probe.case("static: joins", at, 5, join(STATIC, **own))
    member = first.member_id
    sync = {"group_id": STATIC, "protocol_type": "consumer", "protocol_name": "range"}

    def synced(generation: int, of: str, **more: Any) -> Any:
        assignments = [{"member_id": of, "assignment": b"abc"}]
        return message("SyncGroup", generation_id=generation, member_id=of, assignments=assignments, **sync | more)

    probe.case("static: syncs", at, 5, synced(1, member, **own))
    probe.case("static: an unknown instance of a known member", at, 5, synced(1, member, group_instance_id="i2"))

    def beat(of: str, **more: Any) -> Any:
        return message("Heartbeat", group_id=STATIC, generation_id=1, member_id=of, **more)

    probe.case("static: heartbeat", at, 4, beat(member, **own))
    probe.case("static: heartbeat of another member id", at, 4, beat("x", **own))
    again = probe.case("static: joins again", at, 5, join(STATIC, **own))
    probe.note("static: has another id", again.member_id != member)
    probe.case("static: heartbeat of the former", at, 4, beat(member, **own))
    probe.case("static: the former commits", at, 8, _commit_as(member, **own))
    probe.case("static: the former joins", at, 5, join(STATIC, member, **own))
    probe.case("static: the former leaves", at, 5, _leave(member_id=member, **own))
    probe.case("static: the later commits", at, 8, _commit_as(again.member_id, **own))
    probe.case("static: leaves by an unknown instance", at, 5, _leave(member_id="", group_instance_id="i9"))
    probe.case("static: described", at, 5, message("DescribeGroups", groups=[STATIC]), lambda found: [
        (one.error_code, one.group_state, [(m.group_instance_id, bytes(m.member_assignment)) for m in one.members])
        for one in found.groups
    ])  # fmt: skip
    probe.case("static: leaves by its instance", at, 5, _leave(member_id="", **own))
    probe.case("static: leaves again", at, 5, _leave(member_id="", **own))


def _commit_as(member: str, **more: Any) -> Any:
    request = commit(STATIC, 1, member, topic=NAME)
    for name, value in more.items():
        setattr(request, name, value)
    return request


def _leave(**of: Any) -> Any:
    return message("LeaveGroup", group_id=STATIC, members=[of])


def _of_transactions(probe: Probe) -> None:
    at = coordinator(probe, ID, TRANSACTION_KEY)

    def add(*topics: dict[str, Any], of: str = ID, producer: int = 1, epoch: int = 0) -> Any:
        return message(
            "AddPartitionsToTxn",
            v3_and_below_transactional_id=of,
            v3_and_below_producer_id=producer,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=list(topics),
        )

    def several(*transactions: dict[str, Any]) -> Any:
        return message("AddPartitionsToTxn", transactions=list(transactions))

    named = {"name": NAME, "partitions": [0]}
    one = {"transactional_id": "probe-nobody", "producer_id": 1, "producer_epoch": 0, "topics": [named]}
    where = coordinator(probe, "probe-nobody", TRANSACTION_KEY)
    cases: dict[str, tuple[int, Any]] = {
        "AddPartitionsToTxn of nothing": (3, add()),
        "AddPartitionsToTxn of the empty id": (3, add(named, of="")),
        "AddPartitionsToTxn of an unknown id": (3, add(named, of="probe-nobody")),
        "AddPartitionsToTxn unknown topic": (3, add({"name": "nope", "partitions": [0]}, named, of="probe-nobody")),
        "AddPartitionsToTxn v4 of a client": (4, several(one)),
        "AddPartitionsToTxn v4 to verify": (4, several(one | {"verify_only": True})),
        "AddPartitionsToTxn v4 of nothing": (4, several()),
        "EndTxn of an unknown id": (3, message("EndTxn", transactional_id="probe-nobody", producer_id=1)),
        "EndTxn of the empty id": (3, message("EndTxn", transactional_id="", producer_id=1)),
        "AddOffsetsToTxn of an unknown id": (
            3,
            message("AddOffsetsToTxn", transactional_id="probe-nobody", producer_id=1, group_id="g"),
        ),
        "AddOffsetsToTxn of the empty group": (
            3,
            message("AddOffsetsToTxn", transactional_id="probe-nobody", producer_id=1, group_id=""),
        ),
        "DescribeTransactions of none": (0, message("DescribeTransactions", transactional_ids=[])),
        "DescribeTransactions of the empty id": (0, message("DescribeTransactions", transactional_ids=[""])),
        "DescribeTransactions an id twice": (
            0,
            message("DescribeTransactions", transactional_ids=["probe-nobody"] * 2),
        ),
        "ListTransactions an unknown state": (1, message("ListTransactions", state_filters=["nope", "Ongoing"])),
        "ListTransactions of a producer": (1, message("ListTransactions", producer_id_filters=[-1])),
        "ListTransactions of long ones": (1, message("ListTransactions", duration_filter=10**12)),
        "InitProducerId of the empty id": (4, message("InitProducerId", transactional_id="")),
    }
    for name, (version, request) in cases.items():
        probe.case(name, where, version, request)
    _of_a_new_id(probe)
    keeper = coordinator(probe, GROUP)
    item = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}

    def offsets(*items: dict[str, Any], name: str = NAME, **more: Any) -> Any:
        fields = {"transactional_id": "probe-nobody", "group_id": GROUP, "producer_id": 1, "producer_epoch": 0} | more
        return message("TxnOffsetCommit", topics=[{"name": name, "partitions": list(items)}], **fields)

    commits = {
        "of a topic's nothing": offsets(),
        "of an unknown topic": offsets(item, name="nope"),
        "of an unknown transaction": offsets(item),
        "of the empty group": offsets(item, group_id=""),
        "of an unknown member": offsets(item, member_id="x", generation_id=1),
    }
    for label, request in commits.items():
        probe.case(f"TxnOffsetCommit edge: {label}", keeper, 3, request)
    probe.note("transaction edges: asked", at >= 0)


def _of_a_new_id(probe: Probe) -> None:
    """Ask a coordinator that has loaded, and has producer ids to give, about an id that it doesn't know."""
    where = coordinator(probe, NEW, TRANSACTION_KEY)
    first = {"transaction_timeout_ms": 60_000}
    any_id = message("InitProducerId", transactional_id=None, **first)
    probe.again(lambda: probe.ask(where, 4, any_id), *NOT_YET)
    unknown = message("DescribeTransactions", transactional_ids=[NEW])
    probe.again(lambda: probe.ask(where, 0, unknown).transaction_states[0], *NOT_YET)
    request = message("InitProducerId", transactional_id=NEW, producer_id=7, producer_epoch=0, **first)
    probe.case("InitProducerId of an unknown producer", where, 4, request)


def _of_brokers(probe: Probe) -> None:
    """Send requests among brokers and controllers, from a sender of long ago."""
    at = probe.other
    stale = {"controller_id": 9, "controller_epoch": 0, "broker_epoch": -1}
    cases: dict[str, tuple[int, int, Any]] = {
        "LeaderAndIsr of a stale controller": (at, 6, message("LeaderAndIsr", **stale)),
        "StopReplica of a stale controller": (at, 3, message("StopReplica", **stale)),
        "UpdateMetadata of a stale controller": (at, 7, message("UpdateMetadata", **stale)),
        "ControlledShutdown of an unknown broker": (
            probe.controller,
            3,
            message("ControlledShutdown", broker_id=9, broker_epoch=1),
        ),
        "ControlledShutdown at another broker": (at, 3, message("ControlledShutdown", broker_id=9, broker_epoch=1)),
        "AlterPartition of an unknown broker": (
            probe.controller,
            2,
            message("AlterPartition", broker_id=9, broker_epoch=1, topics=[]),
        ),
        "AlterPartition at another broker": (at, 2, message("AlterPartition", broker_id=9, broker_epoch=1, topics=[])),
        "AllocateProducerIds of an unknown broker": (
            probe.controller,
            0,
            message("AllocateProducerIds", broker_id=9, broker_epoch=1),
        ),
        "AllocateProducerIds at another broker": (at, 0, message("AllocateProducerIds", broker_id=9, broker_epoch=1)),
        "WriteTxnMarkers of nothing": (0, 1, message("WriteTxnMarkers", markers=[])),
    }
    for name, (broker, version, request) in cases.items():
        probe.case(name, broker, version, request)
