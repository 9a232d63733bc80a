"""Defaults of a broker in KRaft mode, where Kafka 4 has others than Kafka 3.9 (KIP-1030, KIP-848)."""

from __future__ import annotations

from tidegauge.settings import KRAFT_BROKER_SETTINGS, parse_broker_settings, topic_values
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
