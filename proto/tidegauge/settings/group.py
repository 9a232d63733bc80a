"""Settings of single groups (KIP-848, KIP-1043): Kafka's names, bounds and sentences; those of the consumer protocol.

Rules:
    1. A value of a group's own counts before the broker's setting of the same meaning.
    2. A value is refused when it is set, if the broker's bounds exclude it, or if the session timeout would not be
       longer than the heartbeat interval.
    3. A stored value that the bounds have come to exclude counts as the nearest bound.
    4. A group need not exist: its settings wait for it, and outlive it.

Pure. Source: Kafka's GroupConfig, GroupConfigManager, ControllerConfigurationValidator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.near_names import did_you_mean
from tidegauge.settings.model import INT_MAX, Setting, Values

SESSION_TIMEOUT, HEARTBEAT_INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


class _Bounds(NamedTuple):
    """The broker settings that bound a group's setting."""

    minimum: str
    maximum: str


def _setting(name: str, default: int, meaning: str, minimum: int) -> Setting:
    return Setting(name, "int", default, meaning, "ms", minimum, INT_MAX, broker_key=f"group.{name}")


GROUP_CONFIGS: Mapping[str, Setting] = {
    one.name: one
    for one in (
        _setting(SESSION_TIMEOUT, 45_000, "Session timeout of the group's members, consumer protocol.", 1),
        _setting(
            HEARTBEAT_INTERVAL, 5_000, "Interval between heartbeats of the group's members, consumer protocol.", 1
        ),
        _setting(
            ASSIGNMENT_INTERVAL,
            1_000,
            "Minimum time between two target assignments of the group, consumer protocol; 0: none.",
            0,
        ),
    )
}
_BOUNDS = {
    name: _Bounds(f"group.consumer.min.{rest}", f"group.consumer.max.{rest}")
    for name in GROUP_CONFIGS
    for rest in [name.removeprefix("consumer.")]
}


def check_group_configs(texts: Mapping[str, str], broker: Values) -> None:
    """Check that a group may have these settings of its own (rule 2).

    Raises:
        TidegaugeError: INVALID_CONFIG, with Kafka's sentence.
    """
    given: dict[str, Any] = {}
    for name, text in texts.items():
        setting = GROUP_CONFIGS.get(name)
        if setting is None:
            raise _refused(f"Unknown group config name: {name}{did_you_mean(name, GROUP_CONFIGS)}")
        given[name] = setting.parse(text)
    for name, value in given.items():
        low, high = _BOUNDS[name]
        if value < broker[low]:
            raise _refused(f"{name} must be greater than or equal to {low} ({broker[low]}), and is {value}")
        if value > broker[high]:
            raise _refused(f"{name} must be less than or equal to {high} ({broker[high]}), and is {value}")
    values = Values(GROUP_CONFIGS, _defaults(broker) | given)
    session_ms, heartbeat_ms = values[SESSION_TIMEOUT], values[HEARTBEAT_INTERVAL]
    if given and session_ms <= heartbeat_ms:
        raise _refused(
            f"{SESSION_TIMEOUT} ({session_ms}) must be greater than {HEARTBEAT_INTERVAL} ({heartbeat_ms}): members "
            "would expire between their heartbeats"
        )


def usable_group_configs(texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the usable ones of a group's stored settings, and what was left out and why."""
    usable: dict[str, str] = {}
    problems: list[str] = []
    for name, text in texts.items():
        if name not in GROUP_CONFIGS:
            problems.append(f"Unknown group config name: {name}")
            continue
        try:
            GROUP_CONFIGS[name].parse(text)
        except TidegaugeError as problem:
            problems.append(problem.message)
        else:
            usable[name] = text
    return usable, problems


def group_values(texts: Mapping[str, str], broker: Values) -> Values:
    """Return a group's settings in force: usable ones of its own, within the bounds (rule 3), over the broker's."""
    given = _defaults(broker)
    for name, text in texts.items():
        low, high = _BOUNDS[name]
        given[name] = max(broker[low], min(GROUP_CONFIGS[name].parse(text), broker[high]))
    return Values(GROUP_CONFIGS, given)


def _defaults(broker: Values) -> dict[str, Any]:
    return {name: broker[setting.broker_key or ""] for name, setting in GROUP_CONFIGS.items()}


def _refused(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)
