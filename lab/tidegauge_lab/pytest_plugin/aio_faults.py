"""Faults inside the brokers of a test's cluster: network partitions, errors, disks, held followers and requests.

Rules:
    1. A switch returns when its effect is true. ``docs/faults.md`` describes its arguments.
    2. Brokers are asked over the Lab service, which no fault affects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.model import WantedFault
from tidegauge.partition import TopicPartition
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.waiting import holds_within
from tidegauge_lab.session_ending import expire_session
from tidegauge_lab.switches import (
    BrokerSwitches,
    Fault,
    Step,
    Switches,
    Until,
)
from tidegauge_lab.switches.fault_calls import FaultCalls

LOOK_SECONDS = 2.0
HELD_SECONDS = 30.0
_ENDING_SECONDS = 5.0
"""How long a broker that no longer responds may take to end."""


class AsyncFaults(FaultCalls):
    """The switches of a cluster's brokers."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self._sessions_ended = False
        self._disks_failed: set[int] = set()
        """Brokers that may have an offline log directory."""

    def _up(self) -> list[int]:
        return [broker.id for broker in self.local.file.brokers if self.local.state_of(broker.id) is ProcessState.UP]

    async def _ids(self, *brokers: int | str) -> list[int]:
        """Return the brokers that ids, or words of roles, name now."""
        if all(isinstance(broker, int) for broker in brokers):
            return [int(broker) for broker in brokers]
        return await asyncio.to_thread(lambda: [self.local.broker_of(broker) for broker in brokers])

    async def set_fault(self, broker: int | str, wanted: WantedFault) -> Fault:
        """Put a declared fault in force; every method of ``FaultCalls`` comes here.

        Raises:
            TidegaugeError: INVALID_REQUEST, the broker refuses it; BROKER_NOT_AVAILABLE.
        """
        [broker_id] = await self._ids(broker)
        async with Switches.of_cluster(self.local.file) as switches:
            fault = await switches.set_fault(broker_id, wanted)
        if fails_disk(fault):
            self._disks_failed.add(broker_id)
        return fault

    async def heal(self, *brokers: int | str) -> None:
        """End all network partitions, delays and losses of these brokers, or of all that run."""
        wanted = await self._ids(*brokers) or self._up()
        async with Switches.of_cluster(self.local.file) as switches:
            for broker in wanted:
                await switches.heal(broker)

    async def faults(self) -> list[BrokerSwitches]:
        """Return the active faults of the brokers that run and respond."""
        async with Switches.of_cluster(self.local.file) as switches:

            async def look(broker: int) -> BrokerSwitches | None:
                with contextlib.suppress(TidegaugeError, TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        return await switches.list_faults(broker)
                return None

            found = await asyncio.gather(*map(look, self._up()))
        return [one for one in found if one is not None]

    async def clear_faults(self, *brokers: int | str) -> int:
        """End all faults of these brokers, or of all that run, and release their followers; returns how many."""
        wanted = await self._ids(*brokers) or self._up()
        async with Switches.of_cluster(self.local.file) as switches:

            async def clear(broker: int) -> int:
                ended, released = await switches.clear(broker, holds=True)
                if any(fails_disk(fault) and fault.met for fault in ended):
                    self._disks_failed.add(broker)
                return len(ended) + len(released)

            return sum(await asyncio.gather(*map(clear, wanted)))

    async def wait_held(self, broker: int | str, count: int = 1, *, timeout: float = HELD_SECONDS) -> int:  # noqa: ASYNC109 - as users of pytest expect it
        """Wait until the broker's ``hold_requests`` keep ``count`` requests or more; return the number that they keep.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, with how many are held instead.
        """
        [broker_id] = await self._ids(broker)
        async with Switches.of_cluster(self.local.file) as switches:
            return await switches.wait_held(broker_id, count, limit_seconds=timeout)

    async def release_requests(self, broker: int | str, which: str = "all") -> int:
        """End the broker's ``hold_requests`` of all, requests or responses; return how many that lets go on."""
        [broker_id] = await self._ids(broker)
        async with Switches.of_cluster(self.local.file) as switches:
            return sum(fault.held for fault in await switches.release_requests(broker_id, which))

    async def hold_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int | str]) -> None:
        """Hold the partition's followers on these brokers: they fetch only when stepped."""
        followers = await self._ids(*brokers)
        async with Switches.of_cluster(self.local.file) as switches:
            await switches.hold_fetch(TopicPartition(topic, partition), followers)

    async def release_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int | str]) -> None:
        """Let them fetch by themselves again."""
        followers = await self._ids(*brokers)
        async with Switches.of_cluster(self.local.file) as switches:
            await switches.release_fetch(TopicPartition(topic, partition), followers)

    async def step_fetch(
        self, topic: str, partition: int = 0, *, broker: int | str, until: Until | str = Until.RESPONSE
    ) -> Step:
        """One round of a held follower; what it changed."""
        [follower] = await self._ids(broker)
        async with Switches.of_cluster(self.local.file) as switches:
            return await switches.step_fetch(TopicPartition(topic, partition), follower, until=Until(until))

    async def expire_session(self, broker: int | str) -> None:
        """End the broker's ZooKeeper session on the server, at once; the broker may be up, paused or down."""
        [broker_id] = await self._ids(broker)
        self._sessions_ended = True
        async with Switches.of_cluster(self.local.file) as switches:
            await expire_session(self.local, switches, broker_id)

    async def sync(self, broker: int | str, topic: str | None = None, partition: int = 0) -> None:
        """Flush a replica's log to the disk, or all of the broker: a power loss can't take it any more."""
        at = None if topic is None else TopicPartition(topic, partition)
        [broker_id] = await self._ids(broker)
        async with Switches.of_cluster(self.local.file) as switches:
            await switches.sync_log(broker_id, at)

    async def _switch_off(self) -> bool:
        """End all active faults, whoever set them; return whether brokers may have to register again.

        Raises:
            TidegaugeError: a broker does not respond, so its faults may still be in force.
        """
        ended = await asyncio.gather(*map(self._clear_if_any, self._up()))
        was_ended, self._sessions_ended = self._sessions_ended, False
        return was_ended or any(ended)

    async def _end_with_failed_disks(self) -> None:
        """Stop the brokers whose disks have failed: a failed log directory is offline until the process is restarted.

        Raises:
            TimeLimitError: one does not end in time.
        """
        failed, self._disks_failed = self._disks_failed, set()
        if running := sorted(failed.intersection(self._up())):
            await asyncio.to_thread(self.local.stop, *running)

    async def _clear_if_any(self, broker: int) -> int:
        """End the broker's faults; one without lab.enable=true, or that is ending, has none.

        A broker whose last disk fails closes its listeners before its process has ended.
        """
        try:
            return await self.clear_faults(broker)
        except TidegaugeError as problem:
            is_without = problem.code is ErrorCode.UNSUPPORTED_VERSION
            limit_seconds = _ENDING_SECONDS if problem.code is ErrorCode.BROKER_NOT_AVAILABLE else 0
            if is_without or await asyncio.to_thread(self._has_ended, broker, limit_seconds):
                return 0
            raise

    def _has_ended(self, broker: int, limit_seconds: float) -> bool:
        """Whether a broker's process has ended, or ends within this time."""
        return holds_within(lambda: self.local.state_of(broker) is ProcessState.DOWN, limit_seconds)


def fails_disk(fault: Fault) -> bool:
    """Return whether operations on a broker's files fail by this fault."""
    return fault.message.HasField("disk") and bool(fault.message.disk.errno_name)
