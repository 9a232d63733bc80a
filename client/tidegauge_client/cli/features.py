"""``describe-features``, ``upgrade-features``, ``disable-feature``: the features of a cluster in KRaft mode.

Lines follow ``FeatureCommand`` (kafka-features.sh). KIP-584, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from tidegauge.cli import controller_verb_options, print_json, print_text, reports_errors
from tidegauge.errors import TidegaugeError
from tidegauge.kafka.kraft.features import (
    FEATURES,
    KRAFT_VERSION,
    KRAFT_VERSION_SINCE,
    LEVELS,
    METADATA_VERSION,
    level_of_release,
    read_features,
)
from tidegauge_client.cli.common import JSON, run
from tidegauge_client.cli.quorum import bootstrap_controller, controllers
from tidegauge_client.quorum_admin import FeatureView, QuorumAdmin, UpgradeType


@click.command("describe-features")
@bootstrap_controller
@controller_verb_options
@reports_errors
def describe_features(
    bootstrap_controller: str | None, output: str, directory: Path, bootstrap_server: str | None
) -> None:
    """Show which levels of features the controllers support, and which are in force in the cluster."""
    del bootstrap_server  # every verb takes it; controllers are asked
    asked = controllers(bootstrap_controller, directory)

    async def work() -> list[FeatureView]:
        async with QuorumAdmin(asked) as admin:
            return await admin.features()

    found = run(work())
    if output == JSON:
        print_json({"features": [one._asdict() for one in found]})
    else:
        print_text("\n".join(map(feature_line, found)))


@click.command("upgrade-features")
@click.option(
    "--feature", "wanted", multiple=True, metavar="NAME=LEVEL", help="A feature and its new level; may be repeated."
)
@click.option("--metadata", metavar="RELEASE", help="The release whose metadata.version is wanted, such as 4.3.")
@click.option("--release-version", metavar="RELEASE", help="All features at the levels that this release starts with.")
@click.option("--dry-run", is_flag=True, help="Say whether it can be done, and change nothing.")
@bootstrap_controller
@controller_verb_options
@reports_errors
def upgrade_features(
    wanted: tuple[str, ...],
    metadata: str | None,
    release_version: str | None,
    dry_run: bool,
    bootstrap_controller: str | None,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
) -> None:
    """Raise levels of features: what brokers and controllers may write and speak from then on."""
    del bootstrap_server  # every verb takes it; controllers are asked
    levels = _wanted_levels(wanted, metadata, release_version)
    _update("upgrade", levels, UpgradeType.UPGRADE, dry_run, controllers(bootstrap_controller, directory), output)


@click.command("disable-feature")
@click.option("--feature", "names", multiple=True, required=True, metavar="NAME", help="The feature; may be repeated.")
@click.option("--unsafe", is_flag=True, help="Even if metadata may be lost by it.")
@click.option("--dry-run", is_flag=True, help="Say whether it can be done, and change nothing.")
@bootstrap_controller
@controller_verb_options
@reports_errors
def disable_feature(
    names: tuple[str, ...],
    unsafe: bool,
    dry_run: bool,
    bootstrap_controller: str | None,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
) -> None:
    """Bring features down to level 0."""
    del bootstrap_server  # every verb takes it; controllers are asked
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    asked = controllers(bootstrap_controller, directory)
    _update("disable", dict.fromkeys(names, 0), kind, dry_run, asked, output)


def _wanted_levels(wanted: tuple[str, ...], metadata: str | None, release: str | None) -> dict[str, int]:
    """Return the levels that options ask for, by feature.

    Raises:
        TidegaugeError: INVALID_CONFIG, a text can't be read, or no release has this name.
    """
    if release is not None:
        if wanted or metadata is not None:
            raise click.UsageError("--release-version stands alone: it names the levels of all features")
        level = level_of_release(release)
        found = {feature.name: feature.default_at(level) for feature in FEATURES.values()}
        found[KRAFT_VERSION] = int(level >= KRAFT_VERSION_SINCE)
        return {name: one for name, one in found.items() if one} | {METADATA_VERSION: level}
    levels = read_features(wanted)
    if metadata is not None:
        if METADATA_VERSION in levels:
            raise click.UsageError(f"--metadata and --feature {METADATA_VERSION}=... ask for the same")
        levels[METADATA_VERSION] = level_of_release(metadata)
    if not levels:
        raise click.UsageError("name a feature: --feature NAME=LEVEL, --metadata RELEASE or --release-version RELEASE")
    return levels


def _update(
    operation: str, levels: Mapping[str, int], kind: UpgradeType, dry_run: bool, asked: list[str], output: str
) -> None:
    """Ask for levels and print what became of them; a refusal ends the verb with 1."""

    async def work() -> None:
        async with QuorumAdmin(asked) as admin:
            await admin.update_features(levels, kind, validate_only=dry_run)

    problem: TidegaugeError | None = None
    try:
        run(work())
    except TidegaugeError as refused:
        problem = refused
    if problem is not None and (output == JSON or not problem.message.startswith("The update failed")):
        raise problem
    if output == JSON:
        print_json({"features": dict(sorted(levels.items())), "dry_run": dry_run})
        return
    print_text("\n".join(outcome_lines(operation, levels, None if problem is None else problem.message, dry_run)))
    if problem is not None:
        raise SystemExit(1)


def feature_line(one: FeatureView) -> str:
    """Return the line of ``describe`` (FeatureCommand.handleDescribe)."""

    def text(level: int) -> str:
        return LEVELS.get(level, str(level)) if one.name == METADATA_VERSION else str(level)

    return (
        f"Feature: {one.name:<42}SupportedMinVersion: {text(one.lowest):<17}SupportedMaxVersion: "
        f"{text(one.highest):<17}FinalizedVersionLevel: {text(one.level):<17}Epoch: {one.epoch}"
    )


def outcome_lines(operation: str, levels: Mapping[str, int], problem: str | None, dry_run: bool) -> list[str]:
    """Return a line for each feature, and one that counts refusals (FeatureCommand.update).

    Args:
        operation: upgrade or disable.
        levels: the requested ones, by feature.
        problem: why the whole request was refused; None: it was not.
        dry_run: whether nothing was to be changed.
    """
    lines = []
    for name, level in sorted(levels.items()):
        if problem is None:
            done = "disabled." if operation == "disable" else f"{operation}d to {level}."
            lines.append(f"{name} {'can be' if dry_run else 'was'} {done}")
        else:
            what = f"disable {name}" if operation == "disable" else f"{operation} {name} to {level}"
            lines.append(f"{'Can' if dry_run else 'Could'} not {what}. {problem}")
    if problem is not None:
        lines.append(f"{len(levels)} out of {len(levels)} operation(s) failed.")
    return lines
