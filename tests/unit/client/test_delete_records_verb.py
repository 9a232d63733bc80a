"""The offset file of ``delete-records`` is Kafka's (DeleteRecordsCommand.parseOffsetJsonStringWithoutDedup)."""

from __future__ import annotations

import json

import click
import pytest

from tidegauge.partition import TopicPartition
from tidegauge_client.cli.delete_records import parse_offset_json


def test_a_file_names_partitions_and_the_first_offset_to_keep():
    text = (
        b'{"partitions": [{"topic": "t", "partition": 0, "offset": 10}, {"topic": "u", "partition": 1, "offset": -1}]}'
    )
    assert parse_offset_json(text) == {TopicPartition("t", 0): 10, TopicPartition("u", 1): -1}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("no json", "not a valid JSON"),
        ("[]", "not a valid JSON object"),
        ('{"version": 2, "partitions": []}', "Not supported version field value 2"),
        ('{"version": 1}', "Missing partitions field"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "does not name topic, partition and offset"),
        ('{"partitions": [{"topic": "t", "partition": "0", "offset": 1}]}', "does not name"),
        ('{"partitions": [{"topic": "t", "partition": 2147483648, "offset": 1}]}', "does not name"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": 9223372036854775808}]}', "does not name"),
    ],
)
def test_what_is_wrong_with_it_is_a_usage_error(document, words):
    with pytest.raises(click.UsageError) as caught:
        parse_offset_json(document.encode())
    assert words in caught.value.message


def test_a_partition_that_stands_twice_is_refused():
    entry = {"topic": "t", "partition": 0, "offset": 1}
    with pytest.raises(click.UsageError, match="duplicate topic partitions: t-0"):
        parse_offset_json(json.dumps({"partitions": [entry, entry]}).encode())
