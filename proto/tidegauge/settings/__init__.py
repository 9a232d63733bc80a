"""The one declarative table of settings: Kafka's name, type, default, unit, range, meaning, update mode.

``server.properties``, topic configs, ``--set`` and ``docs/configuration.md`` come from here. Defaults are taken from
Kafka 3.9 (KafkaConfig, LogConfig); a setting that Kafka does not have says so in its text.
"""

from tidegauge.settings.broker import BROKER_GROUPS, BROKER_SETTINGS, KRAFT_BROKER_SETTINGS
from tidegauge.settings.dynamic import (
    BrokerSettings,
    ListChange,
    SettingView,
    Synonym,
    altered,
    check_known,
    usable_topic_settings,
)
from tidegauge.settings.group import (
    GROUP_CONFIGS,
    SHARE_GROUP_CONFIGS,
    check_group_configs,
    group_values,
    usable_group_configs,
)
from tidegauge.settings.listeners import listeners_of
from tidegauge.settings.model import INT_MAX, LONG_MAX, Setting, Values
from tidegauge.settings.parsing import (
    parse_broker_settings,
    parse_topic_settings,
    read_assignments,
    topic_values,
)
from tidegauge.settings.properties import property_line, read_properties
from tidegauge.settings.topic import TOPIC_SETTINGS

__all__ = [
    "BROKER_GROUPS",
    "BROKER_SETTINGS",
    "GROUP_CONFIGS",
    "INT_MAX",
    "KRAFT_BROKER_SETTINGS",
    "LONG_MAX",
    "SHARE_GROUP_CONFIGS",
    "TOPIC_SETTINGS",
    "BrokerSettings",
    "ListChange",
    "Setting",
    "SettingView",
    "Synonym",
    "Values",
    "altered",
    "check_group_configs",
    "check_known",
    "group_values",
    "listeners_of",
    "parse_broker_settings",
    "parse_topic_settings",
    "property_line",
    "read_assignments",
    "read_properties",
    "topic_values",
    "usable_group_configs",
    "usable_topic_settings",
]
