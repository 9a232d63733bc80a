"""The faults on requests: sets of rules with an id and hits, in force at the brokers that are up.

Rules:
    1. A fault is in force until it is deleted, reset, or the cluster goes down. It is noted in the cluster's directory,
       so that a control server that is started again, or a second one, has the same faults. A broker that is started
       again has the sticky ones from its first request on (``lab.rules.file``), and no others.
    2. A change is whole: if a broker does not take it, it is taken back everywhere.
    3. Hits are the requests that were affected or observed, over all brokers, by the files that the brokers share.
    4. Where a rule is in force, and what it holds, is what the brokers report. A paused broker keeps what it had.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tidegauge.errors import TidegaugeError
from tidegauge.faults.rules import read_rule
from tidegauge.v1 import lab_pb2
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.lab import tally
from tidegauge_client.cluster_file import load_cluster_file
from tidegauge_lab.control.problems import RefusedError, malformed, not_found
from tidegauge_lab.local import layout, locks, noted_faults
from tidegauge_lab.local.noted_faults import NotedFaults, NotedRule
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.switches import Switches

LOCK_LIMIT_SECONDS = 60.0
Result = TypeVar("Result")


class Faults:
    """The faults of one cluster.

    Args:
        directory: of the cluster.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def begin(self) -> None:
        """Send the brokers the noted rules: a control server may have died in the middle of a change."""
        async with self._changing() as noted:
            with contextlib.suppress(RefusedError):  # a paused broker is notified with the next change
                await self._notify(noted)

    @contextlib.asynccontextmanager
    async def _changing(self) -> AsyncIterator[NotedFaults]:
        """Hold the faults against every other change, also of another control server; yield the noted faults."""
        room = noted_faults.directory_of(self._directory)
        (room / layout.TALLIES).mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            lock = locks.hold(room / f"{layout.FAULTS_FILE}.lock", LOCK_LIMIT_SECONDS)
            await asyncio.to_thread(stack.enter_context, lock)
            yield await self._noted()

    async def _noted(self) -> NotedFaults:
        """Return the noted faults, read off the event loop: thousands take a tenth of a second."""
        return await asyncio.to_thread(noted_faults.load, self._directory)

    async def _note(self, wanted: NotedFaults) -> None:
        await asyncio.to_thread(noted_faults.save, self._directory, wanted)

    async def add(self, values: Sequence[Mapping[str, Any]]) -> int:
        """Put rules in force; return the fault's id.

        Raises:
            RefusedError: 400, one is no rule. 404, it names an unknown broker. 409, a broker does not respond, and
                nothing was changed.
        """
        known = {broker.id for broker in load_cluster_file(self._directory).brokers}
        async for place, value in with_turns(enumerate(values)):
            try:
                rule = read_rule(value)
                if unknown := rule.nodes - known:
                    raise not_found(f"rules[{place}]: there is no broker {min(unknown)}")
            except TidegaugeError as problem:
                raise malformed(f"rules[{place}]: {problem.message}") from None
        async with self._changing() as noted:
            fault_id = noted.last_id + 1
            pids = self._pids()
            rules: list[NotedRule] = []
            async for place, value in with_turns(enumerate(values)):
                rule_id = f"{fault_id}.{place}"
                rules.append(NotedRule(rule_id, value, noted_faults.tally_of(self._directory, rule_id), pids))
            await asyncio.to_thread(_create_tallies, rules)
            await self._change(noted, NotedFaults({**noted.faults, fault_id: rules}, fault_id))
        return fault_id

    async def delete(self, fault_id: int | None = None) -> list[int]:
        """End a fault, or all; what it holds is released. Return the ids.

        Raises:
            RefusedError: 404, there is none; 409, a broker does not respond.
        """
        async with self._changing() as noted:
            ended = list(noted.faults) if fault_id is None else [_known(noted, fault_id)]
            if ended:
                left = {one: rules for one, rules in noted.faults.items() if one not in ended}
                await self._change(noted, NotedFaults(left, noted.last_id))
                await asyncio.to_thread(_delete_tallies, [rule for one in ended for rule in noted.faults[one]])
        return ended

    async def _change(self, before: NotedFaults, wanted: NotedFaults) -> None:
        """Note the wanted faults and send them to the brokers. Rule 2."""
        await self._note(wanted)
        try:
            await self._notify(wanted)
        except RefusedError:
            await self._note(NotedFaults(before.faults, wanted.last_id))
            with contextlib.suppress(RefusedError):
                await self._notify(before)
            raise

    async def all(self) -> list[dict[str, Any]]:
        """Return every fault with its hits."""
        noted = await self._noted()
        held = await self._held(noted)
        return [await asyncio.to_thread(_view, fault_id, rules, held) for fault_id, rules in noted.faults.items()]

    async def one(self, fault_id: int) -> dict[str, Any]:
        """Return a fault with its hits and what it holds now.

        Raises:
            RefusedError: 404, there is none.
        """
        noted = await self._noted()
        rules = noted.faults[_known(noted, fault_id)]
        return await asyncio.to_thread(_view, fault_id, rules, await self._held(noted))

    async def _held(self, noted: NotedFaults) -> dict[str, dict[int, int]]:
        """Return each rule's held requests, by id and broker. Rule 4."""
        found: dict[str, dict[int, int]] = {}

        async def ask(switches: Switches, broker_id: int) -> None:
            with contextlib.suppress(TidegaugeError):  # it has just died, and holds nothing any more
                for rule in await switches.list_rules(broker_id):
                    found.setdefault(rule.rule_id, {})[broker_id] = rule.held

        await self._at_each(ask, {ProcessState.UP})
        for broker in load_cluster_file(self._directory).brokers:
            process = layout.broker_process(self._directory, broker.id)
            if process.state is ProcessState.PAUSED:
                kept = (rule for rules in noted.faults.values() for rule in rules)
                for rule in kept:
                    if rule.belongs_at(broker.id, process.pid):
                        found.setdefault(rule.rule_id, {})[broker.id] = 0
        return found

    async def _notify(self, noted: NotedFaults) -> None:
        pids = self._pids()

        async def notify(switches: Switches, broker_id: int) -> None:
            wanted = [rule for rules in noted.faults.values() for rule in rules]
            here = (rule for rule in wanted if rule.belongs_at(broker_id, pids[broker_id]))
            messages = [_message(rule) async for rule in with_turns(here)]
            await switches.set_rules(broker_id, messages)

        try:
            await self._at_each(notify, {ProcessState.UP, ProcessState.PAUSED})
        except TidegaugeError as problem:
            raise RefusedError(409, problem.code.name, f"{problem.message}; the faults are as they were") from None

    def _pids(self) -> dict[int, int | None]:
        brokers = load_cluster_file(self._directory).brokers
        return {broker.id: layout.broker_process(self._directory, broker.id).pid for broker in brokers}

    async def _at_each(
        self, ask: Callable[[Switches, int], Awaitable[Result]], states: Collection[ProcessState]
    ) -> list[Result]:
        """Ask every broker in one of these states."""
        file = load_cluster_file(self._directory)
        alive = [
            broker.id for broker in file.brokers if layout.broker_process(self._directory, broker.id).state in states
        ]
        async with Switches.of_cluster(file) as switches:
            return list(await asyncio.gather(*(ask(switches, broker_id) for broker_id in alive)))


def wires_of(rule: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the wires whose requests a rule affects, for a response."""
    return {"acts_on": list(read_rule(rule).acts_on)}


def _known(noted: NotedFaults, fault_id: int) -> int:
    if fault_id not in noted.faults:
        raise not_found(f"there is no fault {fault_id}")
    return fault_id


def _create_tallies(rules: Iterable[NotedRule]) -> None:
    for rule in rules:
        tally.create(rule.tally_file)


def _delete_tallies(rules: Iterable[NotedRule]) -> None:
    for rule in rules:
        rule.tally_file.unlink(missing_ok=True)


def _message(rule: NotedRule) -> lab_pb2.RequestRule:
    return lab_pb2.RequestRule(
        rule_id=rule.rule_id, rule_json=json.dumps(dict(rule.value)), tally_file=str(rule.tally_file)
    )


def _view(fault_id: int, rules: Sequence[NotedRule], held: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    views = [
        {
            **rule.value,
            **wires_of(rule.value),
            "hits": tally.read(rule.tally_file)[1],
            "held": sum(held.get(rule.rule_id, {}).values()),
            "in_force": sorted(held.get(rule.rule_id, {})),
        }
        for rule in rules
    ]
    return {
        "id": fault_id,
        "hits": sum(one["hits"] for one in views),
        "held": sum(one["held"] for one in views),
        "rules": views,
    }
