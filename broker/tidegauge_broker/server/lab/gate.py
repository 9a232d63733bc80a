"""Requests that arrive: partitioned, delayed, lost, held, or given an error, by API name and caller, for every wire.

Contract: the service's ``Gate``. A call whose caller is partitioned from this broker ends at once, as if the port
refused it; so do calls and connections in flight when a partition begins. Their effects continue here (a produce
may be appended), only their responses are lost: the other end does not know the outcome.

Rules:
    1. A caller is the broker that its wire names, else a client.
    2. If a connection carries several requests, delays, losses and errors apply to each of them separately.
    3. While nothing is in force, a request passes with one look at the tables.
    4. A fault comes before a rule: a request that a fault affects is not counted by rules.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from tidegauge.errors import ErrorCode
from tidegauge_broker.server.lab import fault_table
from tidegauge_broker.server.lab.fault_table import CLIENT, IN, End, FaultTable, MetError
from tidegauge_broker.server.lab.rules import RuleTable, Taken
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, Entry, GatedRequest, Hold, InjectedError


class Delay:
    """A hold that ends by itself."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms

    async def wait(self) -> None:
        """Wait for the delay."""
        await asyncio.sleep(self._delay_ms / 1000)


class InTurn:
    """Several holds, one after the other."""

    def __init__(self, holds: Sequence[Hold]) -> None:
        self._holds = holds

    async def wait(self) -> None:
        """Wait for each."""
        for hold in self._holds:
            await hold.wait()


class _Entry:
    """One call or connection."""

    __slots__ = ("broken_by", "caller", "end")

    def __init__(self, caller: End, end: Callable[[], object]) -> None:
        self.caller = caller
        self.end = end
        self.broken_by = ""


class LabGate:
    """Applies faults to the requests that arrive at a broker.

    Args:
        faults: the faults in force on this broker.
        rules: for requests of Kafka's clients; None: there are none.
        is_controller: whether a node is one of the controllers of a quorum.
    """

    def __init__(
        self,
        faults: FaultTable,
        rules: RuleTable | None = None,
        is_controller: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._faults = faults
        self._is_controller = is_controller
        self._rules = RuleTable(faults.broker_id) if rules is None else rules
        self._taken: dict[int, Taken] = {}
        self._entries: dict[_Entry, None] = {}
        faults.listeners.append(self._look_again)

    @property
    def is_open(self) -> bool:
        """Whether nothing is in force; rule 3."""
        return self._faults.is_empty and self._rules.is_empty

    def enter(self, caller: Caller, end: Callable[[], object]) -> Entry:
        """Register a call or a connection."""
        entry = _Entry(self._end_of(caller), end)
        self._entries[entry] = None
        return entry

    def check(self, entry: Entry) -> None:
        """Refuse a call whose caller is partitioned from this broker."""
        assert isinstance(entry, _Entry)
        refused_by = self._faults.network(IN, entry.caller, count=False).refused_by
        if refused_by is not None:
            self._faults.count(refused_by)
            raise CallRefused(_words(refused_by))

    def leave(self, entry: Entry) -> None:
        """Forget a call or a connection."""
        assert isinstance(entry, _Entry)
        self._entries.pop(entry, None)

    async def admit(self, request: GatedRequest) -> InjectedError | None:
        """Apply the faults in force to one request; rule 2."""
        verdict = self._faults.network(IN, self._end_of(request.caller))
        if verdict.delay_ms:
            self._note(request, f"delayed by {verdict.delay_ms} ms", *verdict.delayed_by)
            await asyncio.sleep(verdict.delay_ms / 1000)
        if verdict.refused_by is not None:
            self._note(request, "connection closed", verdict.refused_by)
            raise CallRefused(_words(verdict.refused_by))
        hold = self._faults.hold(request, after_effect=False)
        if hold is not None:
            self._note(request, "request held", hold.fault_id)
            await hold.barrier.wait()
        met = self._faults.error(request)
        if met is not None:
            return self._injected(met, request)
        taken = self._rules.take(request, _now_ms())
        return None if taken is None else await self._obey(taken, request)

    def _injected(self, met: MetError, request: GatedRequest) -> InjectedError:
        """Return the error of a fault."""
        fault = met.error
        name = fault.grpc_status or ErrorCode.of(fault.error).name
        self._note(request, f"error {name}" + (" after its effect" if fault.after_effect else ""), met.fault_id)
        return InjectedError(fault.error, fault.after_effect, fault.grpc_status or None)

    def _note(self, request: GatedRequest, words: str, *fault_ids: int) -> None:
        self._rules.note_fault(request, _now_ms(), words, fault_ids)

    async def _obey(self, taken: Taken, request: GatedRequest) -> InjectedError | None:
        """Do what a rule says before the request's effect; what it says of the response comes with ``hold_of``."""
        rule = taken.rule
        if not rule.after_effect:
            transfer = request.size_bytes / rule.bytes_per_second if rule.bytes_per_second else 0.0
            if rule.delay_ms or transfer:
                await asyncio.sleep(rule.delay_ms / 1000 + transfer)
            if rule.freeze and taken.barrier is not None:
                await taken.barrier.wait()
            if rule.disconnect and not rule.hold:
                raise CallRefused("a rule of the lab closes the connection")
        self._taken[id(request)] = taken
        if rule.disconnect:
            return InjectedError(0, rule.after_effect, "UNAVAILABLE")
        if rule.error is None and not rule.throttle_time_ms and not rule.bytes_per_second:
            return None
        return InjectedError(
            rule.error or 0,
            rule.after_effect,
            top_level=rule.top_level,
            topic=rule.topic,
            partitions=rule.partitions,
            throttle_time_ms=rule.throttle_time_ms,
            bytes_per_second=rule.bytes_per_second,
        )

    def hold_of(self, request: GatedRequest) -> Hold | None:
        """Return the response's hold, as decided when the request is handled."""
        taken = self._taken.pop(id(request), None)
        if taken is None:
            return self._response_hold(request)
        rule, holds = taken.rule, list[Hold]()
        if rule.delay_ms and rule.after_effect:
            holds.append(Delay(rule.delay_ms))
        if taken.barrier is not None and (rule.hold or rule.after_effect):
            holds.append(taken.barrier)
        return InTurn(holds) if holds else self._response_hold(request)

    def _response_hold(self, request: GatedRequest) -> Hold | None:
        """Return where a fault holds the response."""
        hold = self._faults.hold(request, after_effect=True)
        if hold is None:
            return None
        self._note(request, "response held", hold.fault_id)
        return hold.barrier

    def _end_of(self, caller: Caller) -> End:
        node_id = caller.broker_id
        if node_id is None:
            return CLIENT
        return fault_table.controller(node_id) if self._is_controller(node_id) else fault_table.broker(node_id)

    def _look_again(self) -> None:
        """End the calls and connections that the changed table partitions."""
        for entry in list(self._entries):
            refused_by = self._faults.network(IN, entry.caller, count=False).refused_by
            if refused_by is not None and not entry.broken_by:
                self._faults.count(refused_by)
                entry.broken_by = _words(refused_by)
                entry.end()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _words(fault_id: int) -> str:
    return f"refused by the lab (fault {fault_id})"
