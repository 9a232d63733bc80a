"""Defaults of a broker in KRaft mode, where Kafka 4 has others than Kafka 3.9 (KIP-1030, KIP-848)."""

from __future__ import annotations

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import KRAFT_BROKER_SETTINGS, listeners_of, parse_broker_settings, topic_values
from tidegauge.settings.dynamic import DEFAULT, BrokerSettings

HOUR_MS = 3_600_000


def test_a_topics_default_is_that_of_its_brokers_mode() -> None:
    """KIP-1030: message.timestamp.after.max.ms is an hour."""
    older, _ = parse_broker_settings({})
    newer, _ = parse_broker_settings({}, KRAFT_BROKER_SETTINGS)
    assert topic_values({}, older).integer("message.timestamp.after.max.ms") > HOUR_MS
    assert topic_values({}, newer).integer("message.timestamp.after.max.ms") == HOUR_MS


def test_another_default_is_described_as_a_default() -> None:
    settings, _ = parse_broker_settings({}, KRAFT_BROKER_SETTINGS)
    [view] = [one for one in BrokerSettings(settings).views() if one.name == "num.recovery.threads.per.data.dir"]
    assert (view.value, view.source) == ("2", DEFAULT)
    assert [one.value for one in view.synonyms] == ["2"]


def test_the_consumer_protocol_can_be_switched_off_in_kraft_mode() -> None:
    """group.coordinator.rebalance.protocols lists the enabled ones; ZooKeeper mode knows classic alone."""
    settings, _ = parse_broker_settings({}, KRAFT_BROKER_SETTINGS)
    assert settings["group.coordinator.rebalance.protocols"] == ("classic", "consumer", "streams")
    texts = {"group.coordinator.rebalance.protocols": "classic"}
    settings, _ = parse_broker_settings(texts, KRAFT_BROKER_SETTINGS)
    assert settings["group.coordinator.rebalance.protocols"] == ("classic",)


def test_the_addresses_of_a_running_broker_do_not_change_in_kraft_mode() -> None:
    """DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS lacks advertised.listeners: a broker registers at its start alone."""
    static = {"listeners": "PLAINTEXT://a:1,GRPC://a:2"}
    name, moved = "advertised.listeners", "PLAINTEXT://b:1,GRPC://b:2"
    values, _ = parse_broker_settings(static, KRAFT_BROKER_SETTINGS)
    settings = BrokerSettings(values)
    refusal = f"Cannot update these configs dynamically: Set({name})"
    with pytest.raises(TidegaugeError) as caught:
        settings.check({name: moved}, for_all=False)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, refusal)
    [view] = [one for one in settings.views() if one.name == name]
    assert view.is_read_only

    assert settings.replace(default={}, own={name: moved}) == [refusal], "a controller stores any value of a broker"
    assert {one.host for one in listeners_of(settings.live).advertised} == {"a"}
