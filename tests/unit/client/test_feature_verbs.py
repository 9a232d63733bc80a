"""``describe-features``, ``upgrade-features`` and ``disable-feature``: kafka-features' lines, and refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cli import features
from tidegauge_client.cli.main import root
from tidegauge_client.quorum_admin import FeatureView, UpgradeType

AT = ["--bootstrap-controller", "127.0.0.1:9000"]
FOUND = [
    FeatureView("eligible.leader.replicas.version", 0, 1, 1, 282),
    FeatureView("metadata.version", 7, 30, 30, 282),
]
LINES = """\
Feature: eligible.leader.replicas.version          SupportedMinVersion: 0                \
SupportedMaxVersion: 1                FinalizedVersionLevel: 1                Epoch: 282
Feature: metadata.version                          SupportedMinVersion: 3.3-IV3          \
SupportedMaxVersion: 4.3-IV0          FinalizedVersionLevel: 4.3-IV0          Epoch: 282
"""
REFUSAL = "The update failed for all features since the following feature had an error: it is so"
asked: list[tuple[dict[str, int], UpgradeType, bool]] = []


class FakeAdmin:
    """An active controller that refuses whatever raises a feature above 30."""

    def __init__(self, controllers: Sequence[str]) -> None:
        assert controllers == ["127.0.0.1:9000"]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def features(self) -> list[FeatureView]:
        return FOUND

    async def update_features(self, levels: Mapping[str, int], kind: UpgradeType, *, validate_only: bool) -> None:
        asked.append((dict(levels), kind, validate_only))
        if max(levels.values()) > 30:
            raise TidegaugeError(ErrorCode.INVALID_UPDATE_VERSION, REFUSAL)


@pytest.fixture(autouse=True)
def controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked.clear()
    monkeypatch.setattr(features, "QuorumAdmin", FakeAdmin)


def verb(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(root, [*words, *AT])
    return done.exit_code, done.output


def test_features_are_described_as_kafkas_tool_describes_them() -> None:
    """FeatureCommand.handleDescribe: levels of metadata.version have the names of releases."""
    assert verb("describe-features") == (0, LINES)


def test_levels_are_raised_together_and_each_has_its_line() -> None:
    """FeatureCommand.update, in the order of the names; a dry run changes nothing (KIP-584)."""
    wanted = ("--feature", "group.version=1", "--metadata", "4.2")
    assert verb("upgrade-features", *wanted) == (
        0,
        "group.version was upgraded to 1.\nmetadata.version was upgraded to 29.\n",
    )
    assert verb("upgrade-features", *wanted, "--dry-run")[1].startswith("group.version can be upgraded to 1.\n")
    levels = {"group.version": 1, "metadata.version": 29}
    assert asked == [(levels, UpgradeType.UPGRADE, False), (levels, UpgradeType.UPGRADE, True)]


def test_a_release_stands_for_the_levels_of_all_features() -> None:
    """KIP-1022: those that a cluster of this release starts with; kraft.version rises too."""
    verb("upgrade-features", "--release-version", "4.0")
    expected = {"group.version": 1, "kraft.version": 1, "metadata.version": 25, "transaction.version": 2}
    assert asked == [(expected, UpgradeType.UPGRADE, False)]


@pytest.mark.parametrize(
    ("words", "kind"), [((), UpgradeType.SAFE_DOWNGRADE), (("--unsafe",), UpgradeType.UNSAFE_DOWNGRADE)]
)
def test_a_feature_is_disabled_by_level_0(words: tuple[str, ...], kind: UpgradeType) -> None:
    """FeatureCommand.handleDisable: the safe way, unless asked otherwise."""
    assert verb("disable-feature", "--feature", "group.version", *words) == (0, "group.version was disabled.\n")
    assert asked == [({"group.version": 0}, kind, False)]


def test_a_refusal_stands_behind_each_feature_and_ends_the_verb_with_1() -> None:
    """The controller sets all levels or none (ReplicationControlManager, KIP-1022)."""
    assert verb("upgrade-features", "--feature", "metadata.version=99") == (
        1,
        f"Could not upgrade metadata.version to 99. {REFUSAL}\n1 out of 1 operation(s) failed.\n",
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name a feature"),
        (("--feature", "group.version"), "equals sign not found"),
        (("--feature", "group.version=1", "--feature", "group.version=0"), "was specified more than once"),
        (("--feature", "a=1", "--release-version", "4.3"), "stands alone"),
        (("--feature", "metadata.version=30", "--metadata", "4.3"), "ask for the same"),
        (("--metadata", "7.7"), "Unknown metadata.version '7.7'"),
    ],
)
def test_what_can_not_be_read_is_refused_before_anyone_is_asked(words: tuple[str, ...], why: str) -> None:
    code, output = verb("upgrade-features", *words)
    assert code != 0
    assert why in " ".join(output.split())
    assert asked == []
