"""Which releases of Kafka the brokers of a cluster pass for, as ``--as-kafka [N:]RELEASE`` says it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.release_versions import VERSIONS
from tidegauge.kafka.releases import Release

_SETTING = "tidegauge.as.kafka"


class AsKafka(NamedTuple):
    """The release that brokers pass for.

    Attributes:
        settings: of the brokers, as ``--set`` takes them.
        is_kraft: whether a release has its brokers in KRaft mode.
        lowest: the lowest release, whose features a new cluster in KRaft mode can have; None: nothing was asked for.
    """

    settings: dict[str, str]
    is_kraft: bool
    lowest: str | None


def as_kafka(texts: Iterable[str]) -> AsKafka:
    """Read the values of ``--as-kafka``.

    Raises:
        TidegaugeError: INVALID_CONFIG, one names no release, or no broker, or they need both modes.
    """
    settings: dict[str, str] = {}
    named: set[str] = set()
    for text in texts:
        scope, separator, name = text.rpartition(":")
        if name not in VERSIONS or (separator and not scope.isdecimal()):
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"--as-kafka {text} is not [N:]RELEASE: N is a broker's id, RELEASE one of {', '.join(VERSIONS)}",
            )
        named.add(name)
        settings[f"{scope}:{_SETTING}" if separator else _SETTING] = name
    releases = [Release(name) for name in VERSIONS if name in named]
    modes = {one.is_kraft for one in releases}
    if len(modes) > 1:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            "Brokers pass for Kafka before 4.0 in ZooKeeper mode, and for later ones in KRaft mode; a cluster has one "
            f"mode, and --as-kafka names {' and '.join(one.name for one in releases)}",
        )
    return AsKafka(settings, True in modes, releases[0].name if releases else None)
