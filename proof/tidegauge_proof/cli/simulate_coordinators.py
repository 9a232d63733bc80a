"""``tidegauge simulate --world``: histories of groups, of transactions, or of both on coordinators that die.

With ``-o json`` one document: ``{"world","requests","seed","runs","steps","events","seconds","events_per_second",
"loads","died_with":{WHAT: HISTORIES},"violations":[{"seed","step","invariant","message"}],"compiled"}`` and the
world's own counts: of groups ``commits`` and ``rebalances``. In text the last steps before the first violation are
printed; its seed gives the same history with ``--runs 1``. An interrupted search prints its progress; if it
keeps a record, the next call goes on after the last whole piece.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, EXIT_OK, print_json, say
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_proof.cli.progress import ProgressLine
from tidegauge_proof.simulator.coordinator_search import (
    KINDS,
    CoordinatorFinding,
    CoordinatorPlan,
    CoordinatorResult,
    Report,
    search_coordinators,
    search_coordinators_in_pieces,
)
from tidegauge_proof.simulator.search import IS_COMPILED

STORY_STEPS = 60
"""How many steps before a violation are printed."""
_JSON_NAMES = {"generations": "rebalances"}


def simulate_coordinators(
    plan: CoordinatorPlan, *, jobs: int, fail_fast: bool, record: Path | None, output: str
) -> int:
    """Search for a history that breaks an invariant of coordinators (docs/simulated-worlds.md); return the exit code.

    Raises:
        KeyboardInterrupt: Ctrl-C; what came of the histories that were done has been printed.
    """
    so_far = CoordinatorResult()

    def report(result: CoordinatorResult) -> None:
        nonlocal so_far
        so_far = result

    def line() -> str:
        broken = f", {len(so_far.findings)} of them broke an invariant" if so_far.findings else ""
        return f"{so_far.runs} of {plan.runs} runs{broken}"

    try:
        with ProgressLine(line):
            result = _search(plan, record, report, jobs=jobs, fail_fast=fail_fast)
    except KeyboardInterrupt:
        say(f"Interrupted: {so_far.runs} of {plan.runs} runs were done.")
        if record is not None:
            say(f"{record} keeps its whole pieces; the same command goes on there.")
        _print(plan, so_far, output)
        raise
    _print(plan, result, output)
    if result.findings and output != "json":
        _tell(plan, result.findings[0])
    return EXIT_FAILED if result.findings else EXIT_OK


def _search(
    plan: CoordinatorPlan, record: Path | None, report: Report, *, jobs: int, fail_fast: bool
) -> CoordinatorResult:
    if record is None:
        return search_coordinators(plan, jobs=jobs, fail_fast=fail_fast, report=report)
    try:
        return search_coordinators_in_pieces(plan, record, jobs=jobs, fail_fast=fail_fast, report=report)
    except OSError as problem:
        words = f"{record} can not be used: {problem.strerror}"
        raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, words) from None


def _print(plan: CoordinatorPlan, result: CoordinatorResult, output: str) -> None:
    """Print what came of the histories."""
    if output == "json":
        print_json(_json(plan, result))
    elif result.runs:
        _print_text(plan, result)


def _json(plan: CoordinatorPlan, result: CoordinatorResult) -> dict[str, object]:
    return {
        "world": plan.world,
        "requests": plan.requests,
        "seed": plan.seed,
        "runs": result.runs,
        "steps": result.steps,
        "events": result.events,
        "seconds": round(result.seconds, 3),
        "events_per_second": _rate(result),
        **{_JSON_NAMES.get(name, name): result.counts[name] for name in KINDS[plan.world].counts},
        "loads": result.loads,
        "died_with": dict(sorted(result.died_with.items())),
        "violations": [asdict(finding) for finding in result.findings],
        "compiled": IS_COMPILED,
    }


def _rate(result: CoordinatorResult) -> int:
    return round(result.events / max(result.seconds, 1e-6))


def _print_text(plan: CoordinatorPlan, result: CoordinatorResult) -> None:
    kind = KINDS[plan.world]
    counts = [f"{result.counts[name]} {words}" for name, words in kind.counts.items()]
    click.echo(
        f"{result.runs} histories of {kind.words} from seed {plan.seed}: {result.steps} steps in "
        f"{result.seconds:.1f} s ({result.events} events, {_rate(result)} a second), {', '.join(counts)}, "
        f"{result.loads} loads of a coordinator{'; compiled' * IS_COMPILED}"
    )
    for moment, histories in sorted(result.died_with.items(), key=lambda one: (-one[1], one[0])):
        click.echo(f"  a coordinator died with: {moment}, in {histories} histories")
    if not result.findings:
        click.echo("All invariants held.")
        return
    for finding in result.findings:
        click.echo(f"seed {finding.seed}: step {finding.step} breaks {finding.invariant}: {finding.message}")


def _tell(plan: CoordinatorPlan, finding: CoordinatorFinding) -> None:
    """Print the steps before a violation."""
    story = plan.history(finding.seed, tells=True).story
    first = max(0, len(story) - STORY_STEPS)
    click.echo(f"Seed {finding.seed}, from step {first + 1}:")
    for number, done in enumerate(story[first:], first + 1):
        click.echo(f"  {number:4}  {done or 'nothing'}")
    click.echo(f"  {finding.message}")
