"""The settings that the comparison with Kafka's responses excuses (make differential) are those that are missing."""

from __future__ import annotations

from tests.wire_responses.absent_settings import ABSENT, OUR_OWN
from tests.wire_responses.differences import compare, recorded

from tidegauge.settings import BROKER_SETTINGS

SETTING = "broker setting "


def test_each_absent_setting_is_named_once_and_is_one_of_kafkas() -> None:
    """A setting that Tidegauge has by now, or that Kafka never had, leaves the list."""
    named = [name for names in ABSENT.values() for name in names.split()]
    assert len(named) == len(set(named))
    of_kafka = {name.removeprefix(SETTING) for name in recorded() if name.startswith(SETTING)}
    assert set(named) == of_kafka - set(BROKER_SETTINGS)


def test_settings_of_our_own_are_no_settings_that_kafka_describes() -> None:
    described = {name.removeprefix(SETTING) for name in recorded() if name.startswith(SETTING)}
    assert set(BROKER_SETTINGS) - described >= OUR_OWN


def test_a_missing_setting_that_is_not_named_is_a_difference() -> None:
    """So is one of ours that Kafka does not describe: no rule excuses any name."""
    verdict = compare({SETTING + "num.io.threads": "(8)"}, {SETTING + "some.new.setting": "(1)"})
    assert len(verdict.differences) == 2
