"""Parsing of texts to values: ``key=value`` of the command line, and Kafka's checks across settings.

Source: KafkaConfig.validateValues, LogConfig.validateValues.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.near_names import did_you_mean
from tidegauge.settings.broker import BROKER_SETTINGS
from tidegauge.settings.broker_security import OF_LISTENERS
from tidegauge.settings.model import Setting, Values
from tidegauge.settings.topic import TOPIC_SETTINGS

_OF_LISTENER = re.compile(rf"listener\.name\.[a-z0-9_.-]+?\.({'|'.join(map(re.escape, OF_LISTENERS))})")


def read_assignments(pairs: Iterable[str], what: str) -> dict[str, str]:
    """Read ``key=value`` texts of the command line.

    Raises:
        TidegaugeError: INVALID_CONFIG, a text has no ``=``.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"{what} {pair!r} must have the form key=value")
        found[key.strip()] = value.strip()
    return found


def parse_broker_settings(
    texts: Mapping[str, str], table: Mapping[str, Setting] = BROKER_SETTINGS
) -> tuple[Values, list[str]]:
    """Parse a broker's settings and apply Kafka's checks across them.

    Args:
        texts: by name.
        table: has the defaults: ``BROKER_SETTINGS`` or, in KRaft mode, ``KRAFT_BROKER_SETTINGS``.

    Returns:
        The values, and the names that the table lacks (Kafka logs a warning and starts).

    Raises:
        TidegaugeError: INVALID_CONFIG, a value is illegal or two contradict each other.
    """
    known = {name: setting for name in texts if (setting := broker_setting(name)) is not None}
    values = Values(table, {name: setting.parse(texts[name]) for name, setting in known.items()})
    check_broker(values)
    return values, sorted(texts.keys() - known.keys())


def broker_setting(name: str) -> Setting | None:
    """Return a broker's setting by name (or a listener's); None if unknown."""
    return setting_in(BROKER_SETTINGS, name)


def setting_in(table: Mapping[str, Setting], name: str) -> Setting | None:
    """Return a table's setting by name (or a listener's); None if unknown."""
    match = _OF_LISTENER.fullmatch(name)
    return table.get(name if match is None else match[1])


def check_broker(values: Values) -> None:
    """Apply Kafka's checks across a broker's settings.

    Raises:
        TidegaugeError: INVALID_CONFIG, two contradict each other.
    """
    wait_ms = values.integer("replica.fetch.wait.max.ms")
    for other in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait_ms > values[other]:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"replica.fetch.wait.max.ms ({wait_ms}) must not be larger than {other} ({values[other]}): "
                "followers would be considered dead or lagging while they wait",
            )
    if values["log.roll.ms"] < 1:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, "log.roll.ms must be equal or greater than 1")
    if values["log.retention.ms"] != -1 and values["log.retention.ms"] < 1:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, "log.retention.ms must be unlimited (-1) or, equal or greater than 1"
        )
    if not values["log.dirs"] or values["log.dirs"] == ("",):
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, "At least one log directory must be defined via log.dirs or log.dir."
        )
    _check_lags(values, "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")


def _check_lags(values: Values, minimum: str, maximum: str) -> None:
    if values[minimum] > values[maximum]:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting {minimum} ({values[minimum]}) > {maximum} ({values[maximum]})",
        )


def parse_topic_settings(texts: Mapping[str, str], broker: Values | None = None) -> Values:
    """Parse a topic's settings over its broker's, and apply Kafka's checks across them.

    Raises:
        TidegaugeError: INVALID_CONFIG, a name is unknown, a value illegal, or two contradict each other.
    """
    values = topic_values(texts, broker)
    check_tiered_storage(values)
    check_topic(values)
    return values


def check_tiered_storage(values: Values) -> None:
    """Reject a topic with tiered storage, as a broker without it does.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    if values.flag("remote.storage.enable"):
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )


def check_topic(values: Values) -> None:
    """Apply Kafka's checks across a topic's settings.

    Raises:
        TidegaugeError: INVALID_CONFIG, two contradict each other, or one needs KRaft.
    """
    _check_lags(values, "min.compaction.lag.ms", "max.compaction.lag.ms")
    if values.flag("remote.log.delete.on.disable") or values.flag("remote.log.copy.disable"):
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode.",
        )


def topic_values(texts: Mapping[str, str], broker: Values | None = None) -> Values:
    """Parse a topic's settings over its broker's, without the checks across them.

    Raises:
        TidegaugeError: INVALID_CONFIG, a name is unknown or a value illegal.
    """
    given: dict[str, Any] = {} if broker is None else topic_defaults(broker)
    for name, text in texts.items():
        if name not in TOPIC_SETTINGS:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}{did_you_mean(name, TOPIC_SETTINGS)}"
            )
        given[name] = TOPIC_SETTINGS[name].parse(text)
    return Values(TOPIC_SETTINGS, given)


def topic_defaults(broker: Values) -> dict[str, Any]:
    """Return a broker's topic defaults that differ from the table's."""
    found: dict[str, Any] = {}
    for setting in TOPIC_SETTINGS.values():
        if setting.broker_key is not None:
            value = broker[setting.broker_key]
            if value != setting.default:
                found[setting.name] = value
    return found
