"""Does a declared action, or puts a declared fault in force, in a cluster on this machine: one way for every asker.

Rules:
    1. ``perform`` returns when the effect is true, with a sentence for people.
    2. The declaration has checked the request; an error that only the cluster knows (there is no broker 7, the
       follower is not held) raises TidegaugeError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tidegauge.faults.actions import (
    CLEAR_FAULTS,
    EXPIRE_SESSION,
    HEAL,
    HOLD_FETCH,
    RELEASE_FETCH,
    RELEASE_REQUESTS,
    STEP_FETCH,
    SYNC,
    WantedAction,
)
from tidegauge.faults.requests import FaultRequest
from tidegauge.partition import TopicPartition
from tidegauge_client.quorum_file import node_name
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.process_actions import on_processes
from tidegauge_lab.session_ending import expire_session
from tidegauge_lab.switches import Switches, Until


class Performed(NamedTuple):
    """The result of an action.

    Attributes:
        changed: whether it changed anything.
        text: one sentence without a full stop.
    """

    changed: bool
    text: str


async def perform(cluster: LocalCluster, wanted: WantedAction | FaultRequest) -> Performed:
    """Do an action, or put a fault in force.

    Raises:
        TidegaugeError: it can't be done.
        TimeLimitError: its effect is not true in time.
    """
    if isinstance(wanted, WantedAction) and wanted.kind.room == "process":
        return await asyncio.to_thread(_to_process, cluster, wanted)
    async with Switches.of_cluster(cluster.file) as switches:
        if isinstance(wanted, WantedAction) and wanted.kind is EXPIRE_SESSION:
            assert isinstance(wanted.target, int), "only an action on a process has ZooKeeper as its target"
            ended = await expire_session(cluster, switches, wanted.target)
            return Performed(True, ended.words(f"broker {wanted.target}"))
        if isinstance(wanted, FaultRequest):
            fault = await switches.set_fault(wanted.broker_id, wanted.fault)
            return Performed(True, f"{node_name(wanted.broker_id)}: {fault.text}")
        assert isinstance(wanted.target, int), "only an action on a process has ZooKeeper as its target"
        return await _INSIDE[wanted.kind.name](switches, wanted.target, wanted)


def _to_process(cluster: LocalCluster, wanted: WantedAction) -> Performed:
    values = dict(wanted.values)
    if "held" in values:
        values["held"] = [TopicPartition.parse(one) for one in values["held"]]
    [outcome] = on_processes(cluster, wanted.kind, wanted.target, **values)
    done = _performed(wanted, outcome.name, changed=outcome.changed)
    return done if outcome.ended is None else Performed(True, f"{done.text}, {outcome.ended.clause}")


def _performed(wanted: WantedAction, subject: str, *, changed: bool) -> Performed:
    subject = subject[0].upper() + subject[1:]
    kind = wanted.kind
    return Performed(changed, f"{subject} {kind.done}" if changed else f"{subject} is {kind.already} already")


async def _hold(switches: Switches, broker_id: int, wanted: WantedAction) -> Performed:
    at = TopicPartition.parse(wanted["partition"])
    change = switches.hold_fetch if wanted.kind is HOLD_FETCH else switches.release_fetch
    changed = bool(await change(at, [broker_id]))
    kind = wanted.kind
    return Performed(changed, f"{at} on broker {broker_id} " + (kind.done if changed else f"is {kind.already} already"))


async def _step(switches: Switches, broker_id: int, wanted: WantedAction) -> Performed:
    """Do one round; a round that the leader rejects is no error, and its sentence says so."""
    at = TopicPartition.parse(wanted["partition"])
    step = await switches.step_fetch(at, broker_id, until=Until(wanted["until"]))
    return Performed(True, step.text)


async def _heal(switches: Switches, broker_id: int, wanted: WantedAction) -> Performed:
    return _performed(wanted, f"broker {broker_id}", changed=bool(await switches.heal(broker_id)))


async def _release(switches: Switches, broker_id: int, wanted: WantedAction) -> Performed:
    ended = await switches.release_requests(broker_id, wanted["which"])
    if not ended:
        return _performed(wanted, f"broker {broker_id}", changed=False)
    return Performed(True, f"Broker {broker_id} {wanted.kind.done} {sum(fault.held for fault in ended)} held requests")


async def _clear(switches: Switches, broker_id: int, wanted: WantedAction) -> Performed:
    ended, released = await switches.clear(broker_id, holds=wanted["holds"])
    return _performed(wanted, f"broker {broker_id}", changed=bool(ended or released))


async def _sync(switches: Switches, broker_id: int, wanted: WantedAction) -> Performed:
    at = None if wanted["partition"] is None else TopicPartition.parse(wanted["partition"])
    flushed = await switches.sync_log(broker_id, at)
    ends = ", ".join(f"{one} up to offset {offset}" for one, offset in flushed.items()) or "nothing: it has no replica"
    return Performed(True, f"Broker {broker_id} has flushed {ends}")


_INSIDE: dict[str, Callable[[Switches, int, WantedAction], Awaitable[Performed]]] = {
    HOLD_FETCH.name: _hold,
    RELEASE_FETCH.name: _hold,
    STEP_FETCH.name: _step,
    RELEASE_REQUESTS.name: _release,
    HEAL.name: _heal,
    CLEAR_FAULTS.name: _clear,
    SYNC.name: _sync,
}
