"""``tidegauge hold-fetch`` and ``step-fetch``: a follower, round by round (docs/faults.md).

A step prints the request, the response, and the changes at the follower and at the leader. A refused
round is reported with the error's name, and the exit code is 1; further rounds are not tried then.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import EXIT_FAILED, print_json, print_text, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import HOLD_FETCH, RELEASE_FETCH, STEP_FETCH
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_client.cli.common import PartitionType
from tidegauge_client.quorum_file import node_words
from tidegauge_lab.cli.common import TargetType
from tidegauge_lab.cli.declared_options import declared_option
from tidegauge_lab.cli.fault_targets import Target, resolved_all, role_options, taken_roles
from tidegauge_lab.cli.switching import each, replicas_of, with_switches
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.local.roles import METADATA
from tidegauge_lab.switches import Step, Switches, Until

_KINDS = {lab_pb2.STEP_KIND_FETCH: "fetch", lab_pb2.STEP_KIND_EPOCH_END: "epoch-end"}


@click.command(HOLD_FETCH.words, help=f"{HOLD_FETCH.meaning}.")
@click.argument("partition", type=PartitionType(), metavar="T-P")
@click.option(
    "--broker",
    "brokers",
    type=TargetType(),
    multiple=True,
    metavar="ID",
    help="The follower on this broker, by id or role; may be repeated. Without one: all that follow now.",
)
@role_options
@click.option("--release", is_flag=True, help=f"{RELEASE_FETCH.meaning}.")
@verb_options
@lab_verb
def hold_fetch(
    partition: TopicPartition,
    brokers: tuple[Target, ...],
    output: str,
    directory: Path,
    bootstrap_server: str | None,
    *,
    release: bool,
    **options: Any,
) -> None:
    """Hold or release a partition's followers."""
    named = [*brokers, *taken_roles(options)]

    async def do(switches: Switches) -> tuple[Sequence[int], list[int]]:
        wanted = await resolved_all(switches, named) or await (_held if release else _followers)(switches, partition)
        change = switches.release_fetch if release else switches.hold_fetch
        return wanted, await change(partition, wanted)

    wanted, changed = with_switches(directory, bootstrap_server, do)
    if output == "json":
        print_json({"partition": str(partition), "held": not release, "brokers": list(wanted), "changed": changed})
        return
    done = "Released" if release else "Held"
    for broker_id in wanted:
        if broker_id in changed:
            print_text(f"{done} {partition} on {node_words(broker_id)}.")
        else:
            say(f"{partition} on {node_words(broker_id)} is {'free' if release else 'held'} already")
    if not wanted:
        say(f"{partition} is held nowhere")


async def _followers(switches: Switches, at: TopicPartition) -> list[int]:
    found = [broker_id for broker_id, one in (await replicas_of(switches, at)).items() if one.role == "follower"]
    if not found:
        raise TidegaugeError(ErrorCode.REPLICA_NOT_AVAILABLE, f"no broker that responds follows in {at}")
    return found


async def _held(switches: Switches, at: TopicPartition) -> list[int]:
    return [broker_id for broker_id, one in (await each(switches, switches.list_faults)).items() if at in one.held]


@click.command(STEP_FETCH.words, help=f"{STEP_FETCH.meaning}.")
@click.argument("partition", type=PartitionType(), metavar="T-P")
@click.option(
    "--broker",
    type=TargetType(),
    metavar="ID",
    help="The follower on this broker, by id or role. Without one: all held ones, one after the other.",
)
@role_options
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Number of rounds.")
@declared_option(STEP_FETCH.parameter("until"), "until")
@verb_options
@lab_verb
def step_fetch(
    partition: TopicPartition,
    broker: Target | None,
    rounds: int,
    until: str,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
    **options: Any,
) -> None:
    """Let held followers do rounds."""
    named = [*([] if broker is None else [broker]), *taken_roles(options)]
    if rounds > 1 and until == Until.REQUEST.value:
        raise click.UsageError("A round that stops at its request has not ended: --rounds can't be combined with it.")

    async def do(switches: Switches) -> list[Step]:
        followers = await resolved_all(switches, named) or await _held_followers(switches, partition)
        steps: list[Step] = []
        for _ in range(rounds):
            for broker_id in followers:
                steps.append(await switches.step_fetch(partition, broker_id, until=Until(until)))
                if output != "json":
                    _show(steps[-1])
                if steps[-1].error is not ErrorCode.NONE:
                    return steps
        return steps

    steps = with_switches(directory, bootstrap_server, do)
    if output == "json":
        print_json({"partition": str(partition), "steps": [_as_json(step) for step in steps]})
    if steps[-1].error is not ErrorCode.NONE:
        raise SystemExit(EXIT_FAILED)


async def _held_followers(switches: Switches, at: TopicPartition) -> list[int]:
    held = await _held(switches, at)
    if at == METADATA and held:
        return held
    replicas = await replicas_of(switches, at)
    found = [broker_id for broker_id in held if broker_id in replicas and replicas[broker_id].role == "follower"]
    if not found:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"no follower of {at} is held: `tidegauge hold-fetch {at}` holds them"
        )
    return found


def _show(step: Step) -> None:
    print_text(step.text)
    width = max((len(change.attribute) for change in step.changes), default=0)
    for change in step.changes:
        print_text(
            f"  {node_words(change.broker_id)} ({change.role + '):':9} {change.attribute:{width}}  "
            f"{change.before} -> {change.after}"
        )
    if not step.changes and step.error is ErrorCode.NONE:
        print_text("  nothing changed")


def _as_json(step: Step) -> dict[str, Any]:
    response = step.response
    return {
        "broker": step.broker_id,
        "leader": step.leader,
        "kind": _KINDS.get(response.kind),
        "error": None if step.error is ErrorCode.NONE else {"code": int(step.error), "name": step.error.name},
        "message": step.message,
        "response_withheld": step.response_withheld,
        "fetch_offset": response.fetch.fetch_offset if response.HasField("fetch") else None,
        "records_bytes": response.records_bytes,
        "high_watermark": response.fetch_result.high_watermark
        if response.fetch_result.HasField("high_watermark")
        else None,
        "changes": [
            {
                "broker": change.broker_id,
                "role": change.role,
                "attribute": change.attribute,
                "before": change.before,
                "after": change.after,
            }
            for change in step.changes
        ],
    }
