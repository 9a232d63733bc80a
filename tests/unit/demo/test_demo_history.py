"""The leaderless gap runs from the kill to the first broker that notes a higher epoch of its own."""

from __future__ import annotations

from tidegauge.partition import TopicPartition
from tidegauge_client.metadata import PartitionInfo, TopicInfo
from tidegauge_lab.demo.history import Gap, gaps, history_lines, leaderships
from tidegauge_lab.demo.story import election_problems


def leads(time_ms: int, broker: int, partition: int, epoch: int) -> dict:
    return {
        "time_ms": time_ms,
        "source": f"broker-{broker}",
        "kind": "role",
        "role": "leader",
        "topic": "flights",
        "partition": partition,
        "leader_epoch": epoch,
    }


EVENTS = [
    leads(100, 0, 0, 0),
    leads(110, 1, 1, 0),
    {"time_ms": 5_000, "source": "lab", "kind": "fault", "action": "kill", "broker": 0},
    leads(9_200, 2, 0, 1),
    leads(9_900, 1, 1, 1),
]


def test_only_partitions_of_the_victim_have_a_gap():
    assert gaps(EVENTS, "flights") == [Gap(TopicPartition("flights", 0), 0, 2, 4_200)]


def test_a_stopped_broker_is_no_killed_one():
    events = [event | ({"action": "stop"} if event["kind"] == "fault" else {}) for event in EVENTS]
    assert gaps(events, "flights") == []


def test_the_history_names_all_leaders_in_order():
    lines = history_lines(leaderships(EVENTS, "flights"), began_ms=100)
    assert lines[0] == "flights-0: broker 0 (epoch 0, +0.0 s) -> broker 2 (epoch 1, +9.1 s)"


def topic(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> TopicInfo:
    return TopicInfo("flights", "id", {0: PartitionInfo("flights", 0, leader, 1, replicas, isr)})


def test_the_first_of_the_assignment_in_the_isr_must_lead():
    """The controller elects from the ISR in the order of the assignment, not of the ISR."""
    before = topic(0, (0, 1, 2), (0, 2, 1))
    assert election_problems(before, topic(1, (0, 1, 2), (2, 1)), victim=0) == []
    assert election_problems(before, topic(2, (0, 1, 2), (2, 1)), victim=0) != []
    assert election_problems(before, topic(1, (0, 1, 2), (0, 2, 1)), victim=0) != []
