"""``tidegauge explore``: every schedule of a small cluster of the real cores, breadth first.

A verb of its own, for it shares nothing with ``simulate`` but the core: bounds, not seeds and runs. Exit 0 if every
invariant held in every state that was reached, 1 if one was broken, 3 if the exploration itself failed. In text the
first schedule of each broken invariant follows, none of which can be shorter. With ``-o json`` one document:
``{"truncation","bounds":{NAME: VALUE},"states","transitions","depth","complete","digest","seconds","states_per_second",
"violations":[{"invariant","steps","schedule":[WORDS]}],"fault"}``, where ``fault`` is what went wrong in a rule of
one's own; ``complete`` says that there is no other state within the
bounds. ``--svg`` draws the first schedule. A terminal shows the progress; Ctrl-C prints the findings until then.
``--world group`` and ``--world transaction`` are in ``explore_coordinators``, ``--world quorum`` in ``explore_quorum``,
``--world kraft`` in ``explore_kraft``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import click

from tidegauge.cli import offline_verb_options, print_json, reports_errors, say
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.replica.rules import RULES
from tidegauge_lab.timeline.choice import Choice
from tidegauge_lab.timeline.drawing import draw
from tidegauge_proof.cli.exploration_report import Broken, figures, print_findings, run_search, summary
from tidegauge_proof.cli.explore_coordinators import explore_coordinators
from tidegauge_proof.cli.explore_kraft import KRAFT, KRAFT_WITHOUT_ELR, explore_kraft_world, kraft_bounds_of
from tidegauge_proof.cli.explore_quorum import MOST_NODES, QUORUM, bounds_of, explore_quorum
from tidegauge_proof.exhaustive.breadth_first import Exploration, Found
from tidegauge_proof.exhaustive.cluster import KAFKA, MODEL, Bounds
from tidegauge_proof.exhaustive.coordinated import GROUP, TRANSACTION, CoordinatorBounds
from tidegauge_proof.exhaustive.explorer import Explorer
from tidegauge_proof.exhaustive.live import Played
from tidegauge_proof.exhaustive.words import picture, tell
from tidegauge_proof.own_rules import OwnRuleError, OwnRules

_NAMES = [rule.name for rule in RULES]
_RULES = click.Choice(_NAMES)
_DEFAULT = Bounds()


class RuleOrFile(click.ParamType["str | OwnRules"]):
    """The name of a rule, or a file with rules of the caller."""

    name = "rule"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return how ``--help`` calls it."""
        del param, ctx
        return "NAME|FILE.py"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | OwnRules:
        """Return the name, or the file's rules; the file runs after a notice."""
        if isinstance(value, OwnRules) or value in _NAMES:
            return cast("str | OwnRules", value)
        if not str(value).endswith(".py"):
            self.fail(f"{value!r} is none of {', '.join(_NAMES)}, and no file of Python (.py)", param, ctx)
        say(f"Running the rules of {value} in this process: a file of Python may do whatever you may do.")
        try:
            return OwnRules(Path(value).read_text(encoding="utf-8"), Path(value).name)
        except OSError as problem:
            self.fail(f"{value} can not be read: {problem.strerror}", param, ctx)
        except UnicodeDecodeError:
            self.fail(f"{value} is no text in UTF-8", param, ctx)
        except OwnRuleError as problem:
            self.fail(str(problem), param, ctx)


_MOST_STATES = 1_000_000
_REPLICATION = "replication"


_BOUNDS = (
    ("--replicas", _DEFAULT.replicas, 1, 4, "Brokers, each with a replica."),
    (
        "--records",
        _DEFAULT.records,
        0,
        32,
        "Records that are produced; of a quorum 0, of a cluster in KRaft mode 1 unless it is given.",
    ),
    ("--elections", _DEFAULT.elections, 0, 16, "The highest leader epoch."),
    ("--messages", 0, 0, 4, "Messages that may be on their way at a time; 0: request and response are one step."),
    ("--crashes", 0, 0, 4, "Processes that die; with --controller kafka, or in another world than replication."),
    (
        "--power-cuts",
        0,
        0,
        4,
        "Power losses: the same, and unflushed records are lost that were reported to no other process; of a quorum: "
        "any that were not flushed; of a cluster in KRaft mode: all of them, and 1 unless it is given.",
    ),
    ("--sessions", 0, 0, 4, "Sessions that end though the process lives; with --controller kafka."),
    ("--min-isr", 1, 1, 4, "min.insync.replicas."),
    ("--max-states", _MOST_STATES, 1, 100_000_000, "Maximum number of states: the search stops there."),
)
"""Name, default, least, most, meaning."""


_COORDINATOR_BOUNDS = (
    ("--resignations", 0, 4, "Leaderships of the coordinator that end while its process lives on."),
    ("--failures", 0, 4, "Appends of the coordinator that are refused or time out, and markers that fail."),
    ("--losses", 0, 4, "Requests that a client gives up, and that may arrive late; connections of markers that end."),
    ("--duplicates", 0, 4, "Requests that arrive once more."),
    ("--ticks", 0, 8, "Steps of time: half a session; the timeout of a transaction."),
    ("--restarts", 0, 4, "Restarts of clients; of each producer, with those after a fatal error."),
    ("--static", 0, 2, "Members with a group instance id."),
    ("--commits", 0, 4, "Commits of offsets."),
    ("--leaves", 0, 2, "Members that leave."),
    ("--transactions", 1, 2, "Transactions of each producer."),
    ("--producers", 2, 2, "Producers with the transactional id."),
)
"""Of worlds with a coordinator: name, default, most, meaning."""
_QUORUM_BOUNDS = (
    ("--voters", 3, 1, MOST_NODES, "Controllers that are voters at the beginning."),
    ("--observers", 0, 0, 2, "Controllers that are no voters at the beginning."),
    ("--kraft-version", 0, 0, 1, "0: static voters; 1: voters that change."),
    ("--epochs", 1, 1, 4, "The highest epoch."),
    ("--timeouts", 2, 0, 16, "Timers that run out: a fetch, election or check-quorum timeout, at any time."),
    ("--late", 0, 0, 4, "Requests that arrive although their sender has given them up."),
    ("--changes", 0, 0, 4, "Additions and removals of voters; they need --kraft-version 1."),
    ("--snapshots", 0, 0, 4, "Snapshots that a controller writes and then begins its log behind."),
)
"""Of a quorum of controllers: name, default, least, most, meaning."""
_KRAFT_BOUNDS = (
    ("--stops", 1, 4, "Controlled shutdowns of brokers."),
    ("--flushes", 0, 4, "Flushes of a broker's logs."),
)
"""Of a cluster in KRaft mode: name, default, most, meaning."""
_OF_KRAFT = frozenset({"records", "crashes", "power_cuts", "stops", "flushes"})
_OF_COORDINATORS = frozenset({"crashes", "resignations", "failures", "losses", "duplicates", "ticks", "restarts"})
_OF_WORLDS = {
    _REPLICATION: frozenset(
        {"truncation", "controller", "replicas", "records", "elections", "messages", "crashes", "power_cuts"}
        | {"sessions", "min_isr", "unclean", "as_model", "acquits", "svg"}
    ),
    GROUP: _OF_COORDINATORS | {"static", "commits", "leaves"},
    TRANSACTION: _OF_COORDINATORS | {"transactions", "producers"},
    QUORUM: frozenset({"records", "crashes", "power_cuts", "losses", "split"})
    | {name.removeprefix("--").replace("-", "_") for name, *_ in _QUORUM_BOUNDS},
    KRAFT: _OF_KRAFT,
    KRAFT_WITHOUT_ELR: _OF_KRAFT,
}
"""The options that each world takes; all others concern every world."""


def _bounded(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that are numbers."""
    for name, default, most, words in reversed(_KRAFT_BOUNDS):
        help_ = f"With --world {KRAFT} or {KRAFT_WITHOUT_ELR}. {words}"
        command = click.option(name, type=click.IntRange(0, most), default=default, show_default=True, help=help_)(
            command
        )
    for name, default, least, most, words in reversed(_QUORUM_BOUNDS):
        number = click.IntRange(min=least, max=most)
        help_ = f"With --world {QUORUM}. {words}"
        command = click.option(name, type=number, default=default, show_default=True, help=help_)(command)
    for name, default, most, words in reversed(_COORDINATOR_BOUNDS):
        range_ = click.IntRange(min=0, max=most)
        worlds = [world for world in (GROUP, TRANSACTION, QUORUM) if name.removeprefix("--") in _OF_WORLDS[world]]
        help_ = f"With --world {' or '.join(worlds)}. {words}"
        command = click.option(name, type=range_, default=default, show_default=True, help=help_)(command)
    for name, default, least, most, words in reversed(_BOUNDS):
        number = click.IntRange(min=least, max=most)
        command = click.option(name, type=number, default=default, show_default=True, help=words)(command)
    return command


@click.command("explore")
@click.option(
    "--world",
    type=click.Choice([*_OF_WORLDS]),
    default=_REPLICATION,
    show_default=True,
    help="What is explored: replicas; a consumer group of two members, or a transactional producer and its successor, "
    "on a coordinator that dies and is loaded again; a Raft quorum of controllers; a cluster in KRaft mode of a "
    "controller and two brokers, with eligible leader replicas (KIP-966) or without.",
)
@click.option(
    "--truncation",
    "--rule",
    "truncation",
    type=RuleOrFile(),
    default="kip-320",
    show_default=True,
    help=f"How replicas find out where their logs part: {', '.join(_NAMES)}; or a file of Python, my_rule.py, with "
    "rules of your own, which is run as any program of yours.",
)
@click.option(
    "--controller",
    type=click.Choice([MODEL, KAFKA]),
    default=MODEL,
    show_default=True,
    help="Who elects: the published models' controller, which elects any member of the ISR and drops any whenever it "
    "likes; or Kafka's, as sessions end and begin.",
)
@_bounded
@click.option(
    "--split",
    is_flag=True,
    help=f"With --world {QUORUM}. Each response arrives in a step of its own; else one that is given at once arrives "
    "in the step of its request.",
)
@click.option("--unclean", is_flag=True, help="unclean.leader.election.enable=true; with --controller kafka.")
@click.option(
    "--as-model",
    is_flag=True,
    help="Grant two liberties of the published models: a truncation at every new epoch, even of the same leader; and "
    "an epoch lookup served by a broker that does not lead.",
)
@click.option("--acquits", type=_RULES, help="Count only what this other rule survives by the same schedule.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first violation.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw the first schedule as a diagram.")
@offline_verb_options
@reports_errors
def explore(
    world: str,
    truncation: str | OwnRules,
    controller: str,
    split: bool,
    unclean: bool,
    as_model: bool,
    acquits: str | None,
    max_states: int,
    fail_fast: bool,
    svg: Path | None,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
    **bounds: int,
) -> None:
    """Try every schedule of a small cluster, and tell which invariants break.

    Every order of produces, fetches, elections, ISR changes and late control requests within the bounds; with Kafka's
    controller also of crashes, power losses and lost sessions. The first schedule found for an invariant is a shortest
    one. The same bounds always give the same number of states. No cluster is needed.
    """
    del directory, bootstrap_server  # every verb takes them; nothing is contacted here
    _without_others(world)
    own = {name: value for name, value in bounds.items() if name in _OF_WORLDS[world]}
    if world == QUORUM:
        own["records"] = own["records"] if _is_given("records") else 0
        quorum = bounds_of(own, split=split)
        raise SystemExit(explore_quorum(quorum, max_states=max_states, fail_fast=fail_fast, output=output))
    if world in {KRAFT, KRAFT_WITHOUT_ELR}:
        smallest = kraft_bounds_of(world, own, frozenset(name for name in own if _is_given(name)))
        raise SystemExit(
            explore_kraft_world(world, smallest, max_states=max_states, fail_fast=fail_fast, output=output)
        )
    if world != _REPLICATION:
        small = CoordinatorBounds(world, **own)
        raise SystemExit(explore_coordinators(small, max_states=max_states, fail_fast=fail_fast, output=output))
    wanted = Bounds(controller=controller, unclean=unclean, as_model=as_model, **own)
    _check(wanted, truncation)
    explorer = Explorer(wanted, truncation, max_states=max_states, fail_fast=fail_fast, acquits=acquits)
    result = explorer.result
    run = run_search(explorer.run, lambda: f"{explorer.reached} states, {result.depth} steps deep", output)
    fault = truncation.fault if isinstance(truncation, OwnRules) else ""
    broken = [_broken(wanted, truncation, found) for found in result.found]
    if output == "json":
        print_json(_json_of(wanted, _called(truncation), result, broken, run.seconds) | {"fault": fault or None})
    else:
        click.echo(summary(result, f"under {_called(truncation)}", run.seconds))
        print_findings(result, broken, max_states, interrupted=run.interrupted)
        if fault:
            click.echo(f"{fault}. Kafka's decision was taken there, so what was found says nothing of the rule.")
    if svg is not None and result.found:
        _draw(svg, Played(wanted, truncation, result.found[0].schedule))
    raise SystemExit(run.exit_code(broken or ([fault] if fault else [])))


def _called(rule: str | OwnRules) -> str:
    """Return what the report calls a rule."""
    return f"{', '.join(rule.names)} of {rule.name}" if isinstance(rule, OwnRules) else rule


def _is_given(name: str) -> bool:
    """Whether an option is on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _without_others(world: str) -> None:
    """Refuse options that are given, and concern other worlds alone."""
    others = frozenset().union(*_OF_WORLDS.values()) - _OF_WORLDS[world]
    given = [
        f"--{name.replace('_', '-')}"
        for name in click.get_current_context().params
        if name in others and _is_given(name)
    ]
    if given:
        raise click.UsageError(f"--world {world} takes no {', '.join(sorted(given))}")


def _check(bounds: Bounds, rule: str | OwnRules) -> None:
    """Refuse what would be silently without effect."""
    if bounds.controller == KAFKA and bounds.as_model:
        raise click.UsageError("--as-model grants what the models take: it goes with --controller model")
    if isinstance(rule, OwnRules) and rule.election is not None and bounds.controller == MODEL:
        raise click.UsageError("elect decides for Kafka's controller: give --controller kafka, and --crashes 1")
    faults = bounds.crashes or bounds.power_cuts or bounds.sessions or bounds.unclean
    if bounds.controller == MODEL and faults:
        raise click.UsageError(
            "`--crashes`, `--power-cuts`, `--sessions` and `--unclean` need `--controller kafka`; in the models a "
            "broker that does nothing more is dead enough"
        )


def _broken(bounds: Bounds, rule: str | OwnRules, found: Found) -> Broken:
    """Tell a violation, with a picture of its last state."""
    played = Played(bounds, rule, found.schedule)
    words = tell(found.schedule, played.states)
    return Broken(found.invariant, len(found.schedule), words, picture(played.states[-1]))


def _json_of(
    bounds: Bounds, rule: str, result: Exploration, broken: Sequence[Broken], seconds: float
) -> dict[str, object]:
    return {
        "truncation": rule,
        "bounds": asdict(bounds),
        **figures(result, seconds),
        "violations": [{"invariant": one.invariant, "steps": one.steps, "schedule": one.schedule} for one in broken],
    }


def _draw(svg: Path, played: Played) -> None:
    try:
        svg.write_text(draw(played.events, Choice())[0], encoding="utf-8")
    except OSError as problem:
        raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{svg} can not be written: {problem.strerror}") from None
    say(f"{svg} is written.")
