"""``tidegauge explore --world quorum``: every schedule of a small quorum of controllers.

Exit codes are the same as for ``explore``. With ``-o json`` one document: ``{"world","bounds":{NAME: VALUE},"states",
"transitions","depth","complete","digest","seconds","states_per_second","violations":[{"invariant","message","steps",
"schedule":[WORDS]}]}``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict

import click

from tidegauge.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_TOOL_FAILED, fail, print_json
from tidegauge_proof.cli.exploration_report import figures, states_per_second
from tidegauge_proof.cli.progress import ProgressLine
from tidegauge_proof.exhaustive.breadth_first import Exploration
from tidegauge_proof.exhaustive.quorum_explorer import QuorumExplorer, words_of
from tidegauge_proof.exhaustive.quorum_small import QuorumBounds, SmallQuorum

QUORUM = "quorum"
"""The world's name."""
MOST_NODES = 4
"""Maximum number of controllers: states are compared under all orders of the voters."""


def bounds_of(given: Mapping[str, int], *, split: bool) -> QuorumBounds:
    """Return the bounds that the options give.

    Args:
        given: the options that are numbers, by name.
        split: whether each response arrives in a step of its own.

    Raises:
        click.UsageError: there are too many controllers, or static voters would change.
    """
    voters, observers = given["voters"], given["observers"]
    if voters + observers > MOST_NODES:
        raise click.UsageError(
            f"--voters {voters} and --observers {observers} are {voters + observers} controllers; the search compares "
            f"states under all orders of names, and takes at most {MOST_NODES}"
        )
    if given["changes"] and given["kraft_version"] == 0:
        raise click.UsageError(
            "--changes needs --kraft-version 1: under kraft.version 0 the voters are given by the configuration "
            "(KIP-853)"
        )
    return QuorumBounds(
        voters=voters,
        observers=observers,
        version=given["kraft_version"],
        epochs=given["epochs"],
        records=given["records"],
        kills=given["crashes"],
        power_losses=given["power_cuts"],
        losses=given["losses"],
        late=given["late"],
        changes=given["changes"],
        snapshots=given["snapshots"],
        timeouts=given["timeouts"],
        split=split,
    )


def explore_quorum(bounds: QuorumBounds, *, max_states: int, fail_fast: bool, output: str) -> int:
    """Explore a small quorum, print the findings, and return the exit code."""
    explorer = QuorumExplorer(SmallQuorum(bounds), max_states=max_states, fail_fast=fail_fast)
    begun = time.monotonic()
    interrupted = False
    try:
        with ProgressLine(lambda: f"{explorer.reached} states, {explorer.result.depth} steps deep"):
            explorer.run()
    except KeyboardInterrupt:
        interrupted = True
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is no verdict on a controller
        fail(f"The exploration itself failed: {type(problem).__name__}: {problem}", output, exit_code=EXIT_TOOL_FAILED)
    result, seconds = explorer.result, time.monotonic() - begun
    if output == "json":
        print_json(_json_of(bounds, result, seconds))
    else:
        _print(max_states, result, seconds, interrupted=interrupted)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if result.found else EXIT_OK


def _json_of(bounds: QuorumBounds, result: Exploration, seconds: float) -> dict[str, object]:
    return {
        "world": QUORUM,
        "bounds": asdict(bounds),
        **figures(result, seconds),
        "violations": [
            {
                "invariant": found.invariant,
                "message": found.message,
                "steps": found.steps,
                "schedule": [words_of(action) for action in found.schedule],
            }
            for found in result.found
        ],
    }


def _print(max_states: int, result: Exploration, seconds: float, *, interrupted: bool) -> None:
    click.echo(
        f"{result.states} states and {result.transitions} transitions of a quorum, {result.depth} steps deep, "
        f"in {seconds:.1f} s ({states_per_second(result, seconds)} states a second), digest {result.digest}"
    )
    if interrupted:
        click.echo("Interrupted: there may be more states within the bounds.")
    elif result.complete:
        click.echo("Complete: there is no other state within the bounds.")
    elif result.states >= max_states:
        click.echo(f"Bounded at {max_states} states: there are more within the bounds.")
    else:
        click.echo("Stopped at the first violation.")
    if not result.found:
        click.echo("All invariants held.")
    for found in result.found:
        click.echo(f"{found.invariant} is broken in {found.steps} steps:")
        for number, action in enumerate(found.schedule, 1):
            click.echo(f"  {number:3}  {words_of(action)}")
        click.echo(f"  {found.message}")
