"""JoinGroup: checks in Kafka's order, member ids (KIP-394), protocols, rejoining in every state, group.max.size."""

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, Harness, subscription

from tidegauge.errors import ErrorCode
from tidegauge.groups import DescribeGroup, GroupState, JoinGroupResult, Protocol

RANGE = Protocol("range", subscription("t"))
STICKY = Protocol("sticky", subscription("t"))


def test_a_session_timeout_outside_the_brokers_range_is_refused_before_the_group_exists():
    broker = Harness()
    for timeout_ms in (5_999, 1_800_001):
        result = broker.joined(broker.join(session_timeout_ms=timeout_ms))
        assert result == JoinGroupResult(ErrorCode.INVALID_SESSION_TIMEOUT)
    assert broker.ask(DescribeGroup("g")).state == "Dead"
    for timeout_ms in (6_000, 1_800_000):
        assert broker.is_parked(broker.join(session_timeout_ms=timeout_ms))


def test_a_member_id_of_a_group_that_does_not_exist_is_unknown():
    broker = Harness()
    assert broker.joined(broker.join("m")) == JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id="m")
    assert broker.coordinator.group_view("g") is None


def test_a_failed_join_without_member_id_leaves_an_empty_group_behind():
    broker = Harness()
    assert broker.joined(broker.join(protocols=())).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.group().state is GroupState.EMPTY


def test_a_first_join_gets_an_id_to_come_back_with():
    """KIP-394: v4 and later; the id is the client id, a hyphen and a UUID."""
    broker = Harness()
    broker.uuids = ["0000-1111"]
    result = broker.joined(broker.join(client_id="app", requires_known_member_id=True))
    assert result == JoinGroupResult(ErrorCode.MEMBER_ID_REQUIRED, member_id="app-0000-1111")
    assert (broker.group().state, broker.group().pending_members) == (GroupState.EMPTY, ("app-0000-1111",))
    assert broker.is_parked(broker.join("app-0000-1111"))
    assert (broker.group().pending_members, len(broker.group().members)) == ((), 1)


def test_versions_before_4_add_the_member_at_once():
    broker = Harness()
    token = broker.join(requires_known_member_id=False)
    broker.after(INITIAL_DELAY_MS)
    assert broker.joined(token).generation == 1


def test_a_static_member_is_added_at_once_with_an_id_of_its_instance():
    broker = Harness()
    broker.uuids = ["u"]
    token = broker.join(group_instance_id="i", requires_known_member_id=True)
    broker.after(INITIAL_DELAY_MS)
    assert broker.joined(token).member_id == "i-u"


def test_a_pending_id_with_an_instance_id_is_a_server_error():
    """Kafka: IllegalStateException, pending members are never static."""
    broker = Harness()
    pending = broker.joined(broker.join(requires_known_member_id=True)).member_id
    assert broker.joined(broker.join(pending, group_instance_id="i")).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_pending_member_is_forgotten_after_its_session_timeout():
    broker = Harness()
    pending = broker.joined(broker.join(requires_known_member_id=True)).member_id
    broker.after(SESSION_MS - 1)
    assert broker.group().pending_members == (pending,)
    broker.after(1)
    assert broker.group().pending_members == ()
    assert broker.joined(broker.join(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_takes_any_type_and_others_must_match():
    broker = Harness()
    ids = broker.stable_group()
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.joined(broker.join(protocol_type="connect")).error is inconsistent
    assert broker.joined(broker.join(protocols=(STICKY,))).error is inconsistent
    assert broker.joined(broker.join(ids[0], protocol_type="connect")).error is inconsistent
    broker.leave(*ids)
    assert broker.group().protocol_type == "consumer"
    assert broker.joined(broker.join(protocol_type="")).error is inconsistent
    assert broker.is_parked(broker.join(protocol_type="connect", protocols=(STICKY,)))
    assert broker.group().protocol_type == "connect"


def test_one_protocol_that_all_members_support_is_enough_and_the_most_votes_win():
    broker = Harness()
    tokens = [
        broker.join(protocols=(RANGE, STICKY)),
        broker.join(protocols=(STICKY, RANGE)),
        broker.join(protocols=(Protocol("own", b""), STICKY, RANGE)),
    ]
    broker.after(2 * INITIAL_DELAY_MS)
    assert {broker.joined(token).protocol_name for token in tokens} == {"sticky"}


def test_a_protocol_that_a_member_names_twice_counts_once():
    """Kafka counts it twice (incrementSupportedProtocols), finds none, and never responds; here the broker halted."""
    broker = Harness()
    twice = (RANGE, Protocol("range", b"other"), STICKY, RANGE)
    broker.stable_group(2, protocols=twice)
    assert broker.group().protocol_name == "range"
    assert [member.metadata for member in broker.group().members] == [RANGE.metadata] * 2
    third = broker.join(protocols=(STICKY,))
    assert broker.is_parked(third), "both members support it"
    assert broker.joined(broker.join(protocols=(Protocol("none", b""),) * 3)).error is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    ), "naming a protocol as often as there are members does not make it theirs"


def test_only_the_leader_is_shown_the_members():
    broker = Harness()
    tokens = [broker.join(), broker.join(group_instance_id="i")]
    broker.after(2 * INITIAL_DELAY_MS)
    leader, follower = (broker.joined(token) for token in tokens)
    assert leader.leader == follower.leader == leader.member_id
    assert [member.group_instance_id for member in leader.members] == [None, "i"]
    assert [member.metadata for member in leader.members] == [subscription("t")] * 2
    assert follower.members == ()
    assert not leader.skip_assignment


def test_a_repeated_join_replaces_the_parked_one_which_gets_no_response():
    broker = Harness()
    ids = broker.stable_group(2)
    first = broker.join(ids[0])
    second = broker.join(ids[0])
    broker.join(ids[1])
    assert broker.is_parked(first)
    assert broker.joined(second).generation == 2


def test_in_completing_rebalance_the_same_metadata_gets_the_same_generation():
    broker = Harness()
    tokens = [broker.join(), broker.join()]
    broker.after(2 * INITIAL_DELAY_MS)
    leader, follower = (broker.joined(token) for token in tokens)
    assert broker.joined(broker.join(leader.member_id)) == leader
    assert broker.joined(broker.join(follower.member_id)) == follower
    assert broker.group().state is GroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize(
    "protocols",
    [
        (Protocol("range", subscription("t", "u")),),
        (STICKY, RANGE),
        (RANGE, STICKY, STICKY),
    ],
    ids=["metadata", "order", "number"],
)
def test_changed_protocols_rebalance(protocols):
    """Byte for byte and in order: MemberMetadata.matches."""
    broker = Harness()
    ids = broker.stable_group(2, protocols=(RANGE, STICKY))
    assert broker.is_parked(broker.join(ids[1], protocols=protocols))
    assert broker.group().state is GroupState.PREPARING_REBALANCE


def test_in_stable_the_leader_always_rebalances_and_an_unchanged_follower_never():
    broker = Harness()
    ids = broker.stable_group(2)
    again = broker.joined(broker.join(ids[1]))
    assert (again.generation, again.members, broker.group().state) == (1, (), GroupState.STABLE)
    assert broker.is_parked(broker.join(ids[0]))
    assert broker.group().state is GroupState.PREPARING_REBALANCE
    assert broker.group().reason.startswith(f"Leader {ids[0]} re-joining group during Stable")


def test_every_accepted_join_updates_timeouts():
    broker = Harness()
    ids = broker.stable_group(2)
    broker.join(ids[0], session_timeout_ms=20_000, rebalance_timeout_ms=90_000)
    member = broker.group().members[0]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 90_000)


def test_fencing_comes_before_the_member_id():
    broker = Harness()
    broker.stable_group(group_instance_id="i")
    assert broker.joined(broker.join("other", group_instance_id="i")).error is ErrorCode.FENCED_INSTANCE_ID
    assert broker.joined(broker.join("other", group_instance_id="j")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.joined(broker.join("other")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses_members_and_counts_no_pending_ones():
    broker = Harness(group_max_size=2)
    broker.joined(broker.join(requires_known_member_id=True))
    tokens = [broker.join(), broker.join()]
    full = broker.joined(broker.join())
    assert full == JoinGroupResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.sync_all(ids)
    assert broker.joined(broker.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert broker.joined(broker.join(ids[1])).error is ErrorCode.NONE


def test_kafka_9885_a_group_that_is_too_large_loses_those_who_rejoin_last():
    """After a load, the number of parked JoinGroups decides (GroupCoordinator.acceptJoiningMember)."""
    broker = Harness()
    ids = broker.stable_group(3)
    small = broker.successor(group_max_size=2)
    assert small.group().state is GroupState.PREPARING_REBALANCE
    assert "over capacity (2)" in small.group().reason
    kept = [small.join(ids[2]), small.join(ids[0])]
    # The refused member is removed, so no member is missing any more.
    assert small.joined(small.join(ids[1])).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {small.joined(token).generation for token in kept} == {2}
    assert [member.member_id for member in small.group().members] == [ids[0], ids[2]]
