"""Common parts of exhaustive searches on the command line: their run, and their reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import click

from tidegauge.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_TOOL_FAILED, fail
from tidegauge_proof.cli.progress import ProgressLine
from tidegauge_proof.exhaustive.breadth_first import Exploration


class Searched(Protocol):
    """The part of a search's result that its last sentences need."""

    states: int
    complete: bool


class Run(NamedTuple):
    """How a search went.

    Attributes:
        seconds: its duration.
        interrupted: whether Ctrl-C ended it.
    """

    seconds: float
    interrupted: bool

    def exit_code(self, found: Sequence[object]) -> int:
        """Return the exit code of a search with these violations."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if found else EXIT_OK


class Broken(NamedTuple):
    """A violation in words.

    Attributes:
        invariant: its name.
        steps: the number of steps that break it.
        schedule: a line for each step.
        message: the checker's, or a picture of the last state.
    """

    invariant: str
    steps: int
    schedule: Sequence[str]
    message: str

    def as_json(self) -> dict[str, object]:
        """Return its part of a search's JSON."""
        return {
            "invariant": self.invariant,
            "message": self.message,
            "steps": self.steps,
            "schedule": list(self.schedule),
        }


def run_search(search: Callable[[], object], progress: Callable[[], str], output: str) -> Run:
    """Search with a line of progress; a failure of the search itself is no verdict, and ends the command."""
    begun = time.monotonic()
    interrupted = False
    try:
        with ProgressLine(progress):
            search()
    except KeyboardInterrupt:
        interrupted = True
    except Exception as problem:  # noqa: BLE001 - no exception is a verdict on the code under test
        fail(f"The exploration itself failed: {type(problem).__name__}: {problem}", output, exit_code=EXIT_TOOL_FAILED)
    return Run(time.monotonic() - begun, interrupted)


def states_per_second(result: Exploration, seconds: float) -> int:
    """Return how many states a search has visited in a second, rounded."""
    return round(result.states / max(seconds, 1e-6))


def summary(result: Exploration, of: str, seconds: float) -> str:
    """Return the first sentence of a report.

    Args:
        result: the search's.
        of: the explored world, with its preposition.
        seconds: its duration.
    """
    return (
        f"{result.states} states and {result.transitions} transitions {of}, {result.depth} steps deep, "
        f"in {seconds:.1f} s ({states_per_second(result, seconds)} states a second), digest {result.digest}"
    )


def figures(result: Exploration, seconds: float) -> dict[str, object]:
    """Return the figures of a search for its JSON, in printed order."""
    return {
        "states": result.states,
        "transitions": result.transitions,
        "depth": result.depth,
        "complete": result.complete,
        "digest": result.digest,
        "seconds": round(seconds, 3),
        "states_per_second": states_per_second(result, seconds),
    }


def print_findings(
    result: Searched,
    broken: Sequence[Broken],
    max_states: int,
    *,
    interrupted: bool,
    also_missing: str = "",
    also_complete: str = "",
) -> None:
    """Print why the search ended, and its violations.

    Args:
        result: the search's.
        broken: its violations.
        max_states: the limit of states.
        interrupted: whether Ctrl-C ended it.
        also_missing: ends the sentence about an interrupted search.
        also_complete: ends the sentence about a complete one.
    """
    if interrupted:
        click.echo(f"Interrupted: there may be more states within the bounds{also_missing}.")
    elif result.complete:
        click.echo(f"Complete: there is no other state within the bounds{also_complete}.")
    elif result.states >= max_states:
        click.echo(f"Bounded at {max_states} states: there are more within the bounds.")
    else:
        click.echo("Stopped at the first violation.")
    if not broken:
        click.echo("All invariants held.")
    for one in broken:
        click.echo(f"{one.invariant} is broken in {one.steps} steps:")
        for number, line in enumerate(one.schedule, 1):
            click.echo(f"  {number:3}  {line}")
        click.echo(f"  {one.message}")
