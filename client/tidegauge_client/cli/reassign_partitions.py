"""``reassign-partitions`` (kafka-reassign-partitions.sh): other replicas for partitions, from plan to end.

Kafka's actions, options and sentences (ReassignPartitionsCommand). Each broker chooses the log directory of a replica:
moves between the log directories of a broker, and their throttle, are left out (docs/not-emulated.md).

Throttles:
    1. ``--execute`` sets them before it begins anything, at the brokers that are alive: a dead one copies nothing, and
       copying is slowed at both ends. (Kafka's tool waits a minute for the dead one, and fails half done.)
    2. ``--verify`` removes them once no partition is being reassigned any more, whichever its file names: the rates
       belong to brokers, not to partitions. ``--cancel`` removes them at once.
    3. A throttle that can't be removed, as from a dead broker, keeps no other from being removed; the verb then fails
       and names the rest.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from tidegauge.cli import print_json, print_line, print_text, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client import reassignment_plan as plan
from tidegauge_client.admin import Admin
from tidegauge_client.cli.common import JSON, run, servers, usage
from tidegauge_client.kafka_brokers import note, own_words
from tidegauge_client.metadata import ClusterInfo, PartitionInfo, newest_of, newest_view
from tidegauge_client.ongoing_reassignment import OngoingReassignment

Text = TypeVar("Text")
Parsed = TypeVar("Parsed")
SETTLE_SECONDS = 2.0
"""How long ``--verify`` waits for metadata that lags behind the controller."""


class Cleared(NamedTuple):
    """The changes to throttles.

    Attributes:
        left: why some could not be cleared.
        is_complete: whether none is left.
    """

    left: Sequence[TidegaugeError]
    is_complete: bool


NOT_CLEARED = Cleared((), is_complete=False)

_ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "generate": (("topics_to_move_json_file", "broker_list"), ("disable_rack_aware",)),
    "execute": (("reassignment_json_file",), ("additional", "throttle", "timeout")),
    "verify": (("reassignment_json_file",), ("preserve_throttles",)),
    "cancel": (("reassignment_json_file",), ("preserve_throttles", "timeout")),
    "list": ((), ()),
}
"""The required and the optional arguments of each action."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("reassign-partitions")
@click.option("--generate", "actions", flag_value="generate", multiple=True, help="Propose replicas for topics.")
@click.option("--execute", "actions", flag_value="execute", multiple=True, help="Begin a reassignment.")
@click.option(
    "--verify",
    "actions",
    flag_value="verify",
    multiple=True,
    help="Show the progress; at the end remove the throttles.",
)
@click.option(
    "--cancel",
    "actions",
    flag_value="cancel",
    multiple=True,
    help="Cancel a reassignment and restore the original replicas.",
)
@click.option("--list", "actions", flag_value="list", multiple=True, help="List the reassignments in progress.")
@click.option("--topics-to-move-json-file", type=_FILE, help='{"topics": [{"topic": "t"}], "version": 1}')
@click.option("--broker-list", metavar="1,2,3", help="The brokers to move the topics to.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks in the proposal.")
@click.option(
    "--reassignment-json-file",
    type=_FILE,
    help='{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}',
)
@click.option(
    "--additional", is_flag=True, help="Begin it in addition to others in progress, or change their throttle."
)
@click.option("--throttle", type=int, default=-1, metavar="BYTES", help="Bytes a second between brokers; -1: no limit.")
@click.option(
    "--timeout",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="MS",
    help="Limit of the wait for responses.",
)
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@verb_options
@reports_errors
def reassign_partitions(
    actions: Sequence[str], bootstrap_server: str | None, directory: Path, output: str, **options: Any
) -> None:
    """Reassign partitions to other replicas: propose, begin, follow, cancel, list."""
    action = _the_action(actions, options)
    work = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}[action]
    bootstrap = servers(bootstrap_server, directory)

    async def act() -> None:
        async with Admin(bootstrap) as admin:
            await work(admin, options, output)

    run(act())


def _the_action(actions: Sequence[str], options: Mapping[str, Any]) -> str:
    """Return the one action, with its required arguments and no others."""
    if len(set(actions)) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"
        )
    action = actions[0]
    needed, allowed = _ACTIONS[action]
    context = click.get_current_context()
    for name in options:
        given = context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given and name not in (*needed, *allowed):
            raise click.UsageError(f'Option "[{_dashed(name)}]" can\'t be used with action "[{action}]"')
        if not given and name in needed:
            raise click.UsageError(f'Missing required argument "[{_dashed(name)}]"')
    return action


def _dashed(name: str) -> str:
    return name.replace("_", "-")


# The actions


async def _generate(admin: Admin, options: Mapping[str, Any], output: str) -> None:
    topics = _read(plan.parse_topics, options["topics_to_move_json_file"].read_bytes())
    wanted = _read(plan.parse_broker_list, options["broker_list"])
    info = await admin.metadata(topics)
    current = {part.topic_partition: part.replicas for name in topics for part in _partitions(info, name)}
    known = {**info.brokers, **info.kafka_brokers}
    brokers = [known[broker_id] for broker_id in wanted if broker_id in known]
    numbers = [(secrets.randbelow(2**31), secrets.randbelow(2**31)) for _ in topics]
    proposed = plan.propose(current, brokers, numbers, rack_aware=not options["disable_rack_aware"])
    now, then = plan.document_of(current), plan.document_of(proposed)
    if output == JSON:
        print_json({"current": now, "proposed": then})
        return
    print_text(f"Current partition replica assignment\n{plan.compact(now)}\n")
    print_text(f"Proposed partition reassignment configuration\n{plan.compact(then)}")


async def _execute(admin: Admin, options: Mapping[str, Any], output: str) -> None:
    targets = _read(plan.parse_reassignment, options["reassignment_json_file"].read_bytes())
    ongoing = await admin.list_partition_reassignments(timeout_ms=options["timeout"])
    if ongoing and not options["additional"]:
        raise TidegaugeError(ErrorCode.REASSIGNMENT_IN_PROGRESS, plan.EXISTING)
    info = await admin.metadata(sorted({at.topic for at in targets}))
    unknown = sorted({broker_id for target in targets.values() for broker_id in target} - info.live)
    if unknown:
        raise TidegaugeError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Unknown broker id {unknown[0]}")
    current = {at: _partition(info, at).replicas for at in targets}
    before = plan.document_of(current)
    throttle = int(options["throttle"])
    moves = plan.moves_of(ongoing, current, targets)
    moving = plan.moving_brokers(moves) if throttle >= 0 else []
    for broker_id in moving:
        if broker_id in info.kafka_brokers:  # before anything is changed: only it can set its own rate
            raise own_words(info.kafka_brokers[broker_id], "kafka-configs.sh --alter")
    for broker_id in sorted({*moving} - info.live):
        say(
            f"Broker {broker_id} is not alive, so its throttle is not set: it copies nothing. When it is back, repeat "
            "this with --additional"
        )
    if output != JSON:
        print_text(f"Current partition replica assignment\n\n{plan.compact(before)}\n")
        print_text("Save this to use as the --reassignment-json-file option during rollback")
        if throttle >= 0:
            print_text(plan.RUN_VERIFY)
    if throttle >= 0:
        await _throttle(admin, moves, throttle, [broker_id for broker_id in moving if broker_id in info.live])
        if output != JSON:
            print_text(f"The inter-broker throttle limit was set to {throttle} B/s")
    outcomes = await admin.alter_partition_reassignments(dict(targets), timeout_ms=options["timeout"])
    _raise_for_any("Error reassigning partition(s):", outcomes)
    if output == JSON:
        print_json({"current": before, "started": [str(at) for at in sorted(targets)], "throttle": throttle})
        return
    started = ",".join(str(at) for at in sorted(targets))
    print_text(f"Successfully started partition reassignment{plan.plural(len(targets))} for {started}")


async def _verify(admin: Admin, options: Mapping[str, Any], output: str) -> None:
    targets = _read(plan.parse_reassignment, options["reassignment_json_file"].read_bytes())
    ongoing = await admin.list_partition_reassignments()
    states = await _states(admin, targets, ongoing)
    if output != JSON:
        print_text("Status of partition reassignment:")
        for at, state in states.items():
            print_line(plan.state_line(at, state))
        print_text()
    clears = not ongoing and not options["preserve_throttles"]
    cleared = await _clear_throttles(admin, targets, output) if clears else NOT_CLEARED
    if output == JSON:
        entries = [_entry(*item) for item in states.items()]
        print_json({"partitions": entries, "throttles_cleared": cleared.is_complete})
    others = sorted(ongoing.keys() - targets.keys())
    if others and all(state.done for state in states.values()) and not options["preserve_throttles"]:
        are = "is" if len(others) == 1 else "are"
        say(
            f"Throttles stay: {', '.join(map(str, others))} {are} being reassigned, and brokers have one rate for all. "
            "Run --verify again when --list shows none"
        )
    _raise_for_left(cleared.left)


async def _cancel(admin: Admin, options: Mapping[str, Any], output: str) -> None:
    targets = _read(plan.parse_reassignment, options["reassignment_json_file"].read_bytes())
    active = sorted(await admin.list_partition_reassignments(list(targets), timeout_ms=options["timeout"]))
    outcomes = await admin.alter_partition_reassignments(dict.fromkeys(active), timeout_ms=options["timeout"])
    ended = [at for at in active if not _is_over(outcomes.get(at))]
    refused = {at: problem for at, problem in outcomes.items() if not _is_over(problem)}
    _raise_for_any(f"Error cancelling partition reassignment{plan.plural(len(refused))} for:", refused)
    if output != JSON:
        if ended:
            names = ",".join(str(at) for at in ended)
            print_text(f"Successfully cancelled partition reassignment{plan.plural(len(ended))} for: {names}")
        else:
            print_text("None of the specified partition reassignments are active.")
    clears = not options["preserve_throttles"]
    cleared = await _clear_throttles(admin, targets, output) if clears else NOT_CLEARED
    if output == JSON:
        print_json({"cancelled": [str(at) for at in ended], "throttles_cleared": cleared.is_complete})
    _raise_for_left(cleared.left)


async def _list(admin: Admin, options: Mapping[str, Any], output: str) -> None:
    del options  # it has none
    ongoing = await admin.list_partition_reassignments()
    if output == JSON:
        print_json({"reassignments": [_ongoing_entry(*item) for item in sorted(ongoing.items())]})
        return
    print_text("Current partition reassignments:" if ongoing else "No partition reassignments found.")
    for at, one in sorted(ongoing.items()):
        print_line(plan.ongoing_line(at, one))


# Common parts


def _read(parse: Callable[[Text], Parsed], text: Text) -> Parsed:
    """Read a file; anything wrong with it is a usage error, before anything is contacted."""
    try:
        return parse(text)
    except TidegaugeError as problem:
        raise usage(problem) from None


def _is_over(problem: TidegaugeError | None) -> bool:
    """Return whether a reassignment ended by itself before it could be cancelled."""
    return problem is not None and problem.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def _raise_for_any(heading: str, outcomes: Mapping[TopicPartition, TidegaugeError | None]) -> None:
    failed = {at: problem for at, problem in sorted(outcomes.items()) if problem is not None}
    if failed:
        lines = [f"{at}: {problem.message}" for at, problem in failed.items()]
        raise TidegaugeError(next(iter(failed.values())).code, "\n".join([heading, *lines]))


def _partitions(info: ClusterInfo, topic: str) -> Collection[PartitionInfo]:
    found = info.topics.get(topic)
    if found is None or found.error is not ErrorCode.NONE:
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} not found.")
    return found.partitions.values()


def _partition(info: ClusterInfo, at: TopicPartition) -> PartitionInfo:
    found = info.partition(at)
    if found is None:
        _partitions(info, at.topic)
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition: {at}")
    return found


async def _states(
    admin: Admin, targets: plan.Replicas, ongoing: Mapping[TopicPartition, OngoingReassignment]
) -> dict[TopicPartition, plan.State]:
    """Return the state of each partition; metadata may lag a moment behind a
    reassignment's end.
    """
    topics = {at.topic for at in targets}
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while True:
        newest = {part.topic_partition: part.replicas for part in newest_of(await admin.metadata_of_all(topics))}
        states: dict[TopicPartition, plan.State] = {}
        for at, target in sorted(targets.items()):
            runs = ongoing.get(at)
            current = newest.get(at, ()) if runs is None else runs.replicas
            states[at] = plan.State(tuple(current), tuple(target), done=runs is None)
        settled = all(not state.done or state.current == state.target for state in states.values())
        if settled or asyncio.get_running_loop().time() >= deadline:
            return states
        await asyncio.sleep(0.1)


async def _throttle(admin: Admin, moves: Mapping[TopicPartition, plan.Move], rate: int, brokers: Sequence[int]) -> None:
    """Throttle the moves' replicas at their topics, then the rate at these brokers; return when every broker knows."""
    last = -1
    for topic, settings in plan.throttled_replicas(moves).items():
        last = max(last, await admin.alter_topic_settings(topic, settings))
    for broker_id in brokers:
        rates = {plan.LEADER_RATE: str(rate), plan.FOLLOWER_RATE: str(rate)}
        last = max(last, await admin.alter_broker_settings(broker_id, rates))
    await admin.wait_for_change(last)


async def _clear_throttles(admin: Admin, targets: plan.Replicas, output: str) -> Cleared:
    """Clear the throttles of the topics, and of all brokers, since the involved ones are not recorded; return them.

    Of the brokers that are not registered only those that hold the topics, or are to, are known here.
    """
    topics = {at.topic for at in targets}
    views = await admin.metadata_of_all(topics)
    info = newest_view(views)
    holders = [*targets.values(), *(part.replicas for part in newest_of(views))]
    named = {broker_id for replicas in holders for broker_id in replicas}
    brokers = sorted({*info.brokers, *named} - info.kafka_brokers.keys())
    if info.kafka_brokers:
        say(note(info.kafka_brokers, "broker-level throttles are not cleared there", shows=False))
    left: list[TidegaugeError] = []
    if output != JSON:
        names = ",".join(map(str, brokers))
        print_text(f"Clearing broker-level throttles on broker{plan.plural(len(brokers))} {names}")
    for broker_id in brokers:
        await _or_note(admin.alter_broker_settings(broker_id, {}, plan.BROKER_THROTTLES), left)
    if output != JSON:
        names = ",".join(sorted(topics))
        print_text(f"Clearing topic-level throttles on topic{plan.plural(len(topics))} {names}")
    for topic in sorted(topics):
        await _or_note(admin.alter_topic_settings(topic, {}, (plan.LEADER_REPLICAS, plan.FOLLOWER_REPLICAS)), left)
    return Cleared(left, is_complete=not left and not info.kafka_brokers)


async def _or_note(alteration: Awaitable[int], problems: list[TidegaugeError]) -> None:
    """Wait for an alteration; its failure keeps no other one from being made."""
    try:
        await alteration
    except TidegaugeError as problem:
        problems.append(problem)


def _raise_for_left(problems: Sequence[TidegaugeError]) -> None:
    if problems:
        lines = [problem.message for problem in problems]
        heading = "Not all throttles were cleared. The rest stays in force until this succeeds:"
        raise TidegaugeError(problems[0].code, "\n".join([heading, *lines]))


def _entry(at: TopicPartition, state: plan.State) -> dict[str, Any]:
    word = "in-progress" if not state.done else "completed" if state.current == state.target else "not-active"
    return {
        "topic": at.topic,
        "partition": at.partition,
        "state": word,
        "replicas": list(state.current),
        "target": list(state.target),
    }


def _ongoing_entry(at: TopicPartition, one: OngoingReassignment) -> dict[str, Any]:
    return {
        "topic": at.topic,
        "partition": at.partition,
        "replicas": list(one.replicas),
        "adding_replicas": list(one.adding_replicas),
        "removing_replicas": list(one.removing_replicas),
    }
