"""The sink's options and columns: Spark's names and sentences (KafkaWriter.validateQuery)."""

from __future__ import annotations

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge_spark.sink import rows_of
from tidegauge_spark.write_options import HEADERS_TYPE, WriteOptions, check_columns, parse_write_options


def parse(*, streaming: bool = True, **more: str) -> WriteOptions:
    given = {"kafka.bootstrap.servers": "127.0.0.1:19092"} | {
        name.replace("__", "."): value for name, value in more.items()
    }
    return parse_write_options({name: value for name, value in given.items() if value}, streaming=streaming)


def test_a_stream_is_idempotent_and_a_batch_is_not() -> None:
    assert parse().is_idempotent
    assert not parse(streaming=False).is_idempotent
    assert parse(idempotent="true", streaming=False).is_idempotent
    assert dict(parse().producer)["acks"] == "all"


def test_producer_settings_have_kafkas_names() -> None:
    options = parse(kafka__linger__ms="5", kafka__acks="1", Idempotent="false", kafka__compression__type="LZ4")
    assert dict(options.producer) == {"acks": 1, "linger_ms": 5, "compression": "lz4"}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"kafka__bootstrap__servers": ""}, "must be specified for a tidegauge sink"),
        ({"topic": "no/slash"}, "illegal|contains one or more characters"),
        ({"kafka__acks": "2"}, "must be all, 1 or 0"),
        ({"kafka__acks": "1"}, "idempotent=true needs kafka.acks=all"),
        ({"kafka__key__serializer": "x"}, "kafka.key.serializer"),
        ({"kafka__transactional__id": "x"}, "no transactions"),
        ({"kafka__linger__ms": "soon"}, "whole number"),
        ({"idempotentName": "a/b"}, "idempotentName is 'a/b'"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(TidegaugeError, match=sentence):
        parse(**more)


@pytest.mark.parametrize(
    ("types", "topic", "sentence"),
    [
        ({"value": "string"}, "", "topic option required when no 'topic' attribute is present"),
        ({"key": "string"}, "t", "Required attribute 'value' not found"),
        ({"value": "int"}, "t", "value attribute unsupported type int. value must be a\\(n\\) string or binary"),
        ({"value": "string", "topic": "binary"}, "", "topic must be a\\(n\\) string"),
        ({"value": "string", "partition": "bigint"}, "t", "partition must be a\\(n\\) int"),
        ({"value": "string", "headers": "map<string,binary>"}, "t", "headers must be a\\(n\\) array"),
    ],
)
def test_bad_columns_are_refused_with_a_sentence(types: dict[str, str], topic: str, sentence: str) -> None:
    with pytest.raises(TidegaugeError, match=sentence):
        check_columns(types, topic)


def test_good_columns() -> None:
    check_columns({"value": "binary", "anything": "double"}, "t")
    check_columns({"value": "string", "key": "binary", "topic": "string", "headers": HEADERS_TYPE}, "")


def test_rows() -> None:
    """Text becomes UTF-8; option topic goes before the column; what is missing is null."""
    columns = {
        "value": ["ä", None],
        "key": [b"k", None],
        "topic": ["a", "b"],
        "partition": [2, None],
        "headers": [[{"key": "h", "value": b"1"}], None],
    }
    first, second = rows_of(columns, "", 2)
    assert (first.content, first.partition) == (("a", b"k", "ä".encode(), (("h", b"1"),)), 2)
    assert (second.content, second.partition) == (("b", None, None, ()), None)
    assert [row.content.topic for row in rows_of(columns, "fixed", 2)] == ["fixed", "fixed"]
    with pytest.raises(TidegaugeError, match="contains a null topic"):
        list(rows_of({"value": ["x"], "topic": [None]}, "", 1))
