"""``tidegauge explore --world quorum``: every schedule of a small quorum of controllers.

Exit codes are the same as for ``explore``. With ``-o json`` one document: ``{"world","bounds":{NAME: VALUE},"states",
"transitions","depth","complete","digest","seconds","states_per_second","violations":[{"invariant","message","steps",
"schedule":[WORDS]}]}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import click

from tidegauge.cli import print_json
from tidegauge_proof.cli.exploration_report import Broken, figures, print_findings, run_search, summary
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
    result = explorer.result
    run = run_search(explorer.run, lambda: f"{explorer.reached} states, {result.depth} steps deep", output)
    broken = [
        Broken(found.invariant, found.steps, list(map(words_of, found.schedule)), found.message)
        for found in result.found
    ]
    if output == "json":
        violations = [one.as_json() for one in broken]
        print_json(
            {"world": QUORUM, "bounds": asdict(bounds), **figures(result, run.seconds), "violations": violations}
        )
    else:
        click.echo(summary(result, "of a quorum", run.seconds))
        print_findings(result, broken, max_states, interrupted=run.interrupted)
    return run.exit_code(broken)
