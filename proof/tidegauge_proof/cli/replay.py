"""``tidegauge replay FILE...``: drive the core through traces, one message at a time.

For each file a line: whether all invariants held, else which was broken first at which step. Exit 0 if they held in
all files, 1 if one was broken, 2 if a file is no trace (then none is replayed), 3 if the replay itself failed. With
``-o json`` a line for each file,
``{"file","rule","held","violations":[{"step","invariant"}],"refused":[{"step","why"}]}``, and with
``"lost_by_power":[{"step","replica","offset","epoch"}]`` where a power loss took records. Steps count from 1.
"""

from __future__ import annotations

from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, EXIT_OK, EXIT_TOOL_FAILED, fail, offline_verb_options, print_json, reports_errors
from tidegauge_broker.replica.rules import RULES
from tidegauge_proof.simulator.replay import Outcome, replay
from tidegauge_proof.simulator.trace import Trace, TraceError, read_trace

DEFAULT_RULE = "kip-320"


@click.command("replay")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option(
    "--truncation",
    type=click.Choice([rule.name for rule in RULES]),
    default=DEFAULT_RULE,
    show_default=True,
    help="How replicas find out where their logs part.",
)
@click.option(
    "--as-model",
    is_flag=True,
    help="Grant two liberties of the published models: a truncation at every new epoch, even of the same leader; and "
    "an epoch lookup served by a broker that does not lead.",
)
@offline_verb_options
@reports_errors
def replay_verb(
    files: tuple[Path, ...],
    truncation: str,
    as_model: bool,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
) -> None:
    """Drive the core through the traces in FILE... and tell which invariants hold.

    No cluster is needed: the real core runs without a process, a disk or a network.
    """
    del directory, bootstrap_server  # every verb takes them; nothing is contacted here
    traces = [(path, _read(path)) for path in files]
    held = True
    for path, trace in traces:
        try:
            outcome = replay(trace, truncation, as_model=as_model)
        except Exception as problem:  # noqa: BLE001 - whatever it is: not the trace failed, the tool did
            words = str(problem) or type(problem).__name__
            fail(f"{path}: the replay itself failed: {words}", output, exit_code=EXIT_TOOL_FAILED)
        held = held and outcome.held
        if output == "json":
            print_json(_json_of(path, outcome))
        else:
            _print(path, trace, outcome)
    raise SystemExit(EXIT_OK if held else EXIT_FAILED)


def _read(path: Path) -> Trace:
    try:
        return read_trace(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} is no trace: it is not UTF-8 text") from None
    except OSError as problem:
        raise click.UsageError(f"{path} cannot be read: {problem.strerror}") from None
    except TraceError as problem:
        raise click.UsageError(f"{path} is no trace: {problem}") from None


def _json_of(path: Path, outcome: Outcome) -> dict[str, object]:
    fields: dict[str, object] = {
        "file": str(path),
        "rule": outcome.rule,
        "held": outcome.held,
        "violations": outcome.violations,
        "refused": outcome.refused,
    }
    if outcome.lost_by_power:
        fields["lost_by_power"] = outcome.lost_by_power
    return fields


def _print(path: Path, trace: Trace, outcome: Outcome) -> None:
    steps = f"{len(trace.steps)} steps under {outcome.rule}"
    if outcome.held:
        click.echo(f"{path}: {steps}: all invariants held")
    else:
        broken = ", ".join(f"{one['invariant']} at step {one['step']}" for one in outcome.violations)
        click.echo(f"{path}: {steps}: broken: {broken}")
    for one in outcome.refused:
        click.echo(f"  step {one['step']} refused: {one['why']}")
    for one in outcome.lost_by_power:
        click.echo(
            f"  step {one['step']}: lost by power: offset {one['offset']} of epoch {one['epoch']} on {one['replica']}"
        )
