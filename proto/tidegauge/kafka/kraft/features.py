"""Features of a KRaft cluster: their levels, the default levels of a release, and what a level depends on. Pure.

metadata.version says which metadata records may be written; the other features have levels of their own.
Source: ``MetadataVersion``, ``Feature`` and its versions in ``org.apache.kafka.server.common`` of Kafka 4.3.1; KIP-584,
KIP-1022.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
TRANSACTION_VERSION = "transaction.version"
LEVELS = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
"""The names of the stable levels of metadata.version."""
LATEST = max(LEVELS)
UNSTABLE = {31: "4.4-IV0"}
"""Levels that Kafka 4.3.1 knows and calls not yet stable."""
SCRAM_SINCE = 11
"""The level of metadata.version from which credentials of users are metadata records."""


KRAFT_VERSION_SINCE = 21
"""The level of metadata.version whose release brought kraft.version 1, which no format gives by default."""


class Feature(NamedTuple):
    """A feature besides metadata.version.

    Attributes:
        name: its name.
        highest: the highest level; the lowest is 0.
        defaults: pairs (level of metadata.version, level from there on that a new cluster gets), ascending.
        needs: the level of metadata.version that a level depends on.
    """

    name: str
    highest: int
    defaults: tuple[tuple[int, int], ...] = ()
    needs: Mapping[int, int] = {}

    def default_at(self, metadata_version: int) -> int:
        """Return the level that a new cluster of this metadata.version gets (Feature.defaultLevel)."""
        return max((level for since, level in self.defaults if metadata_version >= since), default=0)


FEATURES = {
    feature.name: feature
    for feature in (
        Feature(ELR_VERSION, 1, ((26, 1),), {1: 23}),
        Feature(GROUP_VERSION, 1, ((22, 1),)),
        Feature(KRAFT_VERSION, 1),
        Feature(SHARE_VERSION, 1, ((28, 1),)),
        Feature("streams.version", 1, ((29, 1),)),
        Feature(TRANSACTION_VERSION, 2, ((24, 2),)),
    )
}
"""The features, by name, in the order of the names."""


def level_of_release(text: str) -> int:
    """Return the level of metadata.version for a release such as 4.3 or 4.3-IV0.

    Raises:
        TidegaugeError: INVALID_CONFIG, no stable level has this name (MetadataVersion.fromVersionString).
    """
    matching = [level for level, name in LEVELS.items() if text == name or name.startswith(f"{text}-")]
    if not matching:
        known = ", ".join(LEVELS.values())
        raise _refusal(f"Unknown metadata.version '{text}'. Supported metadata.version are: {known}")
    return max(matching)


def check_metadata_level(level: int) -> None:
    """Refuse a level of metadata.version that does not exist or is not stable.

    Raises:
        TidegaugeError: INVALID_CONFIG (MetadataVersion.fromFeatureLevel, Formatter.verifyReleaseVersion).
    """
    if level in UNSTABLE:
        raise _refusal(f"{METADATA_VERSION} {UNSTABLE[level]} is not yet stable.")
    if level not in LEVELS:
        bounds = f"from {min(LEVELS)} to {max(UNSTABLE)}"
        raise _refusal(f"No MetadataVersion with feature level {level}. Valid feature levels are {bounds}.")


def check_levels(levels: Mapping[str, int]) -> None:
    """Refuse levels that do not exist, or that depend on a higher metadata.version.

    Args:
        levels: by the feature's name, metadata.version among them.

    Raises:
        TidegaugeError: INVALID_CONFIG (Feature.fromFeatureLevel, Feature.validateVersion).
    """
    for name, level in sorted(levels.items()):
        if name == METADATA_VERSION:
            continue
        if not 0 <= level <= FEATURES[name].highest:
            raise _refusal(f"No feature:{name} with feature level {level}")
        needed = FEATURES[name].needs.get(level, 0)
        if levels[METADATA_VERSION] < needed:
            raise _refusal(
                f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level {needed}"
            )


def check_known(name: str) -> None:
    """Refuse a feature that does not exist.

    Raises:
        TidegaugeError: INVALID_CONFIG (Formatter.calculateEffectiveFeatureLevels).
    """
    if name != METADATA_VERSION and name not in FEATURES:
        raise _refusal(f"Unsupported feature: {name}. Supported features are: {', '.join(FEATURES)}")


def _refusal(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)


def read_feature(text: str) -> tuple[str, int]:
    """Return the name and level of a text such as ``metadata.version=29`` (FeatureCommand.parseNameAndLevel).

    Raises:
        TidegaugeError: INVALID_CONFIG, the text has another form.
    """
    name, equals, level = text.partition("=")
    unread = f"Can't parse feature=level string {text}"
    if not equals:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"{unread}: equals sign not found.")
    try:
        return name.strip(), int(level)
    except ValueError:
        sentence = f"{unread}: unable to parse {level.strip()} as a short."
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, sentence) from None


def read_features(texts: Iterable[str]) -> dict[str, int]:
    """Return the levels of features from texts such as ``metadata.version=29``, by name.

    Raises:
        TidegaugeError: INVALID_CONFIG, a text has another form, or names a feature again (FeatureCommand's sentence).
    """
    found: dict[str, int] = {}
    for name, level in map(read_feature, texts):
        if name in found:
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"Feature {name} was specified more than once.")
        found[name] = level
    return found
