"""Names of partitions and topics (Kafka's Topic.validate), and the event log's reader."""

import json

import pytest

from tidegauge import event_log
from tidegauge.partition import TopicPartition, partition_named, topic_name_problem, topic_names_collide


def test_a_partition_is_named_topic_hyphen_index():
    assert TopicPartition.parse("my-topic-12") == TopicPartition("my-topic", 12)
    assert str(TopicPartition("my-topic", 12)) == "my-topic-12"


def test_a_name_that_is_asked_for_again_is_the_same_object():
    assert partition_named("orders", 1) is partition_named("orders", 1) == TopicPartition("orders", 1)


@pytest.mark.parametrize(
    "text",
    ["", "orders", "-1", "orders-", "orders-x", "orders--", "orders-²", "orders-2147483648", "o-" + "9" * 5000],
)
def test_what_is_no_partition(text):
    with pytest.raises(ValueError, match="TOPIC-PARTITION"):
        TopicPartition.parse(text)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249])
def test_legal_topic_names(name):
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty"),
        (".", "'.' is not allowed"),
        ("..", "not allowed"),
        ("x" * 250, "longer than"),
        ("a b", "other than"),
        ("a\n", "other than"),
        ("ä", "other than"),
    ],
)
def test_illegal_topic_names_are_reported_in_kafkas_words(name, words):
    problem = topic_name_problem(name)
    assert problem is not None
    assert words in problem


def test_period_and_underscore_collide():
    assert topic_names_collide("a.b", "a_b")
    assert not topic_names_collide("a.b", "a-b")


def test_events_are_read_across_rotation_and_an_incomplete_last_line(tmp_path):
    path = tmp_path / event_log.file_name("broker-0")
    path.with_name(path.name + ".1").write_text(json.dumps({"time_ms": 1, "source": "broker-0", "sequence": 1}) + "\n")
    path.write_text(json.dumps({"time_ms": 3, "source": "broker-0", "sequence": 2}) + '\n{"time_ms": 4, "sou')
    other = tmp_path / event_log.file_name("lab")
    other.write_text(json.dumps({"time_ms": 2, "source": "lab", "sequence": 1}) + "\n")
    assert [event["time_ms"] for event in event_log.read_directory(tmp_path)] == [1, 2, 3]
