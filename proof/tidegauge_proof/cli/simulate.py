"""``tidegauge simulate``: random histories of a cluster of the real cores, all from one seed.

Exit 0 if every invariant held after every event of every run, 1 if one was broken, 3 if the simulator itself failed.
With ``-o json`` one document: ``{"seed","runs","steps","seconds","steps_per_second","truncation",
"violations":[{"seed","run","step","invariant","message"}],"mode","lost":[{"seed","message"}],"coverage":{"states",
"transitions","events":{KIND: COUNT}},"events","events_per_second","losses","compiled"}``; runs and steps are those that
were done, events are calls of brokers' cores and controllers' requests to ZooKeeper. With ``--record`` a long search is
done in pieces that a file keeps (record.py); ``lost`` is empty then. A violation's own seed gives the same history with
``--runs 1``. In text the first violation is printed as a short schedule, too; ``--svg`` draws that. ``--scenario`` and
``--schedule`` write files that ``tidegauge scenario run`` plays on real processes: a story that breaks an invariant
there, and the short schedule as far as it can be forced. A terminal shows how far the search is; Ctrl-C prints what
came of the runs done until then. Worlds with coordinators are in ``simulate_coordinators``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import click

from tidegauge.cli import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_TOOL_FAILED,
    fail,
    offline_verb_options,
    print_json,
    reports_errors,
    say,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.replica.rules import RULES
from tidegauge_lab.timeline.choice import Choice
from tidegauge_lab.timeline.drawing import draw
from tidegauge_proof.cli.progress import ProgressLine
from tidegauge_proof.cli.simulate_coordinators import simulate_coordinators
from tidegauge_proof.hand.flaws import by_hand
from tidegauge_proof.hand.schedule import write_schedule
from tidegauge_proof.hand.settings import RULE_NAMES
from tidegauge_proof.simulator.acts import words_of
from tidegauge_proof.simulator.coordinator_search import GROUPS, KINDS, CoordinatorPlan
from tidegauge_proof.simulator.coverage import EACH
from tidegauge_proof.simulator.exactly_once.network import MODES, TIMELY
from tidegauge_proof.simulator.lab_story import LIMIT, as_scenario, find_story
from tidegauge_proof.simulator.record import search_in_pieces
from tidegauge_proof.simulator.schedule_scenario import as_scenario as scenario_of_schedule
from tidegauge_proof.simulator.search import (
    IS_COMPILED,
    Finding,
    Ongoing,
    SearchPlan,
    SearchResult,
    SimulatorFailed,
    search,
)
from tidegauge_proof.simulator.shrink import shrink
from tidegauge_proof.simulator.simulation import DEFAULT_POWER, DEFAULT_RULE, POWER_MODES, History, history_of
from tidegauge_proof.simulator.swarm import MAY_LOSE, MUST_SURVIVE

_FILE = click.Path(path_type=Path, dir_okay=False)
_TOPICS = "topics"


@click.command("simulate")
@click.option(
    "--world",
    type=click.Choice([_TOPICS, *KINDS]),
    default=_TOPICS,
    show_default=True,
    help="What histories are of: replicated topics; a consumer group; a share group; transactions; consume, transform, "
    "produce with both; the same with one fault at each named step; a Raft quorum of controllers; a cluster in KRaft "
    "mode, with eligible leader replicas or without.",
)
@click.option("--groups", is_flag=True, help="Short for --world groups.")
@click.option(
    "--requests",
    type=click.Choice(MODES),
    default=TIMELY,
    show_default=True,
    help="With --world transactions or exactly-once: which requests may arrive though their sender has given them up: "
    "none; all that end no other transaction; all.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the first run.")
@click.option("--runs", type=click.IntRange(min=1), default=1000, show_default=True, help="How many histories.")
@click.option("--steps", type=click.IntRange(min=1), default=500, show_default=True, help="Events in each history.")
@click.option(
    "--truncation",
    type=click.Choice([rule.name for rule in RULES]),
    default=DEFAULT_RULE,
    show_default=True,
    help="How replicas find out where their logs part.",
)
@click.option(
    "--mode",
    type=click.Choice([MUST_SURVIVE, MAY_LOSE]),
    default=DEFAULT_POWER,
    show_default=True,
    help="must-survive: only power losses that must not lose data; may-lose: any power loss, and each loss must be "
    "explained by the last in-sync copy.",
)
@click.option(
    "--power",
    type=click.Choice([power for power in POWER_MODES if power not in {MUST_SURVIVE, MAY_LOSE}]),
    help="Instead of a mode: what a power loss may take: nothing; unflushed records that no other process has seen; "
    "those not reported by a follower; those that are not committed; any that are not flushed.",
)
@click.option(
    "--directories",
    type=click.IntRange(1, 4),
    help="Log directories of each broker; with several there are several partitions, and disks that fail.  [default: "
    "one or two, by the seed]",
)
@click.option("--svg", type=_FILE, help="Draw the first violation's short schedule as a sequence diagram.")
@click.option(
    "--scenario",
    type=_FILE,
    help="Write a scenario that breaks an invariant under the same rule on real processes; where none is found, as "
    "--schedule does.",
)
@click.option(
    "--schedule",
    type=_FILE,
    help="Write the short schedule itself as a scenario: what can't be forced on real processes stands as comments.",
)
@click.option(
    "--record",
    type=_FILE,
    help="Keep what came of each 2000 histories (of worlds with coordinators: 200) as a line of JSON in this file, and "
    "go on where it ends.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: one for each core]")
@click.option("--fail-fast", is_flag=True, help="Stop at the first violation.")
@offline_verb_options
@reports_errors
def simulate(
    world: str,
    groups: bool,
    requests: str,
    seed: int,
    runs: int,
    steps: int,
    truncation: str,
    mode: str,
    power: str | None,
    directories: int | None,
    svg: Path | None,
    scenario: Path | None,
    schedule: Path | None,
    record: Path | None,
    jobs: int | None,
    fail_fast: bool,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
) -> None:
    """Search for a history in which the replication core, or a coordinator, breaks an invariant.

    Crashes, power losses, partitions, lost and late messages, elections and dying controllers in every order, from one
    seed; the same seed gives the same histories. No cluster is needed.
    """
    del directory, bootstrap_server  # every verb takes them; nothing is contacted here
    world = GROUPS if groups else world
    _without(_OF_COORDINATORS if world == _TOPICS else _OF_TOPICS, "--groups" if groups else f"--world {world}")
    if world != _TOPICS:
        if requests not in KINDS[world].requests:
            raise click.UsageError(f"--world {world} takes no --requests {requests}")
        of_coordinators = CoordinatorPlan(world, seed, runs, steps, requests)
        raise SystemExit(
            simulate_coordinators(
                of_coordinators, jobs=jobs or _cores(), fail_fast=fail_fast, record=record, output=output
            )
        )
    plan = SearchPlan(seed, runs, steps, truncation, power or mode, directories)
    ongoing = Ongoing()
    try:
        with ProgressLine(lambda: _so_far(plan, ongoing)):
            result = _search(plan, record, jobs or _cores(), ongoing, fail_fast=fail_fast)
    except KeyboardInterrupt:
        _tell_what_was_done(plan, ongoing, record, output)
        raise
    except SimulatorFailed as problem:
        fail(f"The simulator itself failed: {problem}", output, exit_code=EXIT_TOOL_FAILED)
    if output == "json":
        print_json(_json_of(plan, result))
    else:
        _print(plan, result)
    if result.findings:
        _explain(plan, result.findings[0], _Files(svg, scenario, schedule), in_words=output != "json")
    raise SystemExit(EXIT_FAILED if result.findings else EXIT_OK)


_OF_TOPICS = frozenset({"truncation", "mode", "power", "directories", "svg", "scenario", "schedule"})
_OF_COORDINATORS = frozenset({"requests"})


def _without(others: frozenset[str], world: str) -> None:
    """Refuse options that are given, and concern other worlds alone."""
    context = click.get_current_context()
    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if name in others and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{world} takes no {', '.join(sorted(given))}")


def _so_far(plan: SearchPlan, ongoing: Ongoing) -> str:
    """Say how far the search is, for the line on the terminal."""
    broken = f", {ongoing.violations} of them broke an invariant" if ongoing.violations else ""
    return f"{ongoing.runs} of {plan.runs} runs{broken}"


def _tell_what_was_done(plan: SearchPlan, ongoing: Ongoing, record: Path | None, output: str) -> None:
    """Print what came of an interrupted search; of one in pieces, what its file keeps."""
    say(f"Interrupted: {ongoing.runs} of {plan.runs} runs were done.")
    if record is not None:
        say(f"{record} keeps {ongoing.done.runs} of them; the same command goes on there.")
    result = ongoing.now if record is None else ongoing.done
    if output == "json":
        print_json(_json_of(plan, result))
    elif result.runs:
        _print(plan, result)


def _search(plan: SearchPlan, record: Path | None, jobs: int, ongoing: Ongoing, *, fail_fast: bool) -> SearchResult:
    if record is None:
        return search(plan, jobs=jobs, fail_fast=fail_fast, ongoing=ongoing)
    try:
        return search_in_pieces(plan, record, jobs=jobs, fail_fast=fail_fast, ongoing=ongoing)
    except OSError as problem:
        words = f"{record} can not be used: {problem.strerror}"
        raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, words) from None


def _cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _json_of(plan: SearchPlan, result: SearchResult) -> dict[str, object]:
    return {
        "seed": plan.seed,
        "runs": result.runs,
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
        "steps_per_second": _rate(result.steps, result),
        "truncation": plan.rule,
        "violations": [finding._asdict() for finding in result.findings],
        "mode": plan.power,
        "lost": [{"seed": seed, "message": words} for seed, words in result.lost],
        "coverage": result.coverage.as_json(),
        "events": result.events,
        "events_per_second": _rate(result.events, result),
        "losses": result.losses,
        "compiled": IS_COMPILED,
    }


def _rate(count: int, result: SearchResult) -> int:
    return round(count / max(result.seconds, 1e-6))


def _print(plan: SearchPlan, result: SearchResult) -> None:
    click.echo(
        f"{result.runs} runs from seed {plan.seed} under {plan.rule}: {result.steps} steps in {result.seconds:.1f} s "
        f"({_rate(result.steps, result)} a second; {result.events} events, {_rate(result.events, result)} a second), "
        f"{result.leader_epochs} leader epochs, {result.acknowledged} acknowledged produces"
        f"{'; compiled' * IS_COMPILED}"
    )
    seen = result.coverage
    click.echo(
        f"Seen in every {EACH}th run: {len(seen.states)} states of replicas and {len(seen.transitions)} transitions by "
        f"{len(seen.events)} kinds of events."
    )
    for seed, words in result.lost:
        click.echo(f"seed {seed}: lost by power: {words}")
    if result.losses > len(result.lost):
        click.echo(f"Power losses took committed records {result.losses} times, with the last in-sync copy.")
    if not result.findings:
        click.echo("All invariants held.")
        return
    for finding in result.findings:
        click.echo(f"seed {finding.seed}: step {finding.step} breaks {finding.invariant}: {finding.message}")


class _Files(NamedTuple):
    """Files to write for the first violation."""

    svg: Path | None
    scenario: Path | None
    schedule: Path | None


def _explain(plan: SearchPlan, finding: Finding, files: _Files, *, in_words: bool) -> None:
    """Print the first violation: a short schedule in words and as a picture, and a story for real processes."""
    svg, scenario, schedule = files
    found = None if scenario is None else find_story(finding.seed, plan.rule)
    if scenario is not None and found is None:
        say(f"{LIMIT} stories of what can be done to real processes break nothing under {plan.rule}.")
        schedule = schedule or scenario
    if in_words or svg is not None or schedule is not None:
        say(f"Looking for a short schedule of seed {finding.seed} ...")
        short = shrink(
            history_of(finding.seed, plan.steps, plan.rule, plan.power, directories=plan.directories),
            plan.rule,
            plan.power,
        )
        if in_words:
            _tell(short)
        if svg is not None:
            _write(svg, draw(short.events, Choice())[0])
        if schedule is not None:
            _write(schedule, scenario_of_schedule(short, plan.rule, plan.power))
    if scenario is not None and found is not None:
        number, story = found
        _write(scenario, as_scenario(story, number, plan.rule))
        flaw = by_hand(story, number, RULE_NAMES.index(plan.rule))
        if flaw is not None:
            say(f"In a browser: tidegauge play --schedule {write_schedule(flaw.schedule)}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} can not be written: {problem.strerror}") from None
    say(f"{path} is written.")


def _tell(short: History) -> None:
    assert short.violation is not None
    seed, count = short.seed, len(short.story)
    click.echo(f"The settings of seed {seed} break {short.violation.invariant} in {count} steps:")
    for number, done in enumerate(short.story, 1):
        click.echo(f"  {number:3}  {words_of(done) or 'nothing'}")
    click.echo(f"  {short.violation.message}")
