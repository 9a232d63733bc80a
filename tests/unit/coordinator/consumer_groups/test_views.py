"""The Lab service's view of a consumer group, and the client's reading of it: which member keeps which partition."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordinator.consumer_groups.consumer_harness import T4, ConsumerHarness, owned

from tidegauge.partition import TopicPartition
from tidegauge_broker.server.lab.observed_groups import to_observed_group
from tidegauge_client.consumer_group_explanation import (
    RULE_AWAITED,
    RULE_AWAY,
    RULE_BEHIND,
    RULE_IDLE,
    RULE_REVOKING,
    consumer_group_state,
)
from tidegauge_client.group_descriptions import GroupDescription, seen_group
from tidegauge_lab.group_conditions import GroupCondition


@pytest.fixture
def broker() -> ConsumerHarness:
    """Without an assignment interval; its session timeout is 12 s, members have 8 s to give partitions up."""
    return ConsumerHarness()


def seen(broker: ConsumerHarness, group: str = "g") -> GroupDescription:
    """The group as a client with the Lab service has it."""
    runner: Any = SimpleNamespace(
        coordinator=broker.coordinator, time_ms=broker.now_ms, wall_ms=broker.now_ms, partitions=1
    )
    return seen_group(to_observed_group(runner, group), 1)


def t4(*partitions: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t4", one) for one in partitions)


def sentences(broker: ConsumerHarness) -> dict[str, Any]:
    """The sentence about each member."""
    return {one.subject: one for one in consumer_group_state(seen(broker)) if one.subject is not None}


def test_a_member_that_has_not_given_up_a_partition_is_named_since_when_and_until_when(broker):
    """GMM.scheduleConsumerGroupRebalanceTimeout: it has its rebalance timeout, and is then removed."""
    broker.enter("a", "t4", client_id="slow")
    broker.enter("b", "t4")
    broker.beat("a", 2, client_id="slow")
    broker.after(3_000)
    group = seen(broker)
    [a, b] = group.members
    assert (group.state, group.generation, group.assignment_epoch, group.protocol_name) == (
        "Reconciling",
        3,
        3,
        "uniform",
    )
    assert (a.assignment, a.reconciliation.revoking, a.reconciliation.target) == (t4(0, 1, 2, 3), t4(2, 3), t4(0, 1))
    assert (a.reconciliation.state, a.reconciliation.epoch) == ("UNREVOKED_PARTITIONS", 2)
    assert (a.reconciliation.revocation_age_ms, a.reconciliation.revocation_left_ms) == (3_000, 5_000)
    assert (b.assignment, b.reconciliation.awaited) == ((), ((t4(2)[0], "a"), (t4(3)[0], "a")))
    said = sentences(broker)
    assert said["a"].text == (
        "Member a (slow) has not given up t4-2, t4-3 for 3.0 s; in another 5.0 s it is removed from the group. b waits "
        "for them."
    )
    assert (said["a"].rule, said["a"].wait_ms) == (RULE_REVOKING, 5_000)
    assert said["b"].text == "Member b (c) is in epoch 3 and waits for t4-2, which a has, t4-3, which a has."
    assert (said["b"].rule, said["b"].wait_ms) == (RULE_AWAITED, 5_000)
    broker.after(5_001)
    assert "a" not in sentences(broker), "it was removed, as the sentence said"


def test_a_member_that_was_not_heard_of_since_the_target_changed_is_behind(broker):
    """A member changes by its own heartbeat alone, and expires without one."""
    broker.enter("a", "t4")
    broker.after(2_000)
    broker.enter("b", "t4")
    said = sentences(broker)
    assert said["a"].text == (
        "Member a (c) is in epoch 2, and has not taken up the target of epoch 3; its session lasts another 10 s."
    )
    assert said["a"].rule == RULE_BEHIND


def test_a_member_without_partitions_and_one_that_is_away_are_named(broker):
    """Five members of four partitions; a static member's partitions stay reserved (epoch -2)."""
    broker.enter("s", "t4", instance_id="i")
    for number in range(4):
        broker.enter(f"m{number}", "t4")
    ids = ["s", "m0", "m1", "m2", "m3"]
    for _ in range(3):
        for name in ids:
            fields = {"instance_id": "i"} if name == "s" else {}
            member = next(one for one in broker.described().members if one.member_id == name)
            target = next((one.partitions for one in member.target), ())
            broker.beat(name, member.member_epoch, owned=owned(T4, *target) if target else (), **fields)
    assert broker.state() == "Stable"
    [idle] = sentences(broker).values()
    assert (idle.subject, idle.rule) == ("m3", RULE_IDLE)
    broker.beat("s", -2, instance_id="i")
    said = sentences(broker)["s"]
    assert said.rule == RULE_AWAY
    assert re.fullmatch(
        r"Member s \(c, static i\) has left for a while; t4-\d stays reserved for it; its session lasts another 12 s\.",
        said.text,
    )


def test_a_condition_looks_at_epochs_of_members(broker):
    """``wait_group`` with member epochs: these or later ones; exactly these for ``expect_group``."""
    broker.enter("a", "t4", client_id="first")
    broker.enter("b", "t4", client_id="second")
    group = seen(broker)
    assert GroupCondition("Reconciling", generation=3, epochs={"first": 2, "second": 3}).problem(group) is None
    assert GroupCondition(epochs={"first": 3}).problem(group) == "first has member epoch 2"
    assert GroupCondition(epochs={"second": 2}, is_exact=True).problem(group) == "second has member epoch 3"
    assert GroupCondition(epochs={"nobody": 1}).problem(group) == "group g has no member nobody"
    assert GroupCondition("Assigning").problem(group) == "group g is Reconciling"
    assert GroupCondition(epochs={"first": 2}).text == "member epochs first:2"


def test_groups_of_both_protocols_are_listed(broker):
    broker.enter("a", "t4")
    broker.enter("a", "t4", group="another")
    assert broker.coordinator.group_ids() == ["another", "g"]
    assert seen(broker, "nobody").state == "Dead"
