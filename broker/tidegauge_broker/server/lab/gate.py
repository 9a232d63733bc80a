"""Requests that arrive: partitioned, delayed, lost, or given an error, by API name and caller, for every wire.

Contract: the service's ``Gate``. A call whose caller is partitioned from this broker ends at once, as if the port
refused it; so do calls and connections in flight when a partition begins. What they had begun goes on here (a produce
may be appended), only their responses are lost: the other end does not know the outcome.

Rules:
    1. A caller is the broker that its wire names, else a client.
    2. Where a connection carries several requests, delays, losses and errors apply to each of them separately.
    3. While nothing is in force, a request passes with one look at the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidegauge_broker.server.lab import fault_table
from tidegauge_broker.server.lab.fault_table import CLIENT, IN, End, FaultTable
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, Entry, GatedRequest, InjectedError


class _Entry:
    """One call or connection."""

    __slots__ = ("broken_by", "caller", "end")

    def __init__(self, caller: End, end: Callable[[], object]) -> None:
        self.caller = caller
        self.end = end
        self.broken_by = ""


class LabGate:
    """See the module.

    Args:
        faults: those in force on this broker.
    """

    def __init__(self, faults: FaultTable) -> None:
        self._faults = faults
        self._entries: dict[_Entry, None] = {}
        faults.listeners.append(self._look_again)

    @property
    def is_open(self) -> bool:
        """Whether nothing is in force; rule 3."""
        return self._faults.is_empty

    def enter(self, caller: Caller, end: Callable[[], object]) -> Entry:
        """Register a call or a connection."""
        entry = _Entry(_end_of(caller), end)
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
        verdict = self._faults.network(IN, _end_of(request.caller))
        if verdict.delay_ms:
            await asyncio.sleep(verdict.delay_ms / 1000)
        if verdict.refused_by is not None:
            raise CallRefused(_words(verdict.refused_by))
        fault = self._faults.error(request)
        return None if fault is None else InjectedError(fault.error, fault.after_effect, fault.grpc_status or None)

    def _look_again(self) -> None:
        """End the calls and connections that the changed table partitions."""
        for entry in list(self._entries):
            refused_by = self._faults.network(IN, entry.caller, count=False).refused_by
            if refused_by is not None and not entry.broken_by:
                self._faults.count(refused_by)
                entry.broken_by = _words(refused_by)
                entry.end()


def _end_of(caller: Caller) -> End:
    return CLIENT if caller.broker_id is None else fault_table.broker(caller.broker_id)


def _words(fault_id: int) -> str:
    return f"refused by the lab (fault {fault_id})"
