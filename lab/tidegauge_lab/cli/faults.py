"""``tidegauge kill``, ``stop``, ``pause``, ``resume``, ``start``: faults on processes of the cluster in ``--dir``.

Contract: targets are ids, ``zookeeper``, or a role that is resolved once, a word or an option; wrong usage (no target,
ids and a role together, an id that is no number) ends with 2 before anything was contacted. Each verb returns when its
effect is true and prints a line per process; a repeated fault exits with 0 too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import directory_option, output_option, print_json, print_line, print_text, say
from tidegauge.cluster_directory import directory_argument
from tidegauge.counted import counted
from tidegauge.faults.actions import KILL, PAUSE, RESUME, START, STOP, ActionKind
from tidegauge.partition import TopicPartition
from tidegauge_client.cli.common import PartitionType
from tidegauge_lab.cli.common import CoordinatedType, TargetType
from tidegauge_lab.cli.declared_options import declared_options, taken_values
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster, Outcome, Target
from tidegauge_lab.local.process_actions import on_processes
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.roles import COORDINATED_FORMS, Coordinated, Role, RoleKind


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the targets of a fault."""
    decorators = [
        click.argument("ids", nargs=-1, type=TargetType(), metavar="[ID]..."),
        click.option("--leader-of", type=PartitionType(), metavar="T-P", help="The broker that leads this partition."),
        click.option("--follower-of", type=PartitionType(), metavar="T-P", help="A broker that follows there."),
        click.option(
            "--coordinator-of",
            type=CoordinatedType(),
            metavar="group:G|transaction:ID|share:G[/T-P]",
            help="The coordinator of this group, transactional id or share partition.",
        ),
        click.option("--controller", is_flag=True, help="The node that is the active controller."),
        click.option("--zookeeper", is_flag=True, help="The cluster's own ZooKeeper."),
        directory_option,
        output_option,
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def read_targets(
    named: Sequence[int | Role],
    leader_of: TopicPartition | None,
    follower_of: TopicPartition | None,
    *,
    controller: bool,
    coordinator_of: Coordinated | None = None,
) -> Role | list[Target]:
    """Return the given role or ids; an empty list if neither is given.

    Raises:
        click.UsageError: two ways at once.
    """
    ids = [one for one in named if isinstance(one, int)]
    given = [one for one in named if isinstance(one, Role)]
    if leader_of is not None:
        given.append(Role(RoleKind.LEADER, leader_of))
    if follower_of is not None:
        given.append(Role(RoleKind.FOLLOWER, follower_of))
    if coordinator_of is not None:
        given.append(Role(RoleKind.COORDINATOR, of=coordinator_of))
    if controller:
        given.append(Role(RoleKind.CONTROLLER))
    if len(given) + bool(ids) > 1:
        raise click.UsageError(
            "Name brokers in one way: by ID, --leader-of, --follower-of, --coordinator-of or --controller, "
            "or by one such word: leader-of:T-P."
        )
    return given[0] if given else [*ids]


def _run(kind: ActionKind, options: Mapping[str, Any], fits: ProcessState, values: Mapping[str, Any]) -> None:
    """Name the targets, do it, tell it."""
    with_zookeeper = bool(options["zookeeper"]) or ZOOKEEPER in options["ids"]
    wanted = read_targets(
        [one for one in options["ids"] if one != ZOOKEEPER],
        options["leader_of"],
        options["follower_of"],
        controller=bool(options["controller"]),
        coordinator_of=options["coordinator_of"],
    )
    if not wanted and not with_zookeeper:
        raise click.UsageError(
            f"Name a process: ID..., --leader-of T-P, --follower-of T-P, --coordinator-of {COORDINATED_FORMS}, "
            "--controller or --zookeeper."
        )
    directory: Path = options["directory"]
    cluster = LocalCluster(directory)
    targets: list[Target] = []
    role = wanted if isinstance(wanted, Role) else None
    if role is not None:
        targets = [cluster.resolve(role, fits)]
    elif isinstance(wanted, list):
        targets = wanted
    if with_zookeeper:
        targets = [*targets, ZOOKEEPER]
    outcomes = on_processes(cluster, kind, *targets, **values)
    if options["output"] == "json":
        print_json(
            {"action": kind.name, "role": None if role is None else str(role), "processes": _as_json(kind, outcomes)}
        )
        return
    unchanged = [one for one in outcomes if not one.changed and one.state is ProcessState.DOWN]
    kafkas = cluster.kafka_brokers() if unchanged else {}
    ended: list[str] = []
    for outcome in outcomes:
        if outcome.ended is not None:
            ended.append(f"{outcome.ended.words(outcome.name)}.")
        if not outcome.changed:
            kafka = kafkas.get(outcome.target) if isinstance(outcome.target, int) else None
            instead = "" if kafka is None else f"; Apache Kafka has its id, at {kafka}, and is left alone"
            say(f"{_subject(outcome)} is {outcome.state.value} already{instead}")
            continue
        because = f", {role}" if role is not None and outcome.target != ZOOKEEPER else ""
        print_text(f"{kind.done.capitalize()} {outcome.name}{because} (process {outcome.pid}).")
        if outcome.lost_bytes:
            say(f"The power loss took {counted(outcome.lost_bytes, 'byte')} that {outcome.name} had never flushed")
    for sentence in ended:
        print_line(sentence)
    changed = [outcome for outcome in outcomes if outcome.changed and outcome.target != ZOOKEEPER]
    if kind is KILL and (killed := [outcome.target for outcome in changed if outcome.is_broker]):
        for sentence in _next_steps(role, killed, directory, is_expired=bool(ended)):
            say(sentence)
    elif kind is KILL and changed:
        say(f"Next: tidegauge wait --quorum-leader{directory_argument(directory)}")


def _next_steps(role: Role | None, killed: Sequence[Target], directory: Path, *, is_expired: bool = False) -> list[str]:
    """Return the next commands after a kill, which shows once the broker's membership ends."""
    was_leader = role is not None and role.kind is RoleKind.LEADER
    at = role.partition if role is not None and was_leader else "T-P"
    which = "" if was_leader else " (for a partition T-P that it led)"
    ends = "its membership of the cluster ends" if len(killed) == 1 else "their memberships of the cluster end"
    return [
        *([] if is_expired else [f"The others learn of it when {ends}."]),
        f"Next: tidegauge wait --leader {at}!={killed[0]}{directory_argument(directory)}{which}",
    ]


def _subject(outcome: Outcome) -> str:
    name = outcome.name
    return name[0].upper() + name[1:]


def _as_json(kind: ActionKind, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [
        {
            "process": outcome.process,
            "id": outcome.target if isinstance(outcome.target, int) else None,
            "pid": outcome.pid,
            "state": outcome.state.value,
            "changed": outcome.changed,
            **({"lost_bytes": outcome.lost_bytes} if kind is START else {}),
            **({} if outcome.ended is None else outcome.ended.as_json),
        }
        for outcome in outcomes
    ]


def _process_verb(kind: ActionKind, fits: ProcessState) -> click.Command:
    """Return the verb of a declared action on processes.

    Args:
        kind: the action.
        fits: the state that a process should be in, where a role can mean several.
    """

    @lab_verb
    def run(**options: Any) -> None:
        _run(kind, options, fits, taken_values(kind, options))

    command = declared_options(kind)(target_options(run))
    return click.command(kind.name, help=f"{kind.meaning}.")(command)


kill = _process_verb(KILL, ProcessState.UP)
stop = _process_verb(STOP, ProcessState.UP)
pause = _process_verb(PAUSE, ProcessState.UP)
resume = _process_verb(RESUME, ProcessState.PAUSED)
start = _process_verb(START, ProcessState.DOWN)
