"""The data source's options: Spark's names, precedence and rejections (KafkaSourceProvider)."""

from __future__ import annotations

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.offsets import EARLIEST, LATEST
from tidegauge_spark.options import Columns, OffsetLimit, Options, Subscription, ignored_options, parse_options


def parse(*, streaming: bool = True, **more: str) -> Options:
    given = {"kafka.bootstrap.servers": "127.0.0.1:19092, 127.0.0.1:19093", "subscribe": "orders"}
    given.update({name.replace("__", "."): value for name, value in more.items()})
    return parse_options({name: value for name, value in given.items() if value != ""}, streaming=streaming)


def test_defaults_are_sparks() -> None:
    options = parse()
    assert options.connection.bootstrap_servers == ("127.0.0.1:19092", "127.0.0.1:19093")
    assert options.subscription == Subscription(topics=("orders",))
    assert options.starting == OffsetLimit(everywhere=LATEST)
    assert parse(streaming=False).starting == OffsetLimit(everywhere=EARLIEST)
    assert parse(streaming=False).ending == OffsetLimit(everywhere=LATEST)
    assert options.fail_on_data_loss
    assert options.max_offsets_per_trigger is None
    assert options.columns == Columns(headers=False, leader_epoch=False)


def test_the_isolation_level_is_that_of_kafkas_consumer() -> None:
    """ConsumerConfig: read_uncommitted by default; any other text is refused in ConfigDef's words."""
    assert not parse().connection.reads_committed
    assert not parse(kafka__isolation__level="read_uncommitted").connection.reads_committed
    assert parse(kafka__isolation__level="read_committed").connection.reads_committed
    with pytest.raises(TidegaugeError, match=r"Invalid value READ_COMMITTED for configuration isolation\.level"):
        parse(kafka__isolation__level="READ_COMMITTED")


def test_names_have_no_case_and_bootstrap_servers_needs_no_prefix() -> None:
    options = parse_options(
        {"bootstrap.servers": "h:1", "SUBSCRIBE": "a, b,a", "maxoffsetspertrigger": "7", "FailOnDataLoss": "FALSE"},
        streaming=True,
    )
    assert options.connection.bootstrap_servers == ("h:1",)
    assert options.subscription.topics == ("a", "b")
    assert options.max_offsets_per_trigger == 7
    assert not options.fail_on_data_loss


def test_precedence_timestamp_then_by_timestamp_then_offsets() -> None:
    zero = TopicPartition("orders", 0)
    by_time = '{"orders":{"0":1000}}'
    both = parse(startingTimestamp="5", startingOffsetsByTimestamp=by_time, startingOffsets="earliest")
    assert both.starting == OffsetLimit(timestamp_ms=5)
    by = parse(startingOffsetsByTimestamp=by_time, startingOffsets="earliest")
    assert by.starting == OffsetLimit(timestamps_ms={zero: 1000})
    assert parse(startingOffsets='{"orders":{"0":-1}}').starting == OffsetLimit(offsets={zero: -1})
    assert parse(startingOffsets=" Earliest ").starting == OffsetLimit(everywhere=EARLIEST)


@pytest.mark.parametrize(
    ("more", "streaming", "sentence"),
    [
        ({"kafka__bootstrap__servers": ""}, True, "must be specified"),
        ({"kafka__bootstrap__servers": "localhost"}, True, "Invalid url in bootstrap.servers: localhost"),
        ({"kafka__bootstrap__servers": "h:70000"}, True, "Invalid url"),
        ({"subscribe": ""}, True, "One of the following options must be specified for Kafka source"),
        (
            {"assign": '{"orders":[0]}'},
            True,
            "Only one of the following options can be specified for Kafka source: .* Given are subscribe, assign",
        ),
        ({"subscribe": "no/slash"}, True, "illegal|contains one or more characters"),
        ({"subscribe": "", "subscribePattern": "("}, True, "not a regular expression"),
        ({"startingOffsets": "latest"}, False, "starting offset can't be latest for batch queries on Kafka"),
        ({"subscribe": " ,"}, True, "No topics to subscribe to as specified value for option 'subscribe' is ' ,'"),
        ({"subscribe": "", "subscribePattern": " "}, True, "Pattern to subscribe is empty"),
        ({"subscribe": "", "assign": " "}, True, "No topicpartitions to assign"),
        ({"startingTimestamp": "noon"}, True, "Expected a single long value, got noon"),
        ({"startingTimestamp": "noon", "startingOffsets": "earliest"}, True, "Expected a single long value"),
        (
            {"startingOffsets": '{"orders":{"0":-1}}'},
            False,
            "startingOffsets for orders-0 can't be latest for batch queries on Kafka",
        ),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":5,"1":-1}}'},
            False,
            "same topic-partitions. Topic-partitions for start offset: orders-0, .*: orders-0, orders-1",
        ),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            False,
            "The specified start offset 5 is greater than the end offset 4 for topic orders partition 0",
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"0":5}}', "endingOffsetsByTimestamp": '{"orders":{"0":4}}'},
            False,
            "The specified start timestamp 5 is greater than the end timestamp 4",
        ),
        ({"endingOffsets": "earliest"}, False, "ending offset can't be earliest for batch queries on Kafka"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, False, "ending offset for orders-0 can't be earliest"),
        ({"minPartitions": "0"}, False, "minPartitions must be a positive whole number"),
        ({"minPartitions": "some"}, True, "minPartitions must be a positive whole number, not 'some'"),
        ({"endingOffsets": "latest"}, True, "ending offset not valid in streaming queries"),
        ({"maxOffsetsPerTrigger": "0"}, True, "maxOffsetsPerTrigger must be a positive whole number"),
        ({"failOnDataLoss": "no"}, True, "must be true or false"),
        ({"kafka__enable__auto__commit": "true"}, True, "Kafka option 'enable.auto.commit' is not supported"),
        ({"endingTimestamp": "1"}, True, "ending timestamp not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": '{"orders":{"0":1}}'}, True, "ending timestamp not valid in streaming queries"),
        ({"kafka__auto__offset__reset": "earliest"}, True, "Instead set the source option 'startingOffsets'"),
        ({"kafka__key__deserializer": "x"}, True, "Use DataFrame operations to explicitly deserialize the keys"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, True, "is higher than the maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, True, "must be a time such as"),
        ({"maxRecordsPerPartition": "-1"}, True, "maxRecordsPerPartition must be a positive whole number, not '-1'"),
        ({"startingOffsetsByTimestampStrategy": "x"}, True, "must be error or latest"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(more: dict[str, str], streaming: bool, sentence: str) -> None:
    with pytest.raises(TidegaugeError, match=sentence):
        parse(streaming=streaming, **more)


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("15m", 900_000), ("500ms", 500), ("2H", 7_200_000), ("30s", 30_000), ("250", 250)]
)
def test_max_trigger_delay_is_a_duration_as_sparks(text: str, expected_ms: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == expected_ms
    assert parse().max_trigger_delay_ms == 900_000


def test_what_is_not_heeded_is_said() -> None:
    """No consumer groups here; and limits of a trigger mean nothing to a batch query (as in Spark)."""
    given = {"kafka.group.id": "g", "MaxOffsetsPerTrigger": "5"}
    assert ignored_options(given, streaming=True) == [
        "Option 'kafka.group.id' is ignored: this source is no member of a consumer group"
    ]
    assert "Option 'maxoffsetspertrigger' is ignored in batch queries" in ignored_options(given, streaming=False)


def test_a_start_before_a_latest_end_is_no_mistake() -> None:
    """-1 and -2 stand for offsets that are not known yet: they are not compared."""
    options = parse(streaming=False, startingOffsets='{"orders":{"0":5}}', endingOffsets='{"orders":{"0":-1}}')
    assert options.ending.offsets == {TopicPartition("orders", 0): LATEST}
    parse(streaming=False, startingOffsets='{"orders":{"0":5}}', endingOffsetsByTimestamp='{"orders":{"1":4}}')


def test_credentials_have_kafkas_names_are_never_shown_and_need_tls() -> None:
    of_user = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "of-alice"}
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **of_user}
    read = parse_options({**given, "kafka.security.protocol": "SASL_SSL"}, streaming=False)
    assert dict(read.connection.security)["sasl.jaas.config"] == "of-alice"
    assert "of-alice" not in repr(read)
    with pytest.raises(TidegaugeError, match="under TLS alone; write SASL_SSL"):
        parse_options({**given, "kafka.security.protocol": "SASL_PLAINTEXT"}, streaming=False)
