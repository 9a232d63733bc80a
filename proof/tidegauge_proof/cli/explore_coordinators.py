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
from dataclasses import asdict
from typing import NoReturn

import click

from tidegauge.cli import print_json, say
from tidegauge.machine_code import IN_USE, VARIABLE
from tidegauge_proof.cli.exploration_report import Broken, figures, print_findings, run_search, summary
from tidegauge_proof.exhaustive.coordinated import GROUP, CoordinatorBounds, CoordinatorExplorer, words_of
from tidegauge_proof.exhaustive.group_cluster import GroupCluster
from tidegauge_proof.exhaustive.transaction_cluster import TransactionCluster


def explore_coordinators(bounds: CoordinatorBounds, *, max_states: int, fail_fast: bool, output: str) -> int:
    """Explore a world with a coordinator, print the findings, and return the exit code."""
    if IN_USE.is_compiled:
        run_interpreted("a coordinator")
    world = GroupCluster(bounds) if bounds.world == GROUP else TransactionCluster(bounds)
    explorer = CoordinatorExplorer(world, max_states=max_states, fail_fast=fail_fast)
    result = explorer.result
    run = run_search(explorer.run, lambda: f"{explorer.reached} states, {result.depth} steps deep", output)
    broken = [Broken(found.invariant, found.steps, words_of(world, found), found.message) for found in result.found]
    limits = asdict(bounds)
    name = limits.pop("world")
    if output == "json":
        violations = [one.as_json() for one in broken]
        print_json({"world": name, "bounds": limits, **figures(result, run.seconds), "violations": violations})
    else:
        click.echo(summary(result, f"of a {name}", run.seconds))
        print_findings(
            result,
            broken,
            max_states,
            interrupted=run.interrupted,
            also_missing=", and not all were let come to rest",
            also_complete=", and from each all comes to rest in order",
        )
    return run.exit_code(broken)


def run_interpreted(machine: str) -> NoReturn:
    """Put the same command, interpreted, in the place of this process, since a kind of machine can't be copied else."""
    say(f"Interpreted, since the functions that {machine} keeps for later can't be copied when they are compiled.")
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, VARIABLE: "off"})  # noqa: S606 - our own command, once more
