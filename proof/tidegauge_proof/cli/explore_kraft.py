"""``tidegauge explore --world kraft|kraft-without-elr``: every schedule of a smallest cluster in KRaft mode (KIP-966).

Exit codes are the same as for ``explore``. With ``-o json`` one document: ``{"world","bounds":{NAME: VALUE},"states",
"transitions","depth","complete","seconds","acknowledged","violations":[{"invariant","message","steps",
"schedule":[WORDS]}]}``, where ``acknowledged`` counts the states in which a record has been acknowledged.

It always runs interpreted, as the worlds with a coordinator do (``explore_coordinators``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import click

from tidegauge.cli import print_json
from tidegauge.machine_code import IN_USE
from tidegauge_proof.cli.exploration_report import Broken, print_findings, run_search
from tidegauge_proof.cli.explore_coordinators import run_interpreted
from tidegauge_proof.exhaustive.kraft_small import KRaftBounds, KRaftExploration, KRaftFound, explore_kraft

KRAFT, KRAFT_WITHOUT_ELR = "kraft", "kraft-without-elr"
"""The world with eligible leader replicas, and without."""
_RECORDS, _POWER_LOSSES = 1, 1
"""Bounds unless they are given: one record, and one power loss that may take it."""


def kraft_bounds_of(world: str, given: Mapping[str, int], named: frozenset[str]) -> KRaftBounds:
    """Return the bounds that the options give.

    Args:
        world: KRAFT or KRAFT_WITHOUT_ELR.
        given: the options that are numbers, by name.
        named: the ones that are on the command line.
    """
    return KRaftBounds(
        elr=world == KRAFT,
        records=given["records"] if "records" in named else _RECORDS,
        flushes=given["flushes"],
        stops=given["stops"],
        kills=given["crashes"],
        power_losses=given["power_cuts"] if "power_cuts" in named else _POWER_LOSSES,
    )


def explore_kraft_world(world: str, bounds: KRaftBounds, *, max_states: int, fail_fast: bool, output: str) -> int:
    """Explore a small cluster in KRaft mode, print the findings, and return the exit code."""
    if IN_USE.is_compiled:
        run_interpreted("a cluster")
    result = KRaftExploration()
    run = run_search(
        lambda: explore_kraft(bounds, max_states=max_states, fail_fast=fail_fast, result=result),
        lambda: f"{result.states} states, {result.depth} steps deep",
        output,
    )
    broken = [Broken(found.invariant, len(found.schedule), _words_of(found), found.message) for found in result.found]
    if output == "json":
        print_json(_json_of(world, bounds, result, run.seconds) | {"violations": [one.as_json() for one in broken]})
    else:
        click.echo(
            f"{result.states} states at rest and {result.transitions} transitions of {world}, {result.depth} steps "
            f"deep, in {run.seconds:.1f} s; a record has been acknowledged in {result.acknowledged} of the states"
        )
        print_findings(result, broken, max_states, interrupted=run.interrupted)
    return run.exit_code(broken)


def _words_of(found: KRaftFound) -> list[str]:
    """Return a schedule in words, a line for each step."""
    return [", and at once ".join(map(str, step)) for step in found.schedule]


def _json_of(world: str, bounds: KRaftBounds, result: KRaftExploration, seconds: float) -> dict[str, object]:
    return {
        "world": world,
        "bounds": asdict(bounds),
        "states": result.states,
        "transitions": result.transitions,
        "depth": result.depth,
        "complete": result.complete,
        "seconds": round(seconds, 3),
        "acknowledged": result.acknowledged,
    }
