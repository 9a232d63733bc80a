"""The configs of a share group, which stand before the broker's settings: names, defaults, ranges and checks.

A group has configs of its own as a resource of the type GROUP; one that is not set has the value of the broker's
setting of a similar name. The broker bounds what a group may set.
Source: GroupConfig, ShareGroupConfig and GroupCoordinatorConfig of Kafka 4.3; ShareGroupAutoOffsetResetStrategy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError

LATEST, EARLIEST, BY_DURATION = "latest", "earliest", "by_duration"
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"
AUTO_OFFSET_RESET, ISOLATION_LEVEL = "share.auto.offset.reset", "share.isolation.level"
RENEWS = "share.renew.acknowledge.enable"


class NumberConfig(NamedTuple):
    """A config that is a number.

    Attributes:
        name: of the group.
        setting: of the broker: the value of a group that sets none.
        default: of the setting.
        lowest: default of the setting that bounds it from below, whose name is ``minimum``.
        highest: default of the setting that bounds it from above, whose name is ``maximum``.
    """

    name: str
    setting: str
    default: int
    lowest: int
    highest: int

    @property
    def minimum(self) -> str:
        """Name of the broker's setting that bounds the config from below."""
        return _bound(self.setting, "min")

    @property
    def maximum(self) -> str:
        """Name of the broker's setting that bounds the config from above."""
        return _bound(self.setting, "max")


def _bound(setting: str, which: str) -> str:
    """Return the name of a bound: group.share.min.heartbeat.interval.ms of group.share.heartbeat.interval.ms."""
    return setting.replace("group.share.", f"group.share.{which}.", 1)


SESSION_TIMEOUT = NumberConfig("share.session.timeout.ms", "group.share.session.timeout.ms", 45_000, 45_000, 60_000)
HEARTBEAT_INTERVAL = NumberConfig(
    "share.heartbeat.interval.ms", "group.share.heartbeat.interval.ms", 5_000, 5_000, 15_000
)
RECORD_LOCK_DURATION = NumberConfig(
    "share.record.lock.duration.ms", "group.share.record.lock.duration.ms", 30_000, 15_000, 60_000
)
DELIVERY_COUNT_LIMIT = NumberConfig("share.delivery.count.limit", "group.share.delivery.count.limit", 5, 2, 10)
MAX_RECORD_LOCKS = NumberConfig(
    "share.partition.max.record.locks", "group.share.partition.max.record.locks", 2000, 100, 4000
)
ASSIGNMENT_INTERVAL = NumberConfig(
    "share.assignment.interval.ms", "group.share.assignment.interval.ms", 1_000, 0, 15_000
)
NUMBERS = (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    RECORD_LOCK_DURATION,
    DELIVERY_COUNT_LIMIT,
    MAX_RECORD_LOCKS,
    ASSIGNMENT_INTERVAL,
)
"""In the order in which Kafka checks them."""
NAMES = frozenset({one.name for one in NUMBERS} | {AUTO_OFFSET_RESET, ISOLATION_LEVEL, RENEWS})
"""All configs of a share group."""


@dataclass(frozen=True, slots=True)
class ShareGroupConfigs:
    """The configs in force for a group.

    Attributes:
        auto_offset_reset: latest, earliest or by_duration:<ISO 8601>.
    """

    session_timeout_ms: int = SESSION_TIMEOUT.default
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL.default
    assignment_interval_ms: int = ASSIGNMENT_INTERVAL.default
    record_lock_duration_ms: int = RECORD_LOCK_DURATION.default
    delivery_count_limit: int = DELIVERY_COUNT_LIMIT.default
    max_record_locks: int = MAX_RECORD_LOCKS.default
    auto_offset_reset: str = LATEST
    reads_committed: bool = False
    renews_locks: bool = True


def in_force(of_group: Mapping[str, str], of_broker: Mapping[str, int]) -> ShareGroupConfigs:
    """Return a group's configs, which are checked as a whole.

    Args:
        of_group: those that the group sets, by name.
        of_broker: the broker's settings and bounds, by name; one that is missing has Kafka's default.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    for name in of_group:
        if name not in NAMES:
            raise _invalid(f"Unknown group config name: {name}")
    values = {one: _number(one, of_group, of_broker) for one in NUMBERS}
    for one, value in values.items():
        if one is ASSIGNMENT_INTERVAL and one.name not in of_group:
            continue
        if value < of_broker.get(one.minimum, one.lowest):
            raise _invalid(f"{one.name} must be greater than or equal to {one.minimum}")
        if value > of_broker.get(one.maximum, one.highest):
            raise _invalid(f"{one.name} must be less than or equal to {one.maximum}")
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise _invalid(f"{SESSION_TIMEOUT.name} must be greater than {HEARTBEAT_INTERVAL.name}")
    return ShareGroupConfigs(
        session_timeout_ms=values[SESSION_TIMEOUT],
        heartbeat_interval_ms=values[HEARTBEAT_INTERVAL],
        assignment_interval_ms=values[ASSIGNMENT_INTERVAL],
        record_lock_duration_ms=values[RECORD_LOCK_DURATION],
        delivery_count_limit=values[DELIVERY_COUNT_LIMIT],
        max_record_locks=values[MAX_RECORD_LOCKS],
        auto_offset_reset=_reset(of_group.get(AUTO_OFFSET_RESET, LATEST)),
        reads_committed=_choice(ISOLATION_LEVEL, of_group, READ_UNCOMMITTED, READ_COMMITTED) == READ_COMMITTED,
        renews_locks=_choice(RENEWS, of_group, "true", "false") == "true",
    )


def _number(one: NumberConfig, of_group: Mapping[str, str], of_broker: Mapping[str, int]) -> int:
    text = of_group.get(one.name)
    if text is None:
        return of_broker.get(one.setting, one.default)
    if not re.fullmatch(r"\s*-?[0-9]{1,10}\s*", text):
        raise _invalid(f"Invalid value {text} for configuration {one.name}: Not a number of type INT")
    return int(text)


def _choice(name: str, of_group: Mapping[str, str], default: str, other: str) -> str:
    value = of_group.get(name, default).strip().lower()
    if value not in {default, other}:
        raise _invalid(f"Invalid value {of_group[name]} for configuration {name}: it must be {default} or {other}")
    return value


def _reset(text: str) -> str:
    strategy, _, duration = text.partition(":")
    strategy = strategy.lower()
    if text.lower() in {LATEST, EARLIEST}:
        return strategy
    if strategy == BY_DURATION and duration_ms(duration) is not None:
        return f"{BY_DURATION}:{duration}"
    raise _invalid(
        f"Invalid value {text} for configuration {AUTO_OFFSET_RESET}: it must be {LATEST}, {EARLIEST} or "
        f"{BY_DURATION}:PnDTnHnMn.nS, which is not negative"
    )


_DURATION = re.compile(
    r"P(?:(?P<d>[0-9]{1,9})D)?(?:T(?=[0-9])(?:(?P<h>[0-9]{1,9})H)?(?:(?P<m>[0-9]{1,9})M)?"
    r"(?:(?P<s>[0-9]{1,9})(?:[.,](?P<f>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int | None:
    """Return a duration of ISO 8601 in whole ms, as java.time.Duration reads it; None: it is none, or is negative."""
    found = _DURATION.fullmatch(text)
    if found is None or text.upper() in {"P", "PT"}:
        return None
    days, hours, minutes, seconds = (int(found[part] or 0) for part in "dhms")
    fraction_ms = int((found["f"] or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms


def _invalid(message: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, message)
