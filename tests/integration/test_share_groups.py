"""Share groups on a cluster of our own processes in KRaft mode: members, the states of their partitions, and tools.

Members are requests made by hand: nothing is fetched. The judge of the tools' part is kafka-share-groups 4.3.1.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined] # it names no exports
from tests.integration.kraft_nodes import KRaftBrokers, brokers_of
from tests.integration.quorum_nodes import LIMIT_SECONDS, OURS, kafka_classpath, quorum_of
from tests.kafka_requests import ask
from tests.waiting import until

from tidegauge.errors import ErrorCode
from tidegauge.java import java_program
from tidegauge.kafka import apis
from tidegauge.kafka.messages import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_share_group_offsets,
    find_coordinator,
    list_groups,
    metadata,
    read_share_group_state,
    share_group_describe,
    share_group_heartbeat,
    write_share_group_state,
)
from tidegauge.share_groups import SharePartitionKey, StateBatch

TOPIC = "orders"
RECORDS = 10
FEATURES = tuple(word for name in ("streams.version", "transaction.version") for word in ("--feature", f"{name}=0"))
"""Levels at which brokers can be members; share.version has Kafka's default."""
PASSING = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KRaftBrokers]:
    """Three brokers on one controller, with a topic of two partitions and ten records in the first."""
    at = tmp_path_factory.mktemp("share-groups")
    with quorum_of(at, [OURS], features=FEATURES) as quorum:
        quorum.wait_leader()
        with brokers_of(quorum, [OURS] * 3) as made:
            made.start()
            made.admin.create_topics([NewTopic(TOPIC, 2, replication_factor=3)])[TOPIC].result(60)
            for partition in range(2):
                made.wait_isr(TOPIC, [0, 1, 2], partition)
            made.produce(TOPIC, [f"v{number}" for number in range(RECORDS)])
            yield made


class Cluster:
    """Requests to the brokers, sent again while a coordinator moves."""

    def __init__(self, brokers: KRaftBrokers) -> None:
        self._brokers = brokers
        topic = self.ask(0, apis.METADATA, metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)]), 12)
        self.topic_id = bytes(topic.topics[0].topic_id)

    def ask(self, broker_id: int, key: int, message: Any, version: int) -> Any:
        """Ask a broker; a dead one is an OSError."""
        return ask(self._brokers.nodes[broker_id].address, key, message, version)

    def coordinator(self, key: str, key_type: int) -> int:
        """Return the coordinator of a group or share partition, by a live broker."""
        found: list[int] = []

        def is_found() -> bool:
            live = next(node.id for node in self._brokers.nodes if node.runs)
            request = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            (one,) = self.ask(live, apis.FIND_COORDINATOR, request, 6).coordinators
            if one.error_code == ErrorCode.NONE and self._brokers.nodes[one.node_id].runs:
                found.append(one.node_id)
            else:
                assert one.error_code in {ErrorCode.NONE, *PASSING}
            return bool(found)

        until(is_found, LIMIT_SECONDS, f"{key} has a coordinator")
        return found[0]

    def of_group(self, group: str, key: int, message: Any, version: int) -> Any:
        """Ask a group's coordinator until it serves the group."""
        found: list[Any] = []

        def is_served() -> bool:
            response = self.ask(self.coordinator(group, 0), key, message, version)
            if getattr(response, "error_code", 0) not in PASSING:
                found.append(response)
            return bool(found)

        until(is_served, LIMIT_SECONDS, f"the coordinator of {group} serves it")
        return found[0]

    def beat(self, group: str, member: str, epoch: int, topics: tuple[str, ...] | None = None) -> Any:
        """Send a member's heartbeat."""
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(group, member, epoch, None, topics)
        return self.of_group(group, apis.SHARE_GROUP_HEARTBEAT, request, 1)

    def join(self, group: str, member: str) -> Any:
        """Have a member join; return the heartbeat's response that assigns it partitions."""
        joined = self.beat(group, member, 0, (TOPIC,))
        assert joined.error_code == ErrorCode.NONE, joined
        latest = [joined]

        def is_assigned() -> bool:
            latest.append(self.beat(group, member, latest[-1].member_epoch))
            assert latest[-1].error_code == ErrorCode.NONE, latest[-1]
            given = [one.assignment for one in latest if one.assignment is not None]
            return bool(given and partitions_in(given[-1]))

        until(is_assigned, LIMIT_SECONDS, f"{member} has partitions")
        return latest[-1]

    def key(self, group: str, partition: int) -> str:
        """Return the coordinator key of a share partition."""
        return str(SharePartitionKey(group, self.topic_id, partition))

    def read_at(self, broker_id: int, group: str, leader_epoch: int = -1) -> Any:
        """Read the state of the first partition at a broker."""
        part = read_share_group_state.PartitionData(0, leader_epoch)
        request = read_share_group_state.ReadShareGroupStateRequest(
            group, [read_share_group_state.ReadStateData(self.topic_id, [part])]
        )
        return self.ask(broker_id, apis.READ_SHARE_GROUP_STATE, request, 0).results[0].partitions[0]

    def read(self, group: str, leader_epoch: int = -1) -> Any:
        """Read the state of the first partition at its coordinator."""
        found: list[Any] = []

        def is_read() -> bool:
            state = self.read_at(self.coordinator(self.key(group, 0), 2), group, leader_epoch)
            if state.error_code not in {*PASSING, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                found.append(state)
            return bool(found)

        until(is_read, LIMIT_SECONDS, "the state is served")
        return found[0]

    def write(self, group: str, leader_epoch: int, start: int, complete: int, *batches: StateBatch) -> int:
        """Write states of records of the first partition; return the error."""
        module = write_share_group_state
        stored = [module.StateBatch(*one) for one in batches]
        part = module.PartitionData(0, -1, leader_epoch, start, complete, stored)
        request = module.WriteShareGroupStateRequest(group, [module.WriteStateData(self.topic_id, [part])])
        at = self.coordinator(self.key(group, 0), 2)
        response = self.ask(at, apis.WRITE_SHARE_GROUP_STATE, request, 1)
        return int(response.results[0].partitions[0].error_code)

    def offsets(self, group: str) -> Mapping[int, tuple[int, int]]:
        """Return start offset and lag of a group's initialized partitions."""
        module = describe_share_group_offsets
        wanted = module.DescribeShareGroupOffsetsRequestGroup(group, None)
        request = module.DescribeShareGroupOffsetsRequest([wanted])
        (found,) = self.of_group(group, apis.DESCRIBE_SHARE_GROUP_OFFSETS, request, 1).groups
        assert found.error_code == ErrorCode.NONE, found
        return {
            one.partition_index: (one.start_offset, one.lag)
            for topic in found.topics
            for one in topic.partitions
            if one.error_code == ErrorCode.NONE
        }

    def listed(self, group: str) -> list[tuple[str, str]]:
        """Return type and state of a group in the list of its coordinator."""
        request = list_groups.ListGroupsRequest([], ["share"])
        found = self.ask(self.coordinator(group, 0), apis.LIST_GROUPS, request, 5)
        return [(one.group_type, one.group_state) for one in found.groups if one.group_id == group]


def partitions_in(assignment: Any) -> list[int]:
    """Return the partitions of an assignment."""
    return sorted(one for topic in assignment.topic_partitions for one in topic.partitions)


def batches_of(state: Any) -> list[StateBatch]:
    """Return the batches of a state."""
    return [
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in state.state_batches
    ]


def test_members_join_get_initialized_partitions_and_leave(brokers: KRaftBrokers) -> None:
    """KIP-932: a heartbeat has partitions initialized, a later one assigns them; two members share two partitions."""
    cluster = Cluster(brokers)
    first = cluster.join("pair", "A")
    assert cluster.beat("pair", "A", first.member_epoch + 7).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert cluster.beat("pair", "nobody", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    second = cluster.join("pair", "B")
    epochs = [first.member_epoch]

    def is_shared() -> bool:
        response = cluster.beat("pair", "A", epochs[-1])
        epochs.append(response.member_epoch)
        request = share_group_describe.ShareGroupDescribeRequest(["pair"])
        (group,) = cluster.of_group("pair", apis.SHARE_GROUP_DESCRIBE, request, 1).groups
        held = {one.member_id: partitions_in(one.assignment) for one in group.members}
        return group.group_state == "Stable" and sorted(map(len, held.values())) == [1, 1] and len(held) == 2

    until(is_shared, LIMIT_SECONDS, "each member has a partition")
    assert cluster.listed("pair") == [("share", "Stable")]
    for member, epoch in (("A", epochs[-1]), ("B", second.member_epoch)):
        del epoch
        assert cluster.beat("pair", member, -1).error_code == ErrorCode.NONE
    assert cluster.listed("pair") == [("share", "Empty")]


def test_states_survive_the_share_coordinators_broker(brokers: KRaftBrokers) -> None:
    """The next leader of the partition of __share_group_state loads the written states, fencing epochs included."""
    cluster = Cluster(brokers)
    cluster.join("durable", "A")
    at = cluster.coordinator(cluster.key("durable", 0), 2)
    state = cluster.read("durable", leader_epoch=3)
    assert (state.error_code, state.start_offset, batches_of(state)) == (ErrorCode.NONE, -1, [])
    others = [node.id for node in brokers.nodes if node.id != at]
    assert {cluster.read_at(one, "durable").error_code for one in others} == {ErrorCode.NOT_COORDINATOR}
    stored = [StateBatch(0, 2, 2, 1), StateBatch(3, 5, 0, 2)]
    assert cluster.write("durable", 3, 0, 3, *stored) == ErrorCode.NONE
    assert cluster.write("durable", 2, 0, 3) == ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.offsets("durable")[0] == (0, RECORDS - 3), "ten records, three of them done"
    brokers.nodes[at].kill()
    try:
        after = cluster.read("durable")
        assert cluster.coordinator(cluster.key("durable", 0), 2) != at
        assert (after.state_epoch, after.start_offset, batches_of(after)) == (state.state_epoch, 0, stored)
        assert cluster.write("durable", 2, 0, 3) == ErrorCode.FENCED_LEADER_EPOCH
        assert cluster.write("durable", 3, 3, 0, StateBatch(3, 5, 2, 3)) == ErrorCode.NONE
        assert batches_of(cluster.read("durable")) == [StateBatch(3, 5, 2, 3)]
        member = cluster.beat("durable", "A", 0, (TOPIC,))
        assert (member.error_code, partitions_in(member.assignment)) == (ErrorCode.NONE, [0, 1]), "the group is there"
    finally:
        brokers.nodes[at].start()
        brokers.nodes[at].wait_started()
        for partition in range(2):
            brokers.wait_isr(TOPIC, [0, 1, 2], partition)
    assert cluster.beat("durable", "A", -1).error_code == ErrorCode.NONE


def test_an_admin_alters_and_deletes_offsets_and_the_group(brokers: KRaftBrokers) -> None:
    """Alter makes a group that does not exist, with members it is refused, and deleted states are uninitialized."""
    cluster = Cluster(brokers)

    def alter(group: str, offset: int) -> Any:
        module = alter_share_group_offsets
        part = module.AlterShareGroupOffsetsRequestPartition(0, offset)
        topic = module.AlterShareGroupOffsetsRequestTopic(TOPIC, [part])
        unknown = module.AlterShareGroupOffsetsRequestTopic("nosuch", [part])
        request = module.AlterShareGroupOffsetsRequest(group, [topic, unknown])
        return cluster.of_group(group, apis.ALTER_SHARE_GROUP_OFFSETS, request, 0)

    altered = alter("made", 4)
    assert altered.error_code == ErrorCode.NONE
    errors = {topic.topic_name: [one.error_code for one in topic.partitions] for topic in altered.responses}
    assert errors == {TOPIC: [ErrorCode.NONE], "nosuch": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]}
    assert cluster.offsets("made") == {0: (4, RECORDS - 4)}
    assert cluster.read("made").state_epoch == 1
    member = cluster.beat("made", "A", 0, (TOPIC,))
    assert partitions_in(member.assignment) == [0], "it is initialized already"
    until(lambda: set(cluster.offsets("made")) == {0, 1}, what="the other partition, which begins now, is initialized")
    assert alter("made", 5).error_code == ErrorCode.NON_EMPTY_GROUP
    assert cluster.beat("made", "A", -1).error_code == ErrorCode.NONE
    module = delete_share_group_offsets
    request = module.DeleteShareGroupOffsetsRequest("made", [module.DeleteShareGroupOffsetsRequestTopic(TOPIC)])
    deleted = cluster.of_group("made", apis.DELETE_SHARE_GROUP_OFFSETS, request, 0)
    assert [(one.topic_name, one.error_code) for one in deleted.responses] == [(TOPIC, ErrorCode.NONE)]
    assert cluster.read("made").error_code == ErrorCode.INVALID_REQUEST
    assert cluster.offsets("made") == {}
    gone = cluster.of_group("made", apis.DELETE_GROUPS, delete_groups.DeleteGroupsRequest(["made"]), 2)
    assert [(one.group_id, one.error_code) for one in gone.results] == [("made", ErrorCode.NONE)]
    assert cluster.listed("made") == []


@pytest.fixture(scope="module")
def classpath() -> str:
    """The class path of Kafka 4.3.1; skips without Maven."""
    return kafka_classpath()


def tool(classpath: str, brokers: KRaftBrokers, *arguments: str) -> list[list[str]]:
    """Return the columns of what kafka-share-groups prints."""
    name = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    command = [java_program(), "-XX:TieredStopAtLevel=1", "-cp", classpath, name, "--bootstrap-server"]
    done = subprocess.run(
        [*command, brokers.servers, *arguments], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    return [line.split() for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.long
def test_kafkas_tool_lists_describes_resets_and_deletes(classpath: str, brokers: KRaftBrokers) -> None:
    """kafka-share-groups 4.3.1, as far as it goes without a fetch."""
    cluster = Cluster(brokers)
    member = cluster.join("tools", "A")

    def while_alive(*arguments: str) -> list[list[str]]:
        """Run the tool while the member has just been heard of: its session must outlast the start of a JVM alone."""
        assert cluster.beat("tools", "A", member.member_epoch).error_code == ErrorCode.NONE
        return tool(classpath, brokers, *arguments)

    assert ["tools"] in while_alive("--list")
    heading, *rows = while_alive("--describe", "--group", "tools")
    assert heading == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    assert sorted(rows) == [["tools", TOPIC, "0", "-", "-"], ["tools", TOPIC, "1", "-", "-"]]
    heading, row = while_alive("--describe", "--group", "tools", "--members")
    assert (heading[:3], row[0], row[1], row[-2:]) == (
        ["GROUP", "CONSUMER-ID", "HOST"],
        "tools",
        "A",
        ["2", "orders:0,1"],
    )
    heading, row = while_alive("--describe", "--group", "tools", "--state", "--verbose")
    assert heading[-4:] == ["STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert row[-4:] == ["Stable", str(member.member_epoch), str(member.member_epoch), "1"]
    assert cluster.beat("tools", "A", -1).error_code == ErrorCode.NONE
    reset = ("--reset-offsets", "--group", "tools", "--topic", f"{TOPIC}:0", "--to-earliest", "--execute")
    assert ["tools", TOPIC, "0", "0"] in tool(classpath, brokers, *reset)
    assert cluster.offsets("tools")[0] == (0, RECORDS)
    heading, *rows = tool(classpath, brokers, "--describe", "--group", "tools")
    assert ["tools", TOPIC, "0", "0", str(RECORDS)] in rows
    tool(classpath, brokers, "--delete-offsets", "--group", "tools", "--topic", TOPIC)
    assert cluster.offsets("tools") == {}
    tool(classpath, brokers, "--delete", "--group", "tools")
    assert cluster.listed("tools") == []


def test_no_broker_has_complained_of_its_coordinators(brokers: KRaftBrokers) -> None:
    """Errors and warnings of a killed broker are none of the share coordinators'."""
    found = [line for node in brokers.nodes for line in node.complaints() if "share" in line.lower()]
    assert [line for line in found if "ERROR" in line or "CRITICAL" in line] == []
