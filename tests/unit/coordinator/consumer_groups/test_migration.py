"""Groups change between the protocols while they have members, as in Kafka 4.3.1 (KIP-848, online migration)."""

from typing import Any

import pytest
from tests.unit.coordinator.consumer_groups.consumer_harness import (
    T4,
    WITH_INTERVAL,
    ConsumerHarness,
    joining,
    numbers,
    owned,
)
from tests.unit.coordinator.consumer_groups.golden import migration
from tests.unit.coordinator.consumer_groups.test_story_of_kafka import PLAY, expected_of, request_of

from tidegauge.errors import ErrorCode
from tidegauge.groups import Heartbeat, JoinGroup, LeaveGroup, LeavingMember, Protocol, SyncGroup
from tidegauge.kafka import apis
from tidegauge.kafka.frames import decode
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.consumer_group.classic_protocol import (
    MalformedProtocol,
    read_assignment,
    read_subscription,
    write_assignment,
)

RESPONSE_HEADER_BYTES = 5
SESSION_MS, REBALANCE_MS = 10_000, 9_000


def subscription(*topics: str, owned: tuple[int, ...] = (), user_data: bytes | None = None) -> bytes:
    """A subscription of version 3, which owns partitions of the first topic."""

    def text(name: str) -> bytes:
        return len(name).to_bytes(2, "big") + name.encode()

    def whole(*values: int) -> bytes:
        return b"".join(value.to_bytes(4, "big", signed=True) for value in values)

    data = whole(-1) if user_data is None else whole(len(user_data)) + user_data
    owns = whole(1) + text(topics[0]) + whole(len(owned), *owned) if owned else whole(0)
    return b"\0\3" + whole(len(topics)) + b"".join(map(text, topics)) + data + owns + whole(-1) + b"\xff\xff"


# The same requests as to Kafka


def _joined(broker: ConsumerHarness, step: Any) -> Any:
    request, client_id = request_of(step)
    expected = _response(step)
    if expected.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        broker.uuids.append(expected.member_id.removeprefix("probe-"))
    token = broker.send(
        JoinGroup(
            request.group_id,
            request.member_id,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            tuple(Protocol(one.name, bytes(one.metadata)) for one in request.protocols),
            request.group_instance_id,
            client_id,
            "/127.0.0.1",
        )
    )
    broker.after(step["at_ms"] + step["took"] - broker.now_ms)
    result = broker.response_to(token)
    members = [(one.member_id, bytes(one.metadata)) for one in result.members]
    name = result.protocol_name
    return int(result.error), result.generation, name, result.leader, result.member_id, members


def _synced(broker: ConsumerHarness, step: Any) -> Any:
    request, _ = request_of(step)
    result = broker.ask(
        SyncGroup(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            tuple((one.member_id, bytes(one.assignment)) for one in request.assignments),
        )
    )
    return int(result.error), result.assignment


def _beaten(broker: ConsumerHarness, step: Any) -> int:
    request, _ = request_of(step)
    return int(broker.ask(Heartbeat(request.group_id, request.generation_id, request.member_id)).error)


def _left(broker: ConsumerHarness, step: Any) -> Any:
    request, _ = request_of(step)
    leaving = tuple(LeavingMember(one.member_id, one.group_instance_id, one.reason) for one in request.members)
    result = broker.ask(LeaveGroup(request.group_id, leaving))
    return int(result.error), [int(one.error) for one in result.members]


def _response(step: Any) -> Any:
    body = bytes.fromhex(step["response"])[RESPONSE_HEADER_BYTES:]
    return decode(step["key"], step["version"], memoryview(body), 0, response=True)[0]


def _expected(step: Any) -> Any:
    response = _response(step)
    match step["key"]:
        case apis.JOIN_GROUP:
            members = [(one.member_id, bytes(one.metadata)) for one in response.members]
            name = response.protocol_name
            return response.error_code, response.generation_id, name, response.leader, response.member_id, members
        case apis.SYNC_GROUP:
            return response.error_code, bytes(response.assignment)
        case apis.HEARTBEAT:
            return response.error_code
        case apis.LEAVE_GROUP:
            return response.error_code, [one.error_code for one in response.members]
        case _:
            return expected_of(step)


HANDLED = PLAY | {
    apis.JOIN_GROUP: _joined,
    apis.SYNC_GROUP: _synced,
    apis.HEARTBEAT: _beaten,
    apis.LEAVE_GROUP: _left,
}


@pytest.fixture(scope="module")
def played() -> tuple[ConsumerHarness, list[tuple[str, Any, Any]]]:
    """The broker after all requests, and of each its label, response and Kafka's response."""
    broker = ConsumerHarness(consumer_times=WITH_INTERVAL, now_ms=0, group_initial_rebalance_delay_ms=500)
    responses = []
    for step in migration()["requests"]:
        if step["key"] in HANDLED:
            broker.after(max(step["at_ms"] - broker.now_ms, 0))
            responses.append((step["label"], HANDLED[step["key"]](broker, step), _expected(step)))
    return broker, responses


def test_a_group_goes_up_and_down_as_in_kafka(played):
    _, responses = played
    assert [(label, response) for label, response, _ in responses] == [
        (label, expected) for label, _, expected in responses
    ]
    assert len(responses) > 30


def test_the_records_of_the_migration_are_of_kafkas_types_and_in_its_order(played):
    """Kafka 4 also writes the Empty group of a classic group's first JoinGroup, which 3.9 does not."""
    broker, _ = played
    expected = [
        [kind if value is not None else -kind for kind, _, value in batch if kind != 2]
        for batch in migration()["records"]
    ]
    of_group = [
        [kind if value is not None else -kind for kind, _, value in batch]
        for batch in broker.written()
        if batch[0][1].group_id == "up1"
    ]
    assert of_group == [[kind for kind in batch if kind != -2] for batch in expected if any(k != -2 for k in batch)]


# Refusals and timers


@pytest.fixture
def broker() -> ConsumerHarness:
    return ConsumerHarness(group_initial_rebalance_delay_ms=0)


def classic_member(broker: ConsumerHarness, assignment: bytes | None = None, **fields: Any) -> str:
    """A classic group of one member, which is Stable in generation 1 and owns all of t4; return its id."""
    metadata = fields.pop("metadata", subscription("t4"))
    token = broker.join(protocols=(Protocol("range", metadata),), session_timeout_ms=SESSION_MS, **fields)
    broker.after(1)
    member = broker.response_to(token).member_id
    given = write_assignment(3, [("t4", range(4))]) if assignment is None else assignment
    broker.sync(member, assignments=[(member, given)])
    return member


def rejoin(broker: ConsumerHarness, member: str, *partitions: int, **fields: Any) -> Any:
    fields = {"protocol_type": "consumer", "metadata": subscription("t4", owned=partitions)} | fields
    metadata = fields.pop("metadata")
    return broker.ask(
        JoinGroup("g", member, SESSION_MS, REBALANCE_MS, protocols=(Protocol("range", metadata),), **fields)
    )


def test_a_custom_assignor_refuses_the_upgrade_and_the_classic_group_goes_on(broker):
    member = classic_member(broker, write_assignment(3, [])[:-4] + b"\0\0\0\1x")
    result = broker.ask(joining("u", "t4"))
    assert result.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "unsupported custom assignor" in result.message
    assert broker.heartbeat(member) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "settings", "why"),
    [
        ({}, {"consumer_migration_policy": "disabled"}, "online upgrade is disabled"),
        ({}, {"consumer_migration_policy": "downgrade"}, "online upgrade is disabled"),
        ({}, {"consumer_max_size": 0}, "exceeds the consumer group maximum size"),
        ({"protocol_type": "connect"}, {}, "does not use the consumer embedded protocol"),
        ({"metadata": b"\0\1\0\0"}, {}, "the embedded consumer protocol is malformed"),
        ({"assignment": b"\0\1\0\0"}, {}, "the embedded consumer protocol is malformed"),
    ],
)
def test_what_refuses_an_upgrade(fields, settings, why):
    broker = ConsumerHarness(group_initial_rebalance_delay_ms=0, **settings)
    member = classic_member(broker, **fields)
    written = len(broker.log)
    result = broker.ask(joining("u", "t4"))
    assert result.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert why in result.message
    assert len(broker.log) == written
    assert broker.heartbeat(member) is ErrorCode.NONE


def test_an_upgrade_that_is_not_written_leaves_the_classic_group(broker):
    member = classic_member(broker)
    broker.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.ask(joining("u", "t4")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.append_error = ErrorCode.NONE
    assert broker.heartbeat(member) is ErrorCode.NONE
    assert broker.group().generation == 1


def test_what_is_parked_gets_rebalance_in_progress_when_the_group_is_upgraded(broker):
    classic_member(broker)
    parked = broker.join(protocols=(Protocol("range", subscription("t4")),))
    assert parked not in broker.responses
    broker.enter("u", "t4")
    assert broker.response_to(parked).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert broker.coordinator.open_requests == 0


def test_a_group_of_both_protocols_outlives_its_coordinator_at_each_step(broker):
    member = classic_member(broker)
    broker.enter("u", "t4")
    assert broker.successor().described() == broker.described()
    assert rejoin(broker, member, 0, 1, 2, 3).generation == 1
    assert broker.successor().described() == broker.described()
    assert rejoin(broker, member, 0, 1).generation == 2
    other = broker.successor()
    assert numbers(other.beat("u", 2).assignment) == {T4: [2, 3]}
    assert other.heartbeat(member, 2) is ErrorCode.NONE
    assert other.beat("u", -1).error is ErrorCode.NONE
    assert other.successor().group().generation == 2
    assert other.heartbeat(member, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_has_its_own_session_timeout_and_its_rebalance_timeout_to_rejoin(broker):
    member = classic_member(broker)
    broker.enter("u", "t4")
    for _ in range(8):
        broker.after(1_000)
        broker.beat("u", 2)
        assert broker.heartbeat(member) is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(53):
        broker.after(1_000)
        broker.beat("u", broker.described().members[-1].member_epoch)
        broker.heartbeat(member)
    assert broker.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_joins_and_does_not_synchronise_is_removed(broker):
    member = classic_member(broker)
    broker.enter("u", "t4")
    rejoin(broker, member, 0, 1)
    for _ in range(9):
        broker.after(1_000)
        broker.beat("u", 2)
        broker.heartbeat(member, 2)
    assert broker.heartbeat(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_consumer_members_expiry_downgrades_the_group(broker):
    member = classic_member(broker)
    broker.enter("u", "t4")
    rejoin(broker, member, 0, 1)
    broker.sync(member, 2)
    for _ in range(6):
        broker.after(2_001)
        broker.heartbeat(member, 2)
    assert broker.group().state.value == "PreparingRebalance"
    assert broker.described().message == "Group g is not a consumer group."


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_without_downgrades_classic_members_stay_in_a_consumer_group(policy):
    broker = ConsumerHarness(group_initial_rebalance_delay_ms=0)
    member = classic_member(broker)
    broker.enter("u", "t4")
    rejoin(broker, member, 0, 1)
    other = broker.successor(consumer_migration_policy=policy)
    assert other.beat("u", -1).error is ErrorCode.NONE
    (left,) = other.described().members
    assert (left.member_id, left.is_classic) == (member, True)
    assert other.heartbeat(member, 2) is ErrorCode.NONE


def test_a_classic_member_is_refused_with_other_protocols_or_a_policy_that_is_disabled(broker):
    member = classic_member(broker)
    broker.enter("u", "t4")
    assert rejoin(broker, member, protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rejoin(broker, member, metadata=b"\0").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    newcomer = broker.ask(
        JoinGroup("g", "new", SESSION_MS, REBALANCE_MS, "consumer", (Protocol("other", subscription("t4")),))
    )
    assert newcomer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    disabled = broker.successor(consumer_migration_policy="disabled")
    assert rejoin(disabled, member).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_requests_of_classic_members_are_checked(broker):
    member = classic_member(broker, group_instance_id="i")
    broker.enter("u", "t4")
    assert broker.heartbeat("unknown") is ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.heartbeat("u", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.heartbeat(member, 9) is ErrorCode.ILLEGAL_GENERATION
    assert broker.heartbeat("other", 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert broker.heartbeat(member, 1, instance="j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.synced(broker.sync(member, 9)).error is ErrorCode.ILLEGAL_GENERATION
    assert broker.synced(broker.sync("unknown", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    wrong = broker.sync(member, 1, protocol_type="consumer", protocol_name="other")
    assert broker.synced(wrong).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.synced(broker.sync(member, 1)).error is ErrorCode.REBALANCE_IN_PROGRESS
    commit = broker.commit(partition=TopicPartition("t4", 0), generation=2, member_id=member)
    assert broker.committed(commit) is ErrorCode.ILLEGAL_GENERATION
    commit = broker.commit(partition=TopicPartition("t4", 0), generation=1, member_id=member)
    assert broker.committed(commit) is ErrorCode.NONE


def test_a_static_classic_member_is_replaced_by_one_that_joins_without_an_id(broker):
    member = classic_member(broker, group_instance_id="i")
    broker.enter("u", "t4")
    rejoined = rejoin(broker, "", group_instance_id="i")
    assert rejoined.error is ErrorCode.NONE
    assert rejoined.member_id != member
    assert {one.instance_id for one in broker.described().members} == {"i", None}
    assert rejoin(broker, member, group_instance_id="i").error is not ErrorCode.NONE


def test_an_administrator_removes_members_by_their_instance_ids(broker):
    classic_member(broker, group_instance_id="i")
    broker.enter("u", "t4", instance_id="j")
    result = broker.leave(LeavingMember("", "j"), LeavingMember("", "none"))
    assert [one.error for one in result.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert broker.group().state.value == "PreparingRebalance"


def test_a_consumer_member_takes_the_place_of_a_static_classic_one(broker):
    classic_member(broker, group_instance_id="i")
    result = broker.enter("u", "t4", instance_id="i")
    assert (result.member_epoch, numbers(result.assignment)) == (1, {T4: [0, 1, 2, 3]})
    assert broker.beat("u", 1, instance_id="i", owned=owned(T4, 0, 1, 2, 3)).error is ErrorCode.NONE


# Bytes


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_all_versions_are_read(version):
    whole = subscription("t4", "t5", owned=(0, 2), user_data=b"x")
    ends = {0: -(4 + 2 + 2 + 4 + 8 + 4 + 2), 1: -6, 2: -2, 3: None}
    found = read_subscription(version.to_bytes(2, "big") + whole[2 : ends[version]])
    assert (found.version, found.topics, found.user_data) == (version, ("t4", "t5"), b"x")
    assert found.owned == ((("t4", 0), ("t4", 2)) if version else ())


def test_bytes_that_are_no_subscription_or_assignment_are_malformed():
    whole = subscription("t4", owned=(0,))
    for size in range(len(whole)):
        with pytest.raises(MalformedProtocol):
            read_subscription(whole[:size])
    for damaged in (b"\xff\xff" + whole[2:], b"\0\3\x7f\xff\xff\xff", b"\0\0\0\0\0\1\xff\xff", b"\0\0\0\0\0\1\0\1\xff"):
        with pytest.raises(MalformedProtocol):
            read_subscription(damaged)
    written = write_assignment(1, [("t4", [0, 1])])
    assert read_assignment(written).partitions == (("t4", 0), ("t4", 1))
    assert read_assignment(b"").partitions == ()
    for size in range(1, len(written)):
        with pytest.raises(MalformedProtocol):
            read_assignment(written[:size])
