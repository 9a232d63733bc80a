"""The settings of share groups of their own, in Kafka's ranges and with its sentences (GroupConfig.validateValues)."""

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import BROKER_SETTINGS, SHARE_GROUP_CONFIGS, Values, check_group_configs, group_values

BROKER = Values(BROKER_SETTINGS, {})
NUMBERS = {name: setting for name, setting in SHARE_GROUP_CONFIGS.items() if setting.broker_key is not None}


def refusal(texts, broker=BROKER):
    with pytest.raises(TidegaugeError) as refused:
        check_group_configs(texts, broker, SHARE_GROUP_CONFIGS)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return refused.value.message


def in_force(texts, **broker):
    return group_values(texts, Values(BROKER_SETTINGS, broker), SHARE_GROUP_CONFIGS)


def test_the_names_and_defaults_are_kafkas():
    """GroupConfig of Kafka 4.3, as a broker of 4.3.1 described a group."""
    assert {name: in_force({})[name] for name in SHARE_GROUP_CONFIGS} == {
        "share.assignment.interval.ms": 1000,
        "share.auto.offset.reset": "latest",
        "share.delivery.count.limit": 5,
        "share.heartbeat.interval.ms": 5000,
        "share.isolation.level": "read_uncommitted",
        "share.partition.max.record.locks": 2000,
        "share.record.lock.duration.ms": 30000,
        "share.renew.acknowledge.enable": True,
        "share.session.timeout.ms": 45000,
    }


def test_a_groups_own_value_stands_before_the_brokers():
    broker = {"group.share.delivery.count.limit": 7}
    assert in_force({}, **broker)["share.delivery.count.limit"] == 7
    assert in_force({"share.delivery.count.limit": "2"}, **broker)["share.delivery.count.limit"] == 2


@pytest.mark.parametrize("name", NUMBERS)
def test_the_broker_bounds_what_a_group_may_set(name):
    low, high = (f"group.share.{which}.{name.removeprefix('share.')}" for which in ("min", "max"))
    assert refusal({name: str(BROKER[high] + 1)}).startswith(f"{name} must be less than or equal to {high}")
    if BROKER[low] > NUMBERS[name].minimum:
        assert refusal({name: str(BROKER[low] - 1)}).startswith(f"{name} must be greater than or equal to {low}")
    check_group_configs({name: str(BROKER[high])}, BROKER, SHARE_GROUP_CONFIGS)
    assert in_force({name: str(BROKER[high])}, **{high: BROKER[high] - 1})[name] == BROKER[high] - 1


def test_a_session_is_longer_than_the_interval_of_heartbeats():
    broker = Values(BROKER_SETTINGS, {"group.share.min.session.timeout.ms": 1})
    message = refusal({"share.session.timeout.ms": "5000"}, broker)
    assert message.startswith("share.session.timeout.ms (5000) must be greater than share.heartbeat.interval.ms (5000)")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.delivery.count.limit", "many"),
        ("share.isolation.level", "serializable"),
        ("share.renew.acknowledge.enable", "maybe"),
        *(
            ("share.auto.offset.reset", value)
            for value in ("none", "latest:1", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1DT")
        ),
        ("share.auto.offset.reset", "by_duration:PT-1H"),
    ],
)
def test_a_value_that_is_none_of_the_setting_is_refused_with_its_name(name, value):
    message = refusal({name: value})
    assert name in message
    assert value in message


@pytest.mark.parametrize(
    "value", ["latest", "earliest", "by_duration:P1D", "by_duration:PT1H30M", "by_duration:P1DT1.5S"]
)
def test_a_group_begins_at_an_end_of_the_log_or_at_records_of_an_age(value):
    check_group_configs({"share.auto.offset.reset": value}, BROKER, SHARE_GROUP_CONFIGS)
    assert in_force({"share.auto.offset.reset": value})["share.auto.offset.reset"] == value


def test_an_unknown_name_is_refused():
    assert refusal({"share.nothing": "1"}).startswith("Unknown group config name: share.nothing")
