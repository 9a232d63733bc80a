"""The declared faults as methods.

Made by tools/generate-faults.py from proto/tidegauge/faults/table.py; change it there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import Direction, Plane, WantedFault
from tidegauge.faults.table import kind_of
from tidegauge_lab.switches.model import Fault


class FaultCalls(ABC):
    """Every declared fault, for those who can put one in force at a broker."""

    @abstractmethod
    async def set_fault(self, broker: int | str, wanted: WantedFault) -> Fault:
        """Put a fault in force at a broker, by its id or, where roles are known, the word of a role."""

    async def isolate(
        self,
        broker: int | str,
        ends: Plane | str | Sequence[int],
        direction: Direction | str = "both",
        *,
        delay_ms: int | None = None,
        drop: float | None = None,
        seed: int = 0,
    ) -> Fault:
        """Partition a broker from brokers, ZooKeeper, clients or controllers, one way or both; delay or drop calls.

        Args:
            broker: Its id, or the word of a role.
            ends: The other end: all other brokers, ZooKeeper, clients, the controllers of KRaft mode, or nodes by id.
            direction: in: calls that arrive at the broker; out: calls it makes; responses belong to their calls.
            delay_ms: Delay each message instead, in milliseconds.
            drop: Drop each call with this probability instead.
            seed: Seed of the random numbers.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        values = {"from": ends, "direction": direction, "delay_ms": delay_ms, "drop": drop, "seed": seed}
        return await self.set_fault(broker, kind_of("isolate").wanted(values))

    async def inject_error(
        self,
        broker: int | str,
        rpc: str,
        error: ErrorCode | str = "NONE",
        *,
        grpc_status: str = "",
        after_effect: bool = False,
        nth: int = 1,
        times: int = 1,
        probability: float = 1.0,
        seed: int = 0,
        caller: str = "",
        client_id: str = "",
        topic: str = "",
        partition_index: int | None = None,
        group: str = "",
    ) -> Fault:
        """Make calls of an RPC fail at a broker.

        Args:
            broker: Its id, or the word of a role.
            rpc: API, by Kafka's name or its RPC's: Produce, JoinGroup, ReplicaFetch, LeaderAndIsr.
            error: Error of Kafka's protocol in the response: NOT_ENOUGH_REPLICAS.
            grpc_status: Or the gRPC status that ends the call: UNAVAILABLE.
            after_effect: The call takes effect, and only its response is replaced.
            nth: Ordinal of the first call affected.
            times: Number of calls affected; 0: no limit.
            probability: Probability with which each of them fails.
            seed: Seed of the random numbers.
            caller: Only calls of this sender: clients, brokers, or a broker's id.
            client_id: Only calls of clients with this client.id.
            topic: Only calls that name this topic.
            partition_index: Only calls that name this partition of the topic.
            group: Only calls that name this group or transactional id.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        values = {
            "rpc": rpc,
            "error": error,
            "grpc_status": grpc_status,
            "after_effect": after_effect,
            "nth": nth,
            "times": times,
            "probability": probability,
            "seed": seed,
            "caller": caller,
            "client_id": client_id,
            "topic": topic,
            "partition_index": partition_index,
            "group": group,
        }
        return await self.set_fault(broker, kind_of("inject_error").wanted(values))

    async def hold_requests(
        self,
        broker: int | str,
        rpc: str,
        *,
        after_effect: bool = False,
        outlives_connection: bool = False,
        nth: int = 1,
        times: int = 0,
        caller: str = "",
        client_id: str = "",
        topic: str = "",
        partition_index: int | None = None,
        group: str = "",
    ) -> Fault:
        """Hold requests of an API at a broker, or their responses, until they are released.

        Args:
            broker: Its id, or the word of a role.
            rpc: API, by Kafka's name or its RPC's: Produce, JoinGroup, ReplicaFetch, LeaderAndIsr.
            after_effect: The request takes effect, and its response is held.
            outlives_connection: The request waits on when its client disconnects, and takes effect late, at the
                release.
            nth: Ordinal of the first call affected.
            times: Number of calls affected; 0: no limit.
            caller: Only calls of this sender: clients, brokers, or a broker's id.
            client_id: Only calls of clients with this client.id.
            topic: Only calls that name this topic.
            partition_index: Only calls that name this partition of the topic.
            group: Only calls that name this group or transactional id.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        values = {
            "rpc": rpc,
            "after_effect": after_effect,
            "outlives_connection": outlives_connection,
            "nth": nth,
            "times": times,
            "caller": caller,
            "client_id": client_id,
            "topic": topic,
            "partition_index": partition_index,
            "group": group,
        }
        return await self.set_fault(broker, kind_of("hold_requests").wanted(values))

    async def inject_disk(
        self,
        broker: int | str,
        *,
        delay_ms: int | None = None,
        errno: str = "",
        operation: str = "",
        path: str = "",
        nth: int = 1,
        times: int = 0,
    ) -> Fault:
        """Make a broker's disk slow, or make it fail.

        Args:
            broker: Its id, or the word of a role.
            delay_ms: Additional duration of each operation, in milliseconds.
            errno: Or the error of the operating system with which each fails: EIO, ENOSPC.
            operation: Only these operations; default: all.
            path: Only files whose path contains this text.
            nth: Ordinal of the first operation affected.
            times: Number of operations affected; 0: no limit.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        values = {
            "delay_ms": delay_ms,
            "errno": errno,
            "operation": operation,
            "path": path,
            "nth": nth,
            "times": times,
        }
        return await self.set_fault(broker, kind_of("inject_disk").wanted(values))

    async def skew_clock(
        self,
        broker: int | str,
        *,
        offset_ms: int | None = None,
        set_to: str = "",
        frozen: bool = False,
    ) -> Fault:
        """Set a broker's wall clock ahead or back, or stop it.

        Args:
            broker: Its id, or the word of a role.
            offset_ms: How far the clock is ahead of the machine's; a negative number: behind it, in milliseconds.
            set_to: Or the time that it shows at first: 2030-01-01T00:00:00Z.
            frozen: The clock stops at that time, or at the present one.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        values = {"offset_ms": offset_ms, "set_to": set_to, "frozen": frozen}
        return await self.set_fault(broker, kind_of("skew_clock").wanted(values))
