"""The table of settings: Kafka's names and defaults, errors with the key and the range."""

import pytest

from tidegauge import settings
from tidegauge.errors import ErrorCode, TidegaugeError


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("replica.lag.time.max.ms", 30000),
        ("replica.fetch.wait.max.ms", 500),
        ("replica.high.watermark.checkpoint.interval.ms", 5000),
        ("zookeeper.session.timeout.ms", 18000),
        ("unclean.leader.election.enable", False),
        ("auto.leader.rebalance.enable", True),
        ("leader.imbalance.check.interval.seconds", 300),
        ("leader.imbalance.per.broker.percentage", 10),
        ("min.insync.replicas", 1),
        ("message.max.bytes", 1048588),
        ("log.segment.bytes", 1073741824),
    ],
)
def test_defaults_are_those_of_kafka_3_9(name, default):
    assert settings.BROKER_SETTINGS[name].default == default


def test_every_default_is_legal():
    for table in (settings.BROKER_SETTINGS, settings.TOPIC_SETTINGS):
        for setting in table.values():
            if setting.default is not None:
                assert setting.parse(setting.text_of(setting.default)) == setting.default, setting.name


def test_every_topic_setting_has_its_broker_setting_with_the_same_default():
    """A broker setting may take its value from another one (log.roll.ms from log.roll.hours), and may bound less."""
    brokers = settings.Values(settings.BROKER_SETTINGS, {})
    alone = {name for name, setting in settings.TOPIC_SETTINGS.items() if setting.broker_key is None}
    throttled = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
    tiered = {"remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable"}
    assert alone == throttled | tiered
    for setting in settings.TOPIC_SETTINGS.values():
        if setting.broker_key is None:
            continue
        broker = settings.BROKER_SETTINGS[setting.broker_key]
        assert brokers[broker.name] == setting.default, setting.name
        assert (broker.kind, broker.choices) == (setting.kind, setting.choices)
        assert broker.minimum is None or setting.minimum is None or broker.minimum <= setting.minimum


TOPIC_SETTINGS_OF_3_9_1 = """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
    index.interval.bytes leader.replication.throttled.replicas local.retention.bytes local.retention.ms
    max.compaction.lag.ms max.message.bytes message.downconversion.enable message.format.version
    message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.difference.max.ms
    message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
    remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
    segment.bytes segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable
"""


def test_topics_have_the_settings_of_kafka_3_9_1():
    """LogConfig.configNames: kafka-configs --describe --all shows each of them."""
    assert sorted(settings.TOPIC_SETTINGS) == TOPIC_SETTINGS_OF_3_9_1.split()


def test_tiered_storage_is_refused_as_by_a_broker_without_it():
    """LogConfig.validateRemoteStorageOnlyIfSystemEnabled."""
    with pytest.raises(TidegaugeError, match="Tiered Storage functionality is disabled in the broker") as error:
        settings.parse_topic_settings({"remote.storage.enable": "true"})
    assert error.value.code is ErrorCode.INVALID_CONFIG
    assert not settings.parse_topic_settings({"remote.storage.enable": "false"}).flag("remote.storage.enable")


def test_a_bad_value_is_refused_with_key_and_range():
    sentence = r"replica\.lag\.time\.max\.ms: Not a number of type LONG; it must be a whole number from 1 to"
    with pytest.raises(TidegaugeError, match=sentence) as error:
        settings.parse_broker_settings({"replica.lag.time.max.ms": "soon"})
    assert error.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(TidegaugeError, match="it must be high-watermark or kip-101 or kip-279 or kip-320"):
        settings.parse_broker_settings({"replica.truncation.rule": "none"})


@pytest.mark.parametrize("text", ["*", "0:1", "0:1,12:3", ""])
def test_throttled_replicas_are_partition_and_broker_or_all(text):
    """ThrottledReplicaListValidator."""
    values = settings.parse_topic_settings({"leader.replication.throttled.replicas": text})
    assert values["leader.replication.throttled.replicas"] == tuple(text.split(",") if text else ())


@pytest.mark.parametrize("text", ["0", "0:1,x", "a:b", "0:1:2", "**"])
def test_other_throttled_replicas_are_refused_in_kafkas_words(text):
    sentence = r"must be the literal '\*' or a list of replicas in the following format: \[partitionId\]:\[brokerId\]"
    with pytest.raises(TidegaugeError, match=sentence):
        settings.parse_topic_settings({"follower.replication.throttled.replicas": text})


@pytest.mark.parametrize("text", ["3.9", "3.9-IV0"])
def test_brokers_speak_the_version_of_3_9(text):
    """MetadataVersion.fromVersionString takes both."""
    values, _ = settings.parse_broker_settings({"inter.broker.protocol.version": text})
    assert values.text("inter.broker.protocol.version") == text


@pytest.mark.parametrize("text", ["3.8", "3.8-IV0", "2.7", "3.9-IV1", "3.90", "4.0", ""])
def test_a_version_that_brokers_do_not_speak_is_refused(text):
    """A broker that took it in silence would go on with the requests of 3.9."""
    with pytest.raises(
        TidegaugeError, match=r"speaks to other brokers as Kafka 3\.9 does.*it must be 3\.9 or 3\.9-IV0"
    ):
        settings.parse_broker_settings({"inter.broker.protocol.version": text})


def test_kafkas_cross_checks_hold_at_start():
    """KafkaConfig.validateValues: the fetch wait must be below lag time and socket timeout."""
    with pytest.raises(TidegaugeError, match=r"must not be larger than replica\.lag\.time\.max\.ms"):
        settings.parse_broker_settings({"replica.fetch.wait.max.ms": "9000", "replica.lag.time.max.ms": "8000"})


def test_unknown_broker_settings_are_reported_not_refused():
    """AbstractConfig.logUnused: a server.properties may hold names for others (plug-ins); Kafka warns and goes on."""
    values, unknown = settings.parse_broker_settings({"broker.id": "3", "my.plugin.name": "3"})
    assert values.integer("broker.id") == 3
    assert unknown == ["my.plugin.name"]


def test_unknown_topic_settings_are_refused_in_kafkas_words():
    with pytest.raises(TidegaugeError, match="Unknown topic config name: retention"):
        settings.parse_topic_settings({"retention": "1"})


def test_a_topic_takes_its_brokers_value_unless_it_has_its_own():
    broker, _ = settings.parse_broker_settings({"min.insync.replicas": "2", "log.segment.bytes": "4096"})
    topic = settings.parse_topic_settings({"segment.bytes": "1024"}, broker)
    assert topic.integer("min.insync.replicas") == 2
    assert topic.integer("segment.bytes") == 1024


def test_properties_files():
    text = "# comment\n\nbroker.id=1\n! other\nlog.dirs = /a,/b \nkey:value=x\n"
    assert settings.read_properties(text) == {"broker.id": "1", "log.dirs": "/a,/b", "key": "value=x"}


def test_assignments_must_have_an_equals_sign():
    assert settings.read_assignments(["a=b=c"], "--set") == {"a": "b=c"}
    with pytest.raises(TidegaugeError, match="--set 'ab' must have the form key=value"):
        settings.read_assignments(["ab"], "--set")


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
        ("compression.gzip.level", "-2", "Value must be between 1 and 9 or equal to -1"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("message.format.version", "4.0", "Version 4.0 is not a valid version"),
        ("message.format.version", "", "Version  is not a valid version"),
        ("cleanup.policy", "delete,keep", "Invalid value keep for configuration cleanup.policy"),
        ("leader.replication.throttled.replicas", "a:b,1:2", r"Invalid value \[a:b, 1:2\] for"),
        ("preallocate", " 7 ", "Invalid value  7  for configuration preallocate"),
        ("min.cleanable.dirty.ratio", "2147483647", "Invalid value 2.147483647E9 for"),
    ],
)
def test_a_value_is_refused_in_kafkas_words(name: str, text: str, refusal: str) -> None:
    """As a 3.9.1 broker responds (tests/wire_responses/kafka-3.9.1.json)."""
    with pytest.raises(TidegaugeError, match=refusal):
        settings.TOPIC_SETTINGS[name].parse(text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("cleanup.policy", "", ()),
        ("message.format.version", "2.8-IV1", "2.8-IV1"),
        ("message.format.version", "0.9.0", "0.9.0"),
        ("message.format.version", "3.9", "3.9"),
    ],
)
def test_a_value_is_taken_as_kafka_takes_it(name: str, text: str, value: object) -> None:
    """As a 3.9.1 broker responds (tests/wire_responses/kafka-3.9.1.json): an empty list is a list."""
    assert settings.TOPIC_SETTINGS[name].parse(text) == value
