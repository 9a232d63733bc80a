"""``tidegauge simulate --groups``: histories of a consumer group on coordinators that die, from one seed.

With ``-o json`` one document: ``{"seed","runs","steps","seconds","commits","rebalances","loads","died_with":{WHAT:
HISTORIES},"violations":[{"seed","step","invariant","message"}]}``. In text the last steps before the first violation
are printed; its seed gives the same history with ``--runs 1``. A search that is interrupted prints what was done.
"""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from tidegauge.cli import EXIT_FAILED, EXIT_OK, print_json, say
from tidegauge_proof.cli.progress import ProgressLine
from tidegauge_proof.simulator.groups.group_history import group_history_of
from tidegauge_proof.simulator.groups.group_search import GroupFinding, GroupSearchResult, search_groups

STORY_STEPS = 60
"""How many steps before a violation are printed."""


def simulate_groups(seed: int, runs: int, steps: int, *, jobs: int, fail_fast: bool, output: str) -> int:
    """Search for a history that breaks an invariant of groups (docs/simulation.md); return the exit code.

    Raises:
        KeyboardInterrupt: Ctrl-C; what came of the histories that were done has been printed.
    """
    so_far = GroupSearchResult()

    def report(result: GroupSearchResult) -> None:
        nonlocal so_far
        so_far = result

    def line() -> str:
        broken = f", {len(so_far.findings)} of them broke an invariant" if so_far.findings else ""
        return f"{so_far.runs} of {runs} runs{broken}"

    begun = time.monotonic()
    try:
        with ProgressLine(line):
            result = search_groups(range(seed, seed + runs), steps, jobs=jobs, fail_fast=fail_fast, report=report)
    except KeyboardInterrupt:
        say(f"Interrupted: {so_far.runs} of {runs} runs were done.")
        _print(seed, so_far, time.monotonic() - begun, output)
        raise
    _print(seed, result, time.monotonic() - begun, output)
    if result.findings and output != "json":
        _tell(result.findings[0], steps)
    return EXIT_FAILED if result.findings else EXIT_OK


def _print(seed: int, result: GroupSearchResult, seconds: float, output: str) -> None:
    """Print what came of the histories."""
    if output == "json":
        print_json(_json(seed, result, seconds))
    elif result.runs:
        _print_text(seed, result, seconds)


def _json(seed: int, result: GroupSearchResult, seconds: float) -> dict[str, object]:
    return {
        "seed": seed,
        "runs": result.runs,
        "steps": result.steps,
        "seconds": round(seconds, 3),
        "commits": result.commits,
        "rebalances": result.rebalances,
        "loads": result.loads,
        "died_with": dict(sorted(result.died_with.items())),
        "violations": [asdict(finding) for finding in result.findings],
    }


def _print_text(seed: int, result: GroupSearchResult, seconds: float) -> None:
    click.echo(
        f"{result.runs} histories of a group from seed {seed}: {result.steps} steps in {seconds:.1f} s, "
        f"{result.rebalances} rebalances, {result.commits} acknowledged commits, {result.loads} loads of a coordinator"
    )
    for moment, histories in sorted(result.died_with.items(), key=lambda one: (-one[1], one[0])):
        click.echo(f"  a coordinator died with: {moment}, in {histories} histories")
    if not result.findings:
        click.echo("All invariants held.")
        return
    for finding in result.findings:
        click.echo(f"seed {finding.seed}: step {finding.step} breaks {finding.invariant}: {finding.message}")


def _tell(finding: GroupFinding, steps: int) -> None:
    """Print the steps before a violation."""
    story = group_history_of(finding.seed, steps, tells=True).story
    first = max(0, len(story) - STORY_STEPS)
    click.echo(f"Seed {finding.seed}, from step {first + 1}:")
    for number, done in enumerate(story[first:], first + 1):
        click.echo(f"  {number:4}  {done or 'nothing'}")
    click.echo(f"  {finding.message}")
