"""A group's own settings, and from when on they count for its members (GroupConfigManager, KIP-848)."""

import pytest
from tests.unit.coordinator.consumer_groups.consumer_harness import T4, ConsumerHarness, numbers

from tidegauge_broker.coordinator.events import GroupDefaultsChanged, GroupSettingsChanged
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes


@pytest.fixture
def broker() -> ConsumerHarness:
    """Its own session timeout is 12 s, its heartbeat interval 3 s."""
    return ConsumerHarness()


def test_a_response_has_the_heartbeat_interval_of_the_group_and_of_no_other(broker):
    """GMM.consumerGroupHeartbeatIntervalMs: clients cannot choose it, and take it from each response."""
    broker.event(GroupSettingsChanged("g", ConsumerGroupTimes(60_000, 9_000, 0)))
    assert broker.enter("a", "t4").heartbeat_interval_ms == 9_000
    assert broker.enter("a", "t4", group="other").heartbeat_interval_ms == 3_000
    broker.event(GroupSettingsChanged("g", None))
    assert broker.beat("a", 2).heartbeat_interval_ms == 3_000, "the broker's, as soon as the group has none of its own"


def test_a_session_lasts_as_long_as_the_group_says_from_the_next_heartbeat_on(broker):
    """GMM.consumerGroupSessionTimeoutMs is read whenever a session begins again."""
    broker.enter("a", "t4")
    broker.enter("b", "t5")
    broker.event(GroupSettingsChanged("g", ConsumerGroupTimes(60_000, 3_000, 0)))
    broker.beat("a", 2)
    broker.after(12_100)
    assert [one.member_id for one in broker.described().members] == ["a"], "b has a session of before the change"
    broker.after(47_800)
    assert len(broker.described().members) == 1
    broker.after(200)
    assert broker.state() == "Empty"


def test_the_assignment_interval_is_the_groups(broker):
    """KIP-848 in Kafka 4.3: no second target within consumer.assignment.interval.ms."""
    broker.event(GroupSettingsChanged("g", ConsumerGroupTimes(12_000, 3_000, 5_000)))
    broker.enter("a", "t4")
    broker.after(4_000)
    broker.enter("b", "t4")
    assert broker.state() == "Assigning"
    broker.after(1_000)
    assert numbers(broker.beat("a", 2).assignment) == {T4: [0, 1]}


def test_settings_outlive_the_group_and_wait_for_it(broker):
    """A group need not exist: its next incarnation has the same settings."""
    broker.event(GroupSettingsChanged("g", ConsumerGroupTimes(12_000, 4_000, 0)))
    broker.enter("a", "t4")
    broker.beat("a", -1)
    assert broker.enter("b", "t4").heartbeat_interval_ms == 4_000


def test_a_changed_interval_of_the_broker_counts_for_groups_without_their_own(broker):
    """GroupCoordinatorConfig.RECONFIGURABLE_CONFIGS: a broker's assignment interval changes while it runs."""
    broker.event(GroupSettingsChanged("own", ConsumerGroupTimes(12_000, 3_000, 0)))
    changed = ConsumerGroupTimes(12_000, 3_000, 5_000)
    broker.event(GroupDefaultsChanged(changed, changed))
    for group in ("g", "own"):
        broker.enter("a", "t4", group=group)
    broker.after(4_000)
    for group in ("g", "own"):
        broker.enter("b", "t4", group=group)
    assert (broker.state(), broker.state("own")) == ("Assigning", "Reconciling")
    broker.after(1_000)
    assert numbers(broker.beat("a", 2).assignment) == {T4: [0, 1]}
