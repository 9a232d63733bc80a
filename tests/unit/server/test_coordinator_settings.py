"""A broker's settings for its coordinators, if nothing is set: the coordinators' own defaults."""

from __future__ import annotations

from tidegauge.settings import parse_broker_settings
from tidegauge_broker.coordinator.settings import GroupSettings, TransactionSettings
from tidegauge_broker.server.coordinators.group_runner import group_settings
from tidegauge_broker.server.coordinators.transaction_runner import transaction_settings

DEFAULTS, _ = parse_broker_settings({"broker.id": "0", "zookeeper.connect": "z:1"})


def test_a_group_coordinator_alone_has_the_defaults_of_a_broker():
    """Kafka's, of GroupCoordinatorConfig: a unit test's coordinator then behaves as a broker's does."""
    assert group_settings(DEFAULTS) == GroupSettings()


def test_a_transaction_coordinator_alone_has_the_defaults_of_a_broker():
    """Kafka's, of TransactionLogConfigs and TransactionStateManagerConfigs."""
    assert transaction_settings(DEFAULTS) == TransactionSettings()
