"""``tidegauge explore --world group|transaction``: every schedule of clients on a coordinator that dies.

Exit codes are the same as for ``explore``. With ``-o json`` one document: ``{"world","bounds":{NAME: VALUE},"states",
"transitions","depth","complete","digest","seconds","states_per_second","violations":[{"invariant","message","steps",
"schedule":[WORDS]}]}``. ``steps`` counts until the faults end; a schedule may go on from there, until it shows
that clients do not come to rest in order.

It always runs interpreted: the states of a coordinator are copied with the functions that it keeps for later
(snapshot.py), and the functions of machine code can't be copied. If this process is compiled, it says so on stderr
and starts itself again without.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from typing import NoReturn

import click

from tidegauge.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_TOOL_FAILED, fail, print_json, say
from tidegauge.machine_code import IN_USE, VARIABLE
from tidegauge_proof.cli.exploration_report import figures, states_per_second
from tidegauge_proof.cli.progress import ProgressLine
from tidegauge_proof.exhaustive.breadth_first import Exploration
from tidegauge_proof.exhaustive.coordinated import GROUP, CoordinatorBounds, CoordinatorExplorer, words_of
from tidegauge_proof.exhaustive.group_cluster import GroupCluster
from tidegauge_proof.exhaustive.transaction_cluster import TransactionCluster


def explore_coordinators(bounds: CoordinatorBounds, *, max_states: int, fail_fast: bool, output: str) -> int:
    """Explore a world with a coordinator, print the findings, and return the exit code."""
    if IN_USE.is_compiled:
        run_interpreted("a coordinator")
    world = GroupCluster(bounds) if bounds.world == GROUP else TransactionCluster(bounds)
    explorer = CoordinatorExplorer(world, max_states=max_states, fail_fast=fail_fast)
    begun = time.monotonic()
    interrupted = False
    try:
        with ProgressLine(lambda: f"{explorer.reached} states, {explorer.result.depth} steps deep"):
            explorer.run()
    except KeyboardInterrupt:
        interrupted = True
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is no verdict on a coordinator
        fail(f"The exploration itself failed: {type(problem).__name__}: {problem}", output, exit_code=EXIT_TOOL_FAILED)
    result, seconds = explorer.result, time.monotonic() - begun
    schedules = [words_of(world, found) for found in result.found]
    if output == "json":
        print_json(_json_of(bounds, result, schedules, seconds))
    else:
        _print(bounds, max_states, result, schedules, seconds, interrupted=interrupted)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if result.found else EXIT_OK


def run_interpreted(machine: str) -> NoReturn:
    """Put the same command, interpreted, in the place of this process, since a kind of machine can't be copied else."""
    say(f"Interpreted, since the functions that {machine} keeps for later can't be copied when they are compiled.")
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, VARIABLE: "off"})  # noqa: S606 - our own command, once more


def _json_of(
    bounds: CoordinatorBounds, result: Exploration, schedules: list[list[str]], seconds: float
) -> dict[str, object]:
    limits = asdict(bounds)
    return {
        "world": limits.pop("world"),
        "bounds": limits,
        **figures(result, seconds),
        "violations": [
            {"invariant": found.invariant, "message": found.message, "steps": found.steps, "schedule": words}
            for found, words in zip(result.found, schedules, strict=True)
        ],
    }


def _print(
    bounds: CoordinatorBounds,
    max_states: int,
    result: Exploration,
    schedules: list[list[str]],
    seconds: float,
    *,
    interrupted: bool,
) -> None:
    click.echo(
        f"{result.states} states and {result.transitions} transitions of a {bounds.world}, {result.depth} steps deep, "
        f"in {seconds:.1f} s ({states_per_second(result, seconds)} states a second), digest {result.digest}"
    )
    if interrupted:
        click.echo("Interrupted: there may be more states within the bounds, and not all were let come to rest.")
    elif result.complete:
        click.echo("Complete: there is no other state within the bounds, and from each all comes to rest in order.")
    elif result.states >= max_states:
        click.echo(f"Bounded at {max_states} states: there are more within the bounds.")
    else:
        click.echo("Stopped at the first violation.")
    if not result.found:
        click.echo("All invariants held.")
    for found, words in zip(result.found, schedules, strict=True):
        click.echo(f"{found.invariant} is broken in {found.steps} steps:")
        for number, line in enumerate(words, 1):
            click.echo(f"  {number:3}  {line}")
        click.echo(f"  {found.message}")
