"""Consumer groups on the page and in ``status -o json``."""

from __future__ import annotations

from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_client.group.consumer_protocol import encode_assignment
from tidegauge_lab.timeline.event_lines import event_line
from tidegauge_lab.timeline.words import whole_sentence
from tidegauge_lab.watch.facts import BrokerFacts
from tidegauge_lab.watch.group_view import groups_of
from tidegauge_lab.watch.view import difference

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def observed(state: str = "Stable", generation: int = 3, **more: object) -> lab_pb2.ObservedGroup:
    members = [
        lab_pb2.GroupMember(member_id="a", client_id="c", assignment=encode_assignment([T0])),
        lab_pb2.GroupMember(member_id="b", group_instance_id="i", assignment=encode_assignment([]), parked="JoinGroup"),
    ]
    said = lab_pb2.GroupDescription(
        state=state, protocol_type="consumer", protocol_name="range", members=members, generation=generation, leader="a"
    )
    for name, value in more.items():
        setattr(said, name, value)
    offsets = [lab_pb2.CommittedOffset(topic=at.topic, partition=at.partition, offset=4) for at in (T0, T1)]
    return lab_pb2.ObservedGroup(group_id="g", description=said, partition=7, offsets=offsets)


def broker(broker_id: int, *groups: lab_pb2.ObservedGroup, responds: bool = True) -> BrokerFacts:
    return BrokerFacts(broker_id, "h:1", "up", groups=groups, groups_responded=responds)


def partitions(
    *, offsets_leader: int | None = 0, leader: int | None = 0, old: bool = False
) -> dict[str, dict[str, object]]:
    replica = {"hw": 10, "old": old}
    return {
        "__consumer_offsets-7": {"leader": offsets_leader, "replicas": {}},
        "t-0": {"leader": leader, "replicas": {"0": replica}},
        "t-1": {"leader": 0, "replicas": {"0": {"hw": 4, "old": False}}},
    }


def test_who_reads_what_and_how_far_behind() -> None:
    group = groups_of([broker(0, observed())], partitions())["g"]
    assert (group["state"], group["generation"], group["coordinator"], group["lag"]) == ("Stable", 3, 0, 6)
    assert [(row["partition"], row["member"], row["lag"]) for row in group["partitions"]] == [
        ("t-0", "a", 6),
        ("t-1", None, 0),
    ]
    assert [(one["id"], one["instance"], one["leader"], one["partitions"]) for one in group["members"]] == [
        ("a", None, True, ["t-0"]),
        ("b", "i", False, []),
    ]


def test_the_lag_is_unknown_without_a_leader_that_responds() -> None:
    leaderless = groups_of([broker(0, observed())], partitions(leader=None))["g"]["partitions"][0]
    assert (leaderless["leaderless"], leaderless["end"], leaderless["lag"]) == (True, None, None)
    silent = groups_of([broker(0, observed())], partitions(old=True))["g"]["partitions"][0]
    assert (silent["leaderless"], silent["lag"]) == (False, None)


def test_a_sum_without_a_partition_whose_lag_is_unknown_is_a_part_of_the_lag() -> None:
    """If the leader of one partition is silent, the others' lag must not pass for the group's."""
    whole = groups_of([broker(0, observed())], partitions())["g"]
    assert (whole["lag"], whole["lagIsPart"]) == (6, False)
    part = groups_of([broker(0, observed())], partitions(old=True))["g"]
    assert (part["lag"], part["lagIsPart"]) == (0, True)


def test_a_partition_that_does_not_exist_is_not_one_without_a_leader() -> None:
    known = partitions()
    del known["t-0"]
    deleted = groups_of([broker(0, observed())], known)["g"]["partitions"][0]
    assert (deleted["partition"], deleted["leaderless"], deleted["lag"]) == ("t-0", False, None)


def test_a_rebalance_names_who_is_awaited() -> None:
    waiting = groups_of([broker(0, observed("PreparingRebalance"))], partitions())["g"]
    assert [(one["awaited"], one["parked"]) for one in waiting["members"]] == [("JoinGroup", ""), ("", "JoinGroup")]
    delayed = groups_of([broker(0, observed("PreparingRebalance", in_initial_delay=True))], partitions())["g"]
    assert [one["awaited"] for one in delayed["members"]] == ["", ""]


def test_the_leader_of_the_offsets_partition_counts_then_who_responds_then_the_generation() -> None:
    deposed, new = broker(1, observed(generation=9)), broker(0, observed(generation=3))
    assert groups_of([deposed, new], partitions())["g"]["coordinator"] == 0
    silent = broker(2, observed(generation=8), responds=False)
    assert groups_of([silent, new], partitions(offsets_leader=None))["g"]["coordinator"] == 0
    assert groups_of([new, deposed], partitions(offsets_leader=None))["g"]["generation"] == 9


def test_a_group_of_a_silent_coordinator_is_shown_as_last_seen() -> None:
    assert groups_of([broker(0, observed(), responds=False)], partitions())["g"]["old"] is True


def test_a_change_has_whole_groups_and_null_for_a_deleted_one() -> None:
    before = {"brokers": {}, "partitions": {}, "groups": {"g": {"state": "Stable"}, "h": {"state": "Empty"}}}
    after = {"brokers": {}, "partitions": {}, "groups": {"g": {"state": "Empty"}}}
    assert difference(before, after) == {"groups": {"g": {"state": "Empty"}, "h": None}}


def test_a_rebalance_among_the_events_has_its_group_members_and_reason() -> None:
    event = {
        "kind": "group",
        "source": "broker-1",
        "group": "g",
        "old": "Stable",
        "new": "PreparingRebalance",
        "generation": 4,
        "members": 2,
        "reason": "removing member a on heartbeat expiration",
        "cause": "session",
    }
    line = event_line(1, event)
    assert line["partition"] == "g"
    assert (
        line["text"]
        == "PreparingRebalance, generation 4 (session), 2 members: removing member a on heartbeat expiration"
    )
    assert whole_sentence(event | {"new": "Stable"}) == "Stable, generation 4 (session)"
