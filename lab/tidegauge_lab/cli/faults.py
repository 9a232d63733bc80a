"""``tidegauge kill``, ``stop``, ``pause``, ``resume``, ``start``: faults on processes of the cluster in ``--dir``.

Contract: targets are ids, ``--zookeeper``, or a role that is resolved once; wrong usage (no target,
ids and a role together, an id that is no number) ends with 2 before anything was contacted. Each verb returns when its
effect is true and prints a line per process; what was so already exits 0 too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import directory_option, output_option, print_json, say
from tidegauge.partition import TopicPartition
from tidegauge_lab.cli.common import BrokerIdType, called, directory_argument, lab_verb
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster, Outcome, Target
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.roles import Role, RoleKind, read_group

_DONE = {"kill": "Killed", "stop": "Stopped", "pause": "Paused", "resume": "Resumed", "start": "Started"}


class PartitionType(click.ParamType[TopicPartition]):
    """``TOPIC-PARTITION`` on the command line."""

    name = "T-P"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicPartition:
        """Read it; a usage error if it has another form."""
        if isinstance(value, TopicPartition):
            return value
        try:
            return TopicPartition.parse(str(value))
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class GroupType(click.ParamType[str]):
    """``group:G`` on the command line; its value is the group's id."""

    name = "group:G"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the value, or fail as a usage error."""
        try:
            return read_group(str(value))
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the targets of a fault."""
    decorators = [
        click.argument("ids", nargs=-1, type=BrokerIdType(), metavar="[ID]..."),
        click.option("--leader-of", type=PartitionType(), metavar="T-P", help="The broker that leads this partition."),
        click.option("--follower-of", type=PartitionType(), metavar="T-P", help="A broker that follows there."),
        click.option("--coordinator-of", type=GroupType(), metavar="group:G", help="The coordinator of this group."),
        click.option("--controller", is_flag=True, help="The broker that is the active controller."),
        click.option("--zookeeper", is_flag=True, help="The cluster's own ZooKeeper."),
        directory_option,
        output_option,
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def read_targets(
    ids: Sequence[int],
    leader_of: TopicPartition | None,
    follower_of: TopicPartition | None,
    *,
    controller: bool,
    coordinator_of: str | None = None,
) -> Role | list[Target]:
    """Return the role, or the ids, that were given (an empty list for neither); one way at a time.

    Raises:
        click.UsageError: two ways at once.
    """
    given: list[Role] = []
    if leader_of is not None:
        given.append(Role(RoleKind.LEADER, leader_of))
    if follower_of is not None:
        given.append(Role(RoleKind.FOLLOWER, follower_of))
    if coordinator_of is not None:
        given.append(Role(RoleKind.COORDINATOR, group=coordinator_of))
    if controller:
        given.append(Role(RoleKind.CONTROLLER))
    if len(given) + bool(ids) > 1:
        raise click.UsageError(
            "Name brokers in one way: by ID, --leader-of, --follower-of, --coordinator-of or --controller."
        )
    return given[0] if given else list(ids)


def _run(
    verb: str,
    options: dict[str, Any],
    fits: ProcessState | None,
    action: Callable[[LocalCluster, Sequence[Target]], list[Outcome]],
) -> None:
    """Name the targets, do it, tell it."""
    wanted = read_targets(
        options["ids"],
        options["leader_of"],
        options["follower_of"],
        controller=bool(options["controller"]),
        coordinator_of=options["coordinator_of"],
    )
    if not wanted and not options["zookeeper"]:
        raise click.UsageError(
            "Name a process: ID..., --leader-of T-P, --follower-of T-P, --coordinator-of group:G, --controller or "
            "--zookeeper."
        )
    directory: Path = options["directory"]
    cluster = LocalCluster(directory)
    targets: list[Target] = []
    role = wanted if isinstance(wanted, Role) else None
    if role is not None:
        targets = [cluster.resolve(role, fits)]
    elif isinstance(wanted, list):
        targets = wanted
    if options["zookeeper"]:
        targets = [*targets, ZOOKEEPER]
    outcomes = action(cluster, targets)
    if options["output"] == "json":
        print_json({"action": verb, "role": None if role is None else str(role), "processes": _as_json(verb, outcomes)})
        return
    for outcome in outcomes:
        if not outcome.changed:
            say(f"{_subject(outcome)} is {outcome.state.value} already")
            continue
        because = f", {role}" if role is not None and outcome.target != ZOOKEEPER else ""
        click.echo(f"{_DONE[verb]} {called(outcome.process)}{because} (process {outcome.pid}).")
        if outcome.lost_bytes:
            say(f"The power loss took {outcome.lost_bytes} bytes that {called(outcome.process)} had never flushed")
    killed = [outcome.target for outcome in outcomes if outcome.changed and outcome.target != ZOOKEEPER]
    if verb == "kill" and killed:
        say(_next_step(role, killed[0], directory))


def _next_step(role: Role | None, killed: Target, directory: Path) -> str:
    """Return what to wait for after a kill: others learn of it only when the broker's ZooKeeper session ends."""
    was_leader = role is not None and role.kind is RoleKind.LEADER
    at = role.partition if role is not None and was_leader else "T-P"
    which = "" if was_leader else ", for a partition T-P that it led"
    return (
        "The others learn of it when its ZooKeeper session ends. Next: "
        f"tidegauge wait --leader {at}!={killed}{directory_argument(directory)}{which}"
    )


def _subject(outcome: Outcome) -> str:
    name = called(outcome.process)
    return name[0].upper() + name[1:]


def _as_json(verb: str, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [
        {
            "process": outcome.process,
            "id": outcome.target if isinstance(outcome.target, int) else None,
            "pid": outcome.pid,
            "state": outcome.state.value,
            "changed": outcome.changed,
            **({"lost_bytes": outcome.lost_bytes} if verb == "start" else {}),
        }
        for outcome in outcomes
    ]


@click.command()
@target_options
@lab_verb
def kill(**options: Any) -> None:
    """Kill processes at once (SIGKILL), as a crash would; data on disk stays."""
    _run("kill", options, ProcessState.UP, lambda cluster, targets: cluster.kill(*targets))


@click.command()
@target_options
@lab_verb
def stop(**options: Any) -> None:
    """Stop processes in order: a broker hands its leaders over first (limit 30 s)."""
    _run("stop", options, ProcessState.UP, lambda cluster, targets: cluster.stop(*targets))


@click.command()
@target_options
@lab_verb
def pause(**options: Any) -> None:
    """Freeze processes (SIGSTOP), as a long pause of a machine would."""
    _run("pause", options, ProcessState.UP, lambda cluster, targets: cluster.pause(*targets))


@click.command()
@target_options
@lab_verb
def resume(**options: Any) -> None:
    """Let paused processes run again (SIGCONT)."""
    _run("resume", options, ProcessState.PAUSED, lambda cluster, targets: cluster.resume(*targets))


@click.command()
@click.option(
    "--held",
    type=PartitionType(),
    metavar="T-P",
    multiple=True,
    help="Hold the fetches of this partition from the start; may be repeated.",
)
@click.option("--after-power-cut", is_flag=True, help="What the broker had not flushed to its disk is lost.")
@target_options
@lab_verb
def start(held: tuple[TopicPartition, ...], *, after_power_cut: bool, **options: Any) -> None:
    """Start processes on their old data and port; returns when brokers are registered and respond (limit 60 s)."""
    _run(
        "start",
        options,
        ProcessState.DOWN,
        lambda cluster, targets: cluster.start(*targets, held=held, after_power_cut=after_power_cut),
    )
