"""Releases of Kafka that a broker can pass for: what they serve and support, and their mode (``tidegauge.as.kafka``).

Source: the message definitions and ``Feature`` of each release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import Protocol
from tidegauge.kafka.kraft.features import METADATA_VERSION, SHARE_VERSION, level_of_release
from tidegauge.kafka.release_versions import VERSIONS

_FIRST_OF_KRAFT = (4, 0)
_SINCE = {SHARE_VERSION: (4, 1), "streams.version": (4, 2)}
"""The release that first supports a feature at level 1, of those that 4.0 does not."""
Range = tuple[int, int]


class Release(NamedTuple):
    """A release of Kafka.

    Attributes:
        name: such as 3.4.
    """

    name: str

    @property
    def _number(self) -> tuple[int, ...]:
        return tuple(map(int, self.name.split(".")))

    @property
    def is_kraft(self) -> bool:
        """Whether brokers pass for it in KRaft mode; else in ZooKeeper mode."""
        return self._number >= _FIRST_OF_KRAFT

    @property
    def versions(self) -> dict[int, Range]:
        """The lowest and the highest version of each API that its brokers serve, by key."""
        found: dict[int, Range] = {}
        for one in VERSIONS[self.name].split():
            key, _, versions = one.partition(":")
            first, _, last = versions.partition("-")
            found[int(key)] = int(first), int(last)
        return found

    def served(self, protocol: Protocol) -> Protocol:
        """Return what both a protocol and this release have."""
        versions = self.versions
        both = {
            key: api._replace(first=max(api.first, versions[key][0]), last=min(api.last, versions[key][1]))
            for key, api in protocol.apis.items()
            if key in versions
        }
        return protocol.of({key: api for key, api in both.items() if api.first <= api.last})

    def supported(self, features: Mapping[str, Range]) -> dict[str, Range]:
        """Return the levels that some features and this release share."""
        found = {name: levels for name, levels in features.items() if self._number >= _SINCE.get(name, (0,))}
        lowest, highest = found[METADATA_VERSION]
        return found | {METADATA_VERSION: (lowest, min(highest, level_of_release(self.name)))}


def release_of(name: str, *, is_kraft: bool) -> Release | None:
    """Return the release that a broker imitates; None: the mode's own.

    Args:
        name: the value of the setting; empty: none.
        is_kraft: the broker's mode.

    Raises:
        TidegaugeError: INVALID_CONFIG, there is no such release, or brokers pass for it in the other mode alone.
    """
    if not name:
        return None
    if name not in VERSIONS:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {name} for configuration tidegauge.as.kafka: it must be one of {', '.join(VERSIONS)}",
        )
    release = Release(name)
    if release.is_kraft != is_kraft:
        found = [one for one in VERSIONS if Release(one).is_kraft == is_kraft]
        here, there = ("KRaft", "ZooKeeper") if is_kraft else ("ZooKeeper", "KRaft")
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"A broker in {here} mode does not pass for Kafka {name}: that takes {there} mode. "
            f"In {here} mode tidegauge.as.kafka is one of {', '.join(found)}",
        )
    return release
