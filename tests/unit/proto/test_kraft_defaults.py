"""Defaults of a broker in KRaft mode, where Kafka 4 has others than Kafka 3.9 (KIP-1030, KIP-848)."""

from __future__ import annotations

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import KRAFT_BROKER_SETTINGS, listeners_of, parse_broker_settings, topic_values
from tidegauge.settings.dynamic import (
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    DYNAMIC_GROUP,
    STATIC,
    BrokerSettings,
    SettingView,
)

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


def _of_group(settings: BrokerSettings, name: str, **own: str) -> SettingView:
    given = {key.replace("_", "."): text for key, text in own.items()}
    return next(one for one in settings.group_views(given) if one.name == name)


def test_the_assignment_intervals_of_a_running_broker_change_in_kraft_mode_alone() -> None:
    """GroupCoordinatorConfig.RECONFIGURABLE_CONFIGS of Kafka 4.3, with every place that sets a group's interval."""
    name, broker_name = "consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms"
    values, _ = parse_broker_settings({broker_name: "2000"}, KRAFT_BROKER_SETTINGS)
    settings = BrokerSettings(values)
    settings.check({broker_name: "1500", "group.share.assignment.interval.ms": "0"}, for_all=True)
    assert settings.replace(default={broker_name: "5000"}, own={broker_name: "4000"}) == []
    view = _of_group(settings, name, consumer_assignment_interval_ms="3000")
    assert (view.value, view.source) == ("3000", DYNAMIC_GROUP)
    assert [(one.name, one.source, one.value) for one in view.synonyms] == [
        (name, DYNAMIC_GROUP, "3000"),
        (broker_name, DYNAMIC_BROKER, "4000"),
        (broker_name, DYNAMIC_DEFAULT, "5000"),
        (broker_name, STATIC, "2000"),
        (broker_name, DEFAULT, "1000"),
    ]
    older, _ = parse_broker_settings({})
    with pytest.raises(TidegaugeError, match="Cannot update these configs dynamically") as caught:
        BrokerSettings(older).check({broker_name: "1500"}, for_all=False)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_setting_that_only_groups_have_names_its_default() -> None:
    """ConfigHelper.createGroupConfigEntry: GroupConfig's default is a synonym where brokers have no such setting."""
    values, _ = parse_broker_settings({}, KRAFT_BROKER_SETTINGS)
    name = "share.auto.offset.reset"
    view = _of_group(BrokerSettings(values), name)
    assert (view.value, view.source) == ("latest", DEFAULT)
    assert [(one.name, one.source) for one in view.synonyms] == [(name, DEFAULT)]
    view = _of_group(BrokerSettings(values), name, share_auto_offset_reset="earliest")
    assert (view.value, view.source) == ("earliest", DYNAMIC_GROUP)
    assert [(one.name, one.source) for one in view.synonyms] == [(name, DYNAMIC_GROUP), (name, DEFAULT)]
