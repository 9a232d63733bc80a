"""Settings in layers: dynamic topic > dynamic broker > dynamic default > server.properties > default (KIP-226)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tidegauge import settings
from tidegauge.errors import ErrorCode, TidegaugeError

MIN_ISR = "min.insync.replicas"


def broker(**static):
    values, _ = settings.parse_broker_settings({key.replace("_", "."): text for key, text in static.items()})
    return settings.BrokerSettings(values)


@hypothesis_settings(max_examples=50)
@given(st.tuples(*[st.none() | st.integers(1, 9)] * 4))
def test_the_strongest_layer_that_has_a_value_counts(layers):
    """DynamicBrokerConfig's precedence, with a topic's own on top."""
    topic, own, default, static = layers
    made = broker(**({} if static is None else {"min_insync_replicas": str(static)}))

    def layer(number):
        return {} if number is None else {MIN_ISR: str(number)}

    assert made.replace(default=layer(default), own=layer(own)) == []
    expected = next((number for number in (own, default, static) if number is not None), 1)
    assert made.live.integer(MIN_ISR) == expected
    values = settings.topic_values(layer(topic), made.live)
    assert values.integer(MIN_ISR) == (expected if topic is None else topic)


def test_every_source_is_shown_with_all_that_has_a_say():
    """ConfigHelper.configSynonyms: the strongest first."""
    made = broker(min_insync_replicas="2")
    made.replace(default={MIN_ISR: "3"}, own={MIN_ISR: "4"})
    view = next(view for view in made.topic_views({MIN_ISR: "5"}) if view.name == MIN_ISR)
    assert (view.value, view.source, view.is_default) == ("5", "DYNAMIC_TOPIC_CONFIG", False)
    assert [(synonym.source, synonym.value) for synonym in view.synonyms] == [
        ("DYNAMIC_TOPIC_CONFIG", "5"),
        ("DYNAMIC_BROKER_CONFIG", "4"),
        ("DYNAMIC_DEFAULT_BROKER_CONFIG", "3"),
        ("STATIC_BROKER_CONFIG", "2"),
        ("DEFAULT_CONFIG", "1"),
    ]


def test_what_is_taken_back_falls_to_the_layer_below():
    made = broker(message_max_bytes="5000")
    held = made.live
    made.replace(default={"message.max.bytes": "6000"}, own={"message.max.bytes": "7000"})
    seen = [held.integer("message.max.bytes")]
    made.replace(default={"message.max.bytes": "6000"}, own={})
    seen.append(held.integer("message.max.bytes"))
    made.replace(default={}, own={})
    seen.append(held.integer("message.max.bytes"))
    assert seen == [7000, 6000, 5000]
    made.replace(default={MIN_ISR: "3"}, own={})
    made.replace(default={}, own={})
    assert held.integer(MIN_ISR) == 1


def test_a_topic_view_names_the_brokers_setting():
    """As kafka-configs prints it: a synonym has the broker's name; retention.ms has none by default."""
    views = {view.name: view for view in broker(log_segment_bytes="4096", log_retention_hours="1").topic_views({})}
    assert views["segment.bytes"].value == "4096"
    assert views["segment.bytes"].source == "STATIC_BROKER_CONFIG"
    assert views["segment.bytes"].synonyms == (
        settings.Synonym("STATIC_BROKER_CONFIG", "log.segment.bytes", "4096"),
        settings.Synonym("DEFAULT_CONFIG", "log.segment.bytes", "1073741824"),
    )
    assert views["retention.ms"].value == "3600000"
    assert views["retention.ms"].synonyms == ()


def test_a_broker_view_has_no_names_before_its_own():
    """ConfigHelper.configSynonyms drops the synonyms before the described name."""
    views = {view.name: view for view in broker(log_retention_minutes="5").views()}
    assert views["log.retention.ms"].value is None
    assert views["log.retention.ms"].source == "DEFAULT_CONFIG"
    assert views["log.retention.ms"].synonyms == ()


def test_a_broker_view_lists_the_names_that_stand_in():
    """DynamicBrokerConfig.brokerConfigSynonyms: log.retention.ms may come from minutes or hours."""
    views = {view.name: view for view in broker(log_retention_ms="5", log_retention_minutes="6").views()}
    assert [synonym.name for synonym in views["log.retention.ms"].synonyms] == [
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    ]
    assert views["broker.id"].is_read_only
    assert not views["log.retention.ms"].is_read_only


def test_malformed_settings_are_left_out_and_reported():
    made = broker()
    problems = made.replace(
        default={"nonsense": "1", "broker.id": "7", MIN_ISR: "none", "log.segment.bytes": "2000"}, own={}
    )
    assert made.live.integer("log.segment.bytes") == 2000
    assert made.live.integer(MIN_ISR) == 1
    assert made.live.integer("broker.id") == -1
    assert [problem.split(":")[0] for problem in problems] == [
        "Unknown config name",
        "Cannot update these configs dynamically",
        "Invalid value none for configuration min.insync.replicas",
    ]
    usable, problems = settings.usable_topic_settings({"retention.ms": "5", "nonsense": "1", "segment.bytes": "3"})
    assert usable == {"retention.ms": "5"}
    assert problems == [
        "Unknown topic config name: nonsense",
        "Invalid value 3 for configuration segment.bytes: Value must be at least 14; "
        "it must be a whole number from 14 to 2147483647",
    ]


@pytest.mark.parametrize(
    ("texts", "code", "message"),
    [
        ({"nonsense": "1"}, ErrorCode.INVALID_CONFIG, "Unknown config name: nonsense"),
        (
            {"auto.leader.rebalance.enable": "false"},
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: Set(auto.leader.rebalance.enable)",
        ),
        ({"log.segment.bytes": "2"}, ErrorCode.INVALID_CONFIG, "Value must be at least 14"),
        ({MIN_ISR: "x"}, ErrorCode.INVALID_CONFIG, "Not a number of type INT"),
        ({"unclean.leader.election.enable": "yes"}, ErrorCode.INVALID_CONFIG, "Expected value to be either true or"),
        ({"log.cleanup.policy": "delete,keep"}, ErrorCode.INVALID_CONFIG, "String must be one of: compact, delete"),
        ({"log.cleaner.min.cleanable.ratio": "1.5"}, ErrorCode.INVALID_CONFIG, "Value must be no more than 1"),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting log.cleaner.min.compaction.lag.ms (9) >",
        ),
        ({"log.retention.ms": "0"}, ErrorCode.INVALID_CONFIG, "log.retention.ms must be unlimited (-1) or"),
    ],
)
@pytest.mark.parametrize("for_all", [True, False])
def test_an_alteration_is_refused_as_a_whole(texts, code, message, for_all):
    """DynamicBrokerConfig.validate: nothing of it is taken when one is bad."""
    made = broker()
    with pytest.raises(TidegaugeError) as refusal:
        made.check({MIN_ISR: "2", **texts}, for_all=for_all)
    assert refusal.value.code is code
    assert message in refusal.value.message
    assert made.live.integer(MIN_ISR) == 1


def test_a_setting_of_kerberos_that_has_no_effect_can_be_altered():
    """DynamicListenerConfig.ReconfigurableConfigs: taken for a broker, and checked as the number that it is."""
    made = broker()
    made.check({"sasl.kerberos.min.time.before.relogin": "58000"}, for_all=False)
    with pytest.raises(TidegaugeError, match="Not a number of type LONG"):
        made.check({"sasl.kerberos.min.time.before.relogin": "x"}, for_all=False)


def test_a_contradiction_with_another_layer_is_refused():
    made = broker(log_cleaner_max_compaction_lag_ms="100")
    made.check({"log.cleaner.min.compaction.lag.ms": "100"}, for_all=False)
    with pytest.raises(TidegaugeError, match="conflict topic config setting"):
        made.check({"log.cleaner.min.compaction.lag.ms": "101"}, for_all=False)
    assert made.replace(default={"log.cleaner.min.compaction.lag.ms": "100"}, own={}) == []
    with pytest.raises(TidegaugeError, match="conflict topic config setting"):
        made.check({"log.cleaner.max.compaction.lag.ms": "99"}, for_all=False)
    assert made.replace(default={}, own={"log.cleaner.min.compaction.lag.ms": "100"}) == []
    with pytest.raises(TidegaugeError, match="conflict topic config setting"):
        made.check({"log.cleaner.max.compaction.lag.ms": "99"}, for_all=True)
    assert made.replace(default={"log.cleaner.min.compaction.lag.ms": "101"}, own={MIN_ISR: "2"}) != []
    assert made.live.integer("log.cleaner.min.compaction.lag.ms") == 0
    assert made.live.integer(MIN_ISR) == 2


def test_altered_sets_and_takes_back():
    assert settings.altered({"a": "1", "b": "2"}, {"b": "3", "c": "4"}, ["a", "z"]) == {"b": "3", "c": "4"}
    with pytest.raises(TidegaugeError, match="Error due to duplicate config keys: a"):
        settings.altered({}, {"a": "1"}, ["a"])


def test_a_topics_own_contradiction_does_not_stop_a_broker():
    """LogConfig.fromProps holds nothing against each other; LogConfig.validate does, before it is written."""
    texts = {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
    assert settings.topic_values(texts).integer("min.compaction.lag.ms") == 9
    with pytest.raises(TidegaugeError, match="conflict topic config setting"):
        settings.parse_topic_settings(texts)


def test_dynamic_settings_are_those_of_kafka():
    """DynamicLogConfig, LogCleaner, DynamicThreadPool, DynamicProducerStateManagerConfig, QuotaConfigs; of
    DynamicListenerConfig advertised.listeners.
    """
    dynamic = {name for name, setting in settings.BROKER_SETTINGS.items() if setting.dynamic}
    keys = {setting.broker_key for setting in settings.TOPIC_SETTINGS.values() if setting.broker_key is not None}
    assert keys - dynamic == {"log.message.format.version"}, "DynamicLogConfig.ExcludedConfigs"
    assert dynamic - keys == {
        "advertised.listeners",
        "background.threads",
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.size",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "sasl.enabled.mechanisms",
        "sasl.kerberos.min.time.before.relogin",
        "transaction.partition.verification.enable",
    }
    groups = itertools.chain(*settings.BROKER_GROUPS.values())
    assert len(list(groups)) == len(settings.BROKER_SETTINGS), "no name stands twice"


# advertised.listeners

TWO = {"listeners": "PLAINTEXT://127.0.0.1:9092,GRPC://127.0.0.1:19092"}
ADVERTISED = "advertised.listeners"
MOVED = "PLAINTEXT://localhost:9092,GRPC://127.0.0.1:19092"


def of_listeners(**more):
    values, _ = settings.parse_broker_settings(TWO | {name.replace("_", "."): text for name, text in more.items()})
    return settings.BrokerSettings(values)


@pytest.mark.parametrize(
    "value",
    [
        MOVED,
        "GRPC://elsewhere:1",  # a subset of the listeners; Kafka clients that are connected find no broker then
        "plaintext://a:1 , grpc://b:1,",
        "PLAINTEXT://a:1,GRPC://a:1",
    ],
)
def test_addresses_of_the_listeners_may_be_altered(value):
    """DynamicListenerConfig: names of ``listeners``, whatever the addresses; the same port twice, too."""
    of_listeners().check({ADVERTISED: value}, for_all=False)
    made = of_listeners()
    assert made.replace(default={}, own={ADVERTISED: value}) == []
    assert {str(one) for one in settings.listeners_of(made.live).bound} == set(TWO["listeners"].split(","))
    expected = [part.strip().rpartition("/")[2] for part in value.split(",") if part.strip()]
    assert [one.address for one in settings.listeners_of(made.live).advertised] == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("PLAINTEXT://a:1", "Advertised listener must be specified for inter-broker listener GRPC"),
        ("PLAINTEXT://a:1,GRPC://b:1,OTHER://c:1", "there is no listener OTHER in listeners="),
        ("PLAINTEXT://0.0.0.0:1,GRPC://b:1", "0.0.0.0 is not a reachable address"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:1,GRPC://c:1", "each listener must have a different name"),
        ("PLAINTEXT://a:0,GRPC://b:1", "is not a listener"),
        ("a:1", "is not a listener"),
        ("", "There must be at least one broker advertised listener."),
        (" ", "There must be at least one broker advertised listener."),
    ],
)
def test_addresses_that_a_broker_could_not_advertise_are_refused(value, sentence):
    """KafkaConfig.validateValues, before anything is written; and a znode that says so is left out."""
    with pytest.raises(TidegaugeError) as caught:
        of_listeners().check({ADVERTISED: value}, for_all=False)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert sentence in caught.value.message
    made = of_listeners()
    [problem] = made.replace(default={}, own={ADVERTISED: value})
    assert sentence in problem
    assert made.live[ADVERTISED] is None


@pytest.mark.parametrize(
    ("more", "value", "lacking"),
    [
        ({"inter_broker_listener_name": "B"}, "A://a:1,GRPC://c:1", "for inter-broker listener B: brokers use it"),
        ({}, "A://a:1,B://b:1,GRPC_B://d:1", "for inter-broker listener GRPC: brokers use it among themselves"),
        (
            {"inter_broker_listener_name": "A"},
            "A://a:1,B://b:1,GRPC_B://d:1",
            "for inter-broker listener GRPC: brokers reach each other through it for what only gRPC has",
        ),
        (
            {"inter_broker_listener_name": "A", "control_plane_listener_name": "GRPC_B"},
            "A://a:1,B://b:1,GRPC://d:1",
            "for inter-broker listener GRPC_B: the controller and the brokers reach each other through it",
        ),
    ],
)
def test_the_listeners_that_brokers_use_among_themselves_stay_the_same(more, value, lacking):
    """DynamicListenerConfig.validateReconfiguration; the first of several gRPC listeners does not become another."""
    four = {"listeners": "A://h:1,B://h:2,GRPC://h:3,GRPC_B://h:4"}
    with pytest.raises(TidegaugeError, match=lacking):
        of_listeners(**four, **more).check({ADVERTISED: value}, for_all=False)
    of_listeners(**four, **more).check({ADVERTISED: "A://a:1,B://b:1,GRPC://c:1,GRPC_B://d:1"}, for_all=False)


def test_a_listener_that_was_added_moves_with_the_advertised_host():
    made = settings.BrokerSettings(settings.parse_broker_settings({"listeners": "PLAINTEXT://127.0.0.1:9092"})[0])
    assert made.replace(default={}, own={ADVERTISED: "PLAINTEXT://public:1234"}) == []
    assert [str(one) for one in settings.listeners_of(made.live).advertised] == [
        "PLAINTEXT://public:1234",
        "GRPC://public:19092",
    ]


def test_addresses_that_are_taken_back_are_those_of_the_file():
    made = of_listeners(advertised_listeners="PLAINTEXT://static:1,GRPC://static:2")
    view = {one.name: one for one in made.views()}[ADVERTISED]
    assert (view.source, view.is_read_only) == ("STATIC_BROKER_CONFIG", False)
    made.replace(default={}, own={ADVERTISED: MOVED})
    view = {one.name: one for one in made.views()}[ADVERTISED]
    assert (view.value, view.source) == (MOVED, "DYNAMIC_BROKER_CONFIG")
    made.replace(default={}, own={})
    assert settings.listeners_of(made.live).advertised[0].host == "static"


@pytest.mark.parametrize("name", [ADVERTISED, "sasl.enabled.mechanisms", "listener.name.grpc.sasl.enabled.mechanisms"])
def test_what_is_of_one_broker_can_not_be_set_for_all(name):
    """DynamicBrokerConfig.perBrokerConfigs: refused, and ignored where another tool wrote it."""
    value = MOVED if name == ADVERTISED else "PLAIN"
    made = of_listeners()
    sentence = f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})"
    with pytest.raises(TidegaugeError) as caught:
        made.check({name: value, MIN_ISR: "2"}, for_all=True)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, sentence)
    made.check({name: value, MIN_ISR: "2"}, for_all=False)
    [problem] = made.replace(default={name: value, MIN_ISR: "2"}, own={})
    assert problem == f"Per-broker configs defined at default cluster level will be ignored: {name}"
    assert made.live.integer(MIN_ISR) == 2
    assert made.live[ADVERTISED] is None


@pytest.mark.parametrize("name", ["listeners", "listener.security.protocol.map"])
def test_listeners_and_their_protocols_are_read_at_the_start_only(name):
    """Kafka may add and remove listeners while it runs; here they stay (docs/not-emulated.md)."""
    made = of_listeners()
    with pytest.raises(TidegaugeError, match="Cannot update these configs dynamically"):
        made.check({name: TWO["listeners"]}, for_all=False)
    assert {one.name: one for one in made.views()}[name].is_read_only
