"""The faults on requests: sets of rules with an id and hits, in force at the brokers that are up.

Rules:
    1. The control owns them: a fault is in force until it is deleted, reset, or the control ends. A broker that is
       started again has the sticky ones from its first request on (``lab.rules.file``), and no others.
    2. A change is whole: if a broker does not take it, it is taken back everywhere.
    3. Hits are the requests that were affected or observed, over all brokers, by the files that the brokers share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tidegauge.errors import TidegaugeError
from tidegauge.faults.rules import Rule, read_rule
from tidegauge.v1 import lab_pb2
from tidegauge_broker.server.lab import tally
from tidegauge_broker.server.wire.kafka import error_responses
from tidegauge_client.cluster_file import load_cluster_file
from tidegauge_lab.control.problems import RefusedError, malformed, not_found
from tidegauge_lab.local import layout
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.switches import Switches

TALLIES = "tallies"
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; ``pids`` are those of the brokers that had it first."""

    rule_id: str
    value: Mapping[str, Any]
    tally_file: Path
    pids: Mapping[int, int | None]

    def is_at(self, broker_id: int, pid: int | None) -> bool:
        """Return whether a broker's process has it: another incarnation has only sticky rules. Rule 1."""
        return bool(self.value.get("sticky")) or self.pids.get(broker_id) == pid

    @property
    def message(self) -> lab_pb2.RequestRule:
        """The rule as a message."""
        return lab_pb2.RequestRule(
            rule_id=self.rule_id, rule_json=json.dumps(dict(self.value)), tally_file=str(self.tally_file)
        )

    @property
    def hits(self) -> int:
        """How many requests it has affected or observed."""
        return tally.read(self.tally_file)[1]


class Faults:
    """The faults of one cluster.

    Args:
        directory: of the cluster.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._room = layout.control_process(directory).directory
        self._faults: dict[int, list[_Rule]] = {}
        self._last = 0
        self._changing = asyncio.Lock()

    async def begin(self) -> None:
        """End what an earlier control has left in force."""
        shutil.rmtree(self._room / TALLIES, ignore_errors=True)
        (self._room / TALLIES).mkdir(parents=True)
        self._write_sticky()
        with contextlib.suppress(RefusedError):  # a paused broker is notified with the next change
            await self._notify()

    async def add(self, values: Sequence[Mapping[str, Any]]) -> int:
        """Put rules in force; return the fault's id.

        Raises:
            RefusedError: 400, one is no rule; 409, a broker does not respond, and nothing was changed.
        """
        for place, value in enumerate(values):
            try:
                rule = read_rule(value)
                if rule.error is not None and (problems := _problems(rule)):
                    raise malformed(f"rules[{place}]: {problems[0]}")
            except TidegaugeError as problem:
                raise malformed(f"rules[{place}]: {problem.message}") from None
        async with self._changing:
            self._last += 1
            fault_id = self._last
            rules = []
            for place, value in enumerate(values):
                path = self._room / TALLIES / f"{fault_id}-{place}"
                tally.create(path)
                rules.append(_Rule(f"{fault_id}.{place}", value, path, self._pids()))
            self._faults[fault_id] = rules
            try:
                await self._apply()
            except RefusedError:
                del self._faults[fault_id]
                with contextlib.suppress(RefusedError):
                    await self._apply()
                raise
        return fault_id

    async def delete(self, fault_id: int | None = None) -> list[int]:
        """End a fault, or all; what it holds is released. Return the ids.

        Raises:
            RefusedError: 404, there is none; 409, a broker does not respond.
        """
        async with self._changing:
            ended = list(self._faults) if fault_id is None else [self._known(fault_id)]
            if ended:
                before = dict(self._faults)
                removed = {one: self._faults.pop(one) for one in ended}
                try:
                    await self._apply()
                except RefusedError:
                    self._faults = before
                    with contextlib.suppress(RefusedError):
                        await self._apply()
                    raise
                for rules in removed.values():
                    for rule in rules:
                        rule.tally_file.unlink(missing_ok=True)
        return ended

    async def all(self) -> list[dict[str, Any]]:
        """Return every fault with its hits."""
        held = await self._held()
        return [self._view(fault_id, held) for fault_id in self._faults]

    async def one(self, fault_id: int) -> dict[str, Any]:
        """Return a fault with its hits and what it holds now.

        Raises:
            RefusedError: 404, there is none.
        """
        self._known(fault_id)
        return self._view(fault_id, await self._held())

    def _known(self, fault_id: int) -> int:
        if fault_id not in self._faults:
            raise not_found(f"there is no fault {fault_id}")
        return fault_id

    def _view(self, fault_id: int, held: Mapping[str, int]) -> dict[str, Any]:
        rules = self._faults[fault_id]
        return {
            "id": fault_id,
            "hits": sum(rule.hits for rule in rules),
            "held": sum(held.get(rule.rule_id, 0) for rule in rules),
            "rules": [{**rule.value, "hits": rule.hits, "held": held.get(rule.rule_id, 0)} for rule in rules],
        }

    async def _held(self) -> dict[str, int]:
        found: dict[str, int] = {}

        async def ask(switches: Switches, broker_id: int) -> dict[str, int]:
            with contextlib.suppress(TidegaugeError):  # it has just died, and holds nothing any more
                return await switches.held_by_rules(broker_id)
            return {}

        for by_rule in await self._at_each(ask, {ProcessState.UP}):
            for rule_id, number in by_rule.items():
                found[rule_id] = found.get(rule_id, 0) + number
        return found

    async def _apply(self) -> None:
        self._write_sticky()
        await self._notify()

    def _write_sticky(self) -> None:
        entries = [
            {"id": rule.rule_id, "rule": dict(rule.value), "tally": str(rule.tally_file)}
            for rules in self._faults.values()
            for rule in rules
            if rule.value.get("sticky")
        ]
        path = self._room / layout.RULES_FILE
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(entries), encoding="utf-8")
        temporary.replace(path)

    async def _notify(self) -> None:
        pids = self._pids()

        async def notify(switches: Switches, broker_id: int) -> None:
            wanted = [rule for rules in self._faults.values() for rule in rules]
            messages = [rule.message for rule in wanted if rule.is_at(broker_id, pids[broker_id])]
            await switches.set_rules(broker_id, messages)

        try:
            await self._at_each(notify, {ProcessState.UP, ProcessState.PAUSED})
        except TidegaugeError as problem:
            raise RefusedError(409, problem.code.name, f"{problem.message}; the fault was not changed") from None

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


def _problems(rule: Rule) -> list[str]:
    """Return why the responses of its APIs can't carry a rule's error."""
    found = (error_responses.problem(api, after_effect=rule.after_effect) for api in sorted(rule.keys))
    return [problem for problem in found if problem]
