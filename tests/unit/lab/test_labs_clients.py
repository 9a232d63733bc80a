"""Checks of the labs about groups, transactions and addresses: what half-done work lacks."""

from __future__ import annotations

from dataclasses import replace

from tests.lab_stories import ORDERS, Story, facts, said

from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Evidence, Group, Member, StoredRecord
from tidegauge_lab.scenario.facts import Replica

OFFSETS = TopicPartition("__consumer_offsets", 0)
SHIPPED = TopicPartition("shipped", 0)

# 10. One replica of the offsets


def without_coordinator() -> Story:
    story = Story(OFFSETS).elected(1, 0, [1]).note("broker-1", "coordinator", state="active").killed(1)
    return (
        story.elected(-1, 1, [1], "offline")
        .elected(1, 2, [1], "offline")
        .note("broker-1", "coordinator", state="active")
    )


def test_a_group_that_goes_on_at_another_coordinator_passes():
    story = without_coordinator().killed(1).elected(2, 3, [2, 0], "offline")
    story.note("broker-2", "coordinator", state="active").leo(2, 9, 10, "GroupCommit")
    evidence = story.evidence(
        partitions={OFFSETS: facts(2, {2: 10}, {2: 10})}, groups={"shop": Group("Empty", 3, committed={ORDERS: 4})}
    )
    assert said("offsets-topic", evidence) == (
        True,
        "Group shop went on there: it has committed offset 4 of orders-0",
    )


def test_one_replica_and_a_coordinator_that_merely_came_back_do_not_pass():
    one = replace(facts(1, {1: 9}, {1: 9}, isr=[1]), assigned=(1,))
    assert said("offsets-topic", without_coordinator().evidence(partitions={OFFSETS: one})) == (
        False,
        "__consumer_offsets-0 still has one replica, on broker 1",
    )
    three = facts(1, {1: 9}, {1: 9})
    assert said("offsets-topic", without_coordinator().evidence(partitions={OFFSETS: three})) == (
        False,
        "No coordinator has died since",
    )


# 11. Rebalances


def storm() -> Story:
    story = Story()
    for _ in range(2):
        story.group("storm", "PreparingRebalance").group("storm", "Stable").group("storm", "Empty", "LeaveGroup")
    return story


CALM = Group("Stable", 1, (Member("rdkafka", "till-1"),), {ORDERS: 2})


def test_a_storm_that_commits_nothing_and_a_static_member_that_restarts_pass():
    story = storm().group("calm", "PreparingRebalance").group("calm", "Stable")
    assert said("rebalance-storm", story.evidence(groups={"calm": CALM}))[0]


def test_a_static_member_that_came_too_late_and_one_that_ran_once_do_not_pass():
    story = storm().group("calm", "PreparingRebalance").group("calm", "Stable")
    once = replace(CALM, committed={ORDERS: 1})
    assert said("rebalance-storm", story.evidence(groups={"calm": once})) == (
        False,
        "Member till-1 of group calm has committed offset 1",
    )
    late = story.group("calm", "PreparingRebalance").evidence(groups={"calm": CALM})
    assert said("rebalance-storm", late) == (False, "Group calm rebalanced 2 times")


def test_a_consumer_that_committed_in_time_makes_no_storm():
    groups = {"storm": Group("Empty", 2, committed={ORDERS: 1}), "calm": CALM}
    assert said("rebalance-storm", storm().evidence(groups=groups)) == (
        False,
        "Group storm has committed offset 1, so a commit came in time",
    )


# 12. A crash before the commit


def shop(shipped: list[tuple[str, str]], at_least: int, at_most: int) -> Evidence:
    orders = tuple(StoredRecord(at, None, value) for at, value in enumerate(["one", "two", "three"]))
    done = tuple(StoredRecord(at, group, value) for at, (group, value) in enumerate(shipped))
    return Evidence(
        partitions={ORDERS: facts(1, {1: 3}, {1: 3}), SHIPPED: facts(1, {1: 9}, {1: 9})},
        records={(ORDERS, 1): orders, (SHIPPED, 1): done},
        groups={
            "at-least-once": Group("Empty", 2, committed={ORDERS: at_least}),
            "at-most-once": Group("Empty", 2, committed={ORDERS: at_most}),
        },
    )


LEAST, MOST = "at-least-once", "at-most-once"


def test_one_record_twice_and_one_never_passes():
    assert said("crash-before-commit", shop([(LEAST, "one"), (LEAST, "two"), (MOST, "one"), (LEAST, "two")], 2, 2)) == (
        True,
        "It has committed offset 2, and each record before that was processed",
    )


def test_groups_that_did_not_crash_do_not_pass():
    none_skipped = shop([(LEAST, "one"), (LEAST, "two"), (MOST, "one"), (MOST, "two")], 2, 2)
    assert (
        said("crash-before-commit", none_skipped)[1]
        == "Group at-most-once has processed all that it has committed: 2 records"
    )
    none_twice = shop([(LEAST, "one"), (LEAST, "two"), (MOST, "one")], 2, 2)
    assert (
        said("crash-before-commit", none_twice)[1] == "Group at-least-once has processed 2 records, none of them twice"
    )


# 13. Fencing


def test_a_newer_producer_that_aborted_and_committed_passes():
    story = Story().transaction("Ongoing", 0).transaction("PrepareAbort", 1).transaction("CompleteAbort", 1)
    story.transaction("Ongoing", 2).transaction("CompleteCommit", 2)
    assert said("producer-fencing", story.evidence())[0]


def test_a_producer_that_aborts_by_itself_and_a_newer_one_that_commits_nothing_do_not_pass():
    own = Story().transaction("Ongoing", 0).transaction("PrepareAbort", 0)
    assert said("producer-fencing", own.evidence()) == (False, "It aborted its transaction itself")
    idle = Story().transaction("Ongoing", 0).transaction("PrepareAbort", 1).transaction("CompleteAbort", 1)
    assert said("producer-fencing", idle.evidence()) == (False, "The newer producer has not committed anything")


# 14. The last stable offset


def held() -> Story:
    return Story().note("broker-1", "last_stable_offset", old=1, new=1, high_watermark=2).leo(1, 2, 4)


def at_lso(stable: int) -> dict[TopicPartition, object]:
    now = facts(1, {1: 5}, {1: 5})
    return {ORDERS: replace(now, replicas={1: Replica("leader", 0, 5, 5, last_stable_offset=stable)})}


def test_readers_that_were_held_and_let_go_pass():
    story = held().transaction("CompleteAbort", 1)
    assert said("last-stable-offset", story.evidence(partitions=at_lso(5)))[0]


def test_readers_that_are_still_held_do_not_pass():
    passed, text = said("last-stable-offset", held().evidence(partitions=at_lso(1)))
    assert not passed
    assert text.startswith("The last stable offset is still 1, and the high watermark 5")


def test_without_a_record_behind_it_no_other_reader_was_held():
    story = Story().note("broker-1", "last_stable_offset", old=1, new=1, high_watermark=2)
    assert said("last-stable-offset", story.evidence()) == (False, "No record was written behind it")


# 15. Advertised addresses

THERE = {0: "127.0.0.1:9092", 1: "127.0.0.1:9093"}
RESTARTED = [{"kind": "broker", "state": "starting", "source": f"broker-{one}"} for one in (0, 1, 0, 1)]


def addressed(reachable: frozenset[int], records: int) -> Evidence:
    stored = tuple(StoredRecord(at, None, "hello") for at in range(records))
    return Evidence(
        events=RESTARTED,
        processes={0: "up", 1: "up"},
        partitions={ORDERS: facts(1, {1: records}, {1: records})},
        records={(ORDERS, 1): stored},
        kafka_addresses=THERE,
        kafka_reachable=reachable,
    )


def test_brokers_that_are_where_they_send_clients_and_a_record_pass():
    assert said("advertised-listeners", addressed(frozenset({0, 1}), 1))[0]


def test_an_address_without_the_cluster_and_a_topic_without_a_record_do_not_pass():
    passed, text = said("advertised-listeners", addressed(frozenset({1}), 1))
    assert not passed
    assert "sent to broker 0 at 127.0.0.1:9092, where the cluster does not respond" in text
    assert said("advertised-listeners", addressed(frozenset({0, 1}), 0)) == (False, "orders-0 is empty")
