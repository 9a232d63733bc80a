"""The configs of a share group, in Kafka's ranges and with its sentences (GroupConfig.validateValues)."""

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.share_configs import NUMBERS, ShareGroupConfigs, duration_ms, in_force


def refusal(of_group, of_broker=None):
    with pytest.raises(TidegaugeError) as refused:
        in_force(of_group, of_broker or {})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return refused.value.message


def test_a_group_without_configs_has_the_brokers_settings():
    assert in_force({}, {}) == ShareGroupConfigs()
    assert in_force({}, {"group.share.delivery.count.limit": 7}).delivery_count_limit == 7


def test_a_groups_configs_stand_before_the_brokers():
    configs = in_force(
        {
            "share.delivery.count.limit": "2",
            "share.isolation.level": "read_committed",
            "share.auto.offset.reset": "earliest",
            "share.renew.acknowledge.enable": "false",
        },
        {"group.share.delivery.count.limit": 7},
    )
    assert configs == ShareGroupConfigs(
        delivery_count_limit=2, reads_committed=True, auto_offset_reset="earliest", renews_locks=False
    )


@pytest.mark.parametrize("config", NUMBERS, ids=lambda one: one.name)
def test_the_broker_bounds_what_a_group_may_set(config):
    below, above = {config.name: str(config.lowest - 1)}, {config.name: str(config.highest + 1)}
    assert refusal(below) == f"{config.name} must be greater than or equal to {config.minimum}"
    assert refusal(above) == f"{config.name} must be less than or equal to {config.maximum}"
    assert in_force({config.name: str(config.highest)}, {config.maximum: config.highest})
    assert "less than or equal" in refusal({config.name: str(config.highest)}, {config.maximum: config.highest - 1})


def test_the_names_of_the_bounds_are_kafkas():
    assert {one.minimum for one in NUMBERS} == {
        "group.share.min.session.timeout.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.min.delivery.count.limit",
        "group.share.min.partition.max.record.locks",
        "group.share.min.assignment.interval.ms",
    }


def test_a_session_is_longer_than_the_interval_of_heartbeats():
    bounds = {"group.share.min.session.timeout.ms": 1}
    message = refusal({"share.session.timeout.ms": "5000"}, bounds)
    assert message == "share.session.timeout.ms must be greater than share.heartbeat.interval.ms"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.delivery.count.limit", "many"),
        ("share.isolation.level", "serializable"),
        ("share.renew.acknowledge.enable", "maybe"),
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "latest:1"),
    ],
)
def test_a_value_that_is_none_of_the_config_is_refused_with_its_name(name, value):
    message = refusal({name: value})
    assert name in message
    assert value in message


def test_an_unknown_name_is_refused():
    assert refusal({"share.nothing": "1"}) == "Unknown group config name: share.nothing"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P1DT1.5S", 86_401_500),
        ("pt0s", 0),
        ("PT", None),
        ("P", None),
        ("P1DT", None),
        ("1D", None),
        ("PT-1S", None),
    ],
)
def test_durations_are_read_as_java_reads_them(text, ms):
    assert duration_ms(text) == ms


def test_a_group_may_begin_where_records_of_an_age_do():
    reset = in_force({"share.auto.offset.reset": "by_duration:PT1H"}, {}).auto_offset_reset
    assert reset == "by_duration:PT1H"
