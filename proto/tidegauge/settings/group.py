"""Settings of single groups (KIP-848, KIP-932, KIP-1043): Kafka's names, bounds and sentences, by protocol.

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
from tidegauge.settings.model import INT_MAX, Setting, Unit, Values

AUTO_OFFSET_RESET, ISOLATION_LEVEL = "share.auto.offset.reset", "share.isolation.level"
RENEWS = "share.renew.acknowledge.enable"
_RESETS = (
    r"latest|earliest|by_duration:P(?!T?$)(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?"
)
"""Where a share group may begin: a duration is one of ISO 8601 that is not negative (java.time.Duration)."""


class _Bounds(NamedTuple):
    """The broker settings that bound a group's setting."""

    minimum: str
    maximum: str


def _setting(name: str, default: int, meaning: str, minimum: int, unit: Unit = "ms") -> Setting:
    return Setting(name, "int", default, meaning, unit, minimum, INT_MAX, broker_key=f"group.{name}")


def _times_of(protocol: str) -> tuple[Setting, ...]:
    """Return the settings that groups of both protocols have."""
    return (
        _setting(
            f"{protocol}.session.timeout.ms", 45_000, f"Session timeout of the group's members, {protocol} protocol.", 1
        ),
        _setting(
            f"{protocol}.heartbeat.interval.ms",
            5_000,
            f"Interval between heartbeats of the group's members, {protocol} protocol.",
            1,
        ),
        _setting(
            f"{protocol}.assignment.interval.ms",
            1_000,
            f"Minimum time between two target assignments of the group, {protocol} protocol; 0: none.",
            0,
        ),
    )


SHARE_GROUP_CONFIGS: Mapping[str, Setting] = {
    one.name: one
    for one in (
        *_times_of("share"),
        _setting("share.record.lock.duration.ms", 30_000, "Time for which a member may keep a record.", 1),
        _setting("share.delivery.count.limit", 5, "Maximum number of deliveries of a record.", 2, ""),
        _setting("share.partition.max.record.locks", 2_000, "Maximum offsets in flight of a share partition.", 1, ""),
        Setting(
            AUTO_OFFSET_RESET,
            "text",
            "latest",
            "Where the group begins at a partition: latest, earliest or by_duration:PnDTnHnMn.nS.",
            illegal=(
                rf"(?!(?:{_RESETS})$).*",
                "Invalid value `{}`: it must be latest, earliest or by_duration:PnDTnHnMn.nS",
            ),
        ),
        Setting(
            ISOLATION_LEVEL,
            "text",
            "read_uncommitted",
            "Whether records of aborted and open transactions are delivered.",
            choices=("read_committed", "read_uncommitted"),
        ),
        Setting(RENEWS, "bool", True, "Whether members may renew their locks on records (KIP-1222)."),
    )
}
"""Settings of the share protocol's groups (KIP-932)."""
GROUP_CONFIGS: Mapping[str, Setting] = {**{one.name: one for one in _times_of("consumer")}, **SHARE_GROUP_CONFIGS}
"""Settings of both protocols' groups, which brokers offer if one of them is served, as Kafka 4.3 does."""


def _bounds_of(name: str) -> _Bounds:
    """Return the bounds of group.share.record.lock.duration.ms: group.share.min.record.lock.duration.ms, ..."""
    protocol, _, rest = name.partition(".")
    return _Bounds(f"group.{protocol}.min.{rest}", f"group.{protocol}.max.{rest}")


BOUNDING = frozenset(
    name
    for config in GROUP_CONFIGS.values()
    if config.broker_key is not None
    for name in (config.broker_key, *_bounds_of(config.name))
)
"""The broker settings by which groups' own are checked: a controller in KRaft mode has them, too."""


def check_group_configs(
    texts: Mapping[str, str], broker: Values, configs: Mapping[str, Setting] = GROUP_CONFIGS
) -> None:
    """Check that a group may have these settings of its own (rule 2).

    Args:
        texts: the group's, by name.
        broker: the broker's settings.
        configs: those that a group may have.

    Raises:
        TidegaugeError: INVALID_CONFIG, with Kafka's sentence.
    """
    given: dict[str, Any] = {}
    for name, text in texts.items():
        setting = configs.get(name)
        if setting is None:
            raise _refused(f"Unknown group config name: {name}{did_you_mean(name, configs)}")
        given[name] = setting.parse(text)
    for name, value in given.items():
        if configs[name].broker_key is None:
            continue
        low, high = _bounds_of(name)
        if value < broker[low]:
            raise _refused(f"{name} must be greater than or equal to {low} ({broker[low]}), and is {value}")
        if value > broker[high]:
            raise _refused(f"{name} must be less than or equal to {high} ({broker[high]}), and is {value}")
    values = Values(configs, _defaults(broker, configs) | given)
    for session in (name for name in configs if given and name.endswith(".session.timeout.ms")):
        _check_times(values, session, session.replace(".session.timeout.ms", ".heartbeat.interval.ms"))


def _check_times(values: Values, session: str, heartbeat: str) -> None:
    """Check that a session is longer than the interval between heartbeats.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    session_ms, heartbeat_ms = values[session], values[heartbeat]
    if session_ms <= heartbeat_ms:
        raise _refused(
            f"{session} ({session_ms}) must be greater than {heartbeat} ({heartbeat_ms}): members would expire between "
            "their heartbeats"
        )


def usable_group_configs(
    texts: Mapping[str, str], configs: Mapping[str, Setting] = GROUP_CONFIGS
) -> tuple[dict[str, str], list[str]]:
    """Return the usable ones of a group's stored settings, and the others' problems."""
    usable: dict[str, str] = {}
    problems: list[str] = []
    for name, text in texts.items():
        if name not in configs:
            problems.append(f"Unknown group config name: {name}")
            continue
        try:
            configs[name].parse(text)
        except TidegaugeError as problem:
            problems.append(problem.message)
        else:
            usable[name] = text
    return usable, problems


def group_values(texts: Mapping[str, str], broker: Values, configs: Mapping[str, Setting] = GROUP_CONFIGS) -> Values:
    """Return a group's settings in force.

    Usable ones of its own, within the bounds (rule 3), take precedence over the broker's.
    """
    given = _defaults(broker, configs)
    for name, text in texts.items():
        given[name] = configs[name].parse(text)
        if configs[name].broker_key is not None:
            low, high = _bounds_of(name)
            given[name] = max(broker[low], min(given[name], broker[high]))
    return Values(configs, given)


def _defaults(broker: Values, configs: Mapping[str, Setting]) -> dict[str, Any]:
    return {
        name: setting.default if setting.broker_key is None else broker[setting.broker_key]
        for name, setting in configs.items()
    }


def _refused(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)
