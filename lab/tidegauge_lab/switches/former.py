"""Former names in Python, which scripts may still use: each works for one release, and says what replaces it.

``NetworkEffect``, ``InjectedError`` and ``DiskEffect`` were the arguments of ``Switches.isolate``, ``inject_error`` and
``set_disk``; these take the parameters of the declared faults as keywords now. Remove this module, and what names it in
``tidegauge_lab.switches`` and ``Switches``, after the next release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import Direction, Plane
from tidegauge.faults.table import kind_of
from tidegauge_lab.switches.deprecation import former
from tidegauge_lab.switches.fault_calls import FaultCalls
from tidegauge_lab.switches.model import Fault


@dataclass(frozen=True, slots=True)
class NetworkEffect:
    """What happens to calls: none passes (the default), each message is delayed, or each call may be lost."""

    delay_ms: int = 0
    drop_probability: float = 0.0
    seed: int = 0

    def values(self) -> dict[str, Any]:
        """Return the parameters of ``isolate``."""
        return {"delay_ms": self.delay_ms or None, "drop": self.drop_probability or None, "seed": self.seed}


@dataclass(frozen=True, slots=True)
class InjectedError:
    """Which calls of an RPC fail, and how; ``skip`` is the number of calls that pass first."""

    rpc: str
    error: ErrorCode = ErrorCode.NONE
    grpc_status: str = ""
    after_effect: bool = False
    skip: int = 0
    times: int = 1
    probability: float = 1.0
    seed: int = 0

    def values(self) -> dict[str, Any]:
        """Return the parameters of ``inject_error``."""
        return {
            "rpc": self.rpc,
            "error": self.error,
            "grpc_status": self.grpc_status,
            "after_effect": self.after_effect,
            "nth": self.skip + 1,
            "times": self.times,
            "probability": self.probability,
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class DiskEffect:
    """Which operations of a broker's disk are slow or fail; ``skip`` is the number of operations that pass first."""

    delay_ms: int = 0
    errno_name: str = ""
    operation: str = ""
    path_contains: str = ""
    skip: int = 0
    times: int = 0

    def values(self) -> dict[str, Any]:
        """Return the parameters of ``inject_disk``."""
        return {
            "delay_ms": self.delay_ms or None,
            "errno": self.errno_name,
            "operation": self.operation,
            "path": self.path_contains,
            "nth": self.skip + 1,
            "times": self.times,
        }


FORMER = {
    "NetworkEffect": (NetworkEffect, "Switches.isolate takes delay_ms, drop and seed as keywords"),
    "InjectedError": (InjectedError, "Switches.inject_error takes the RPC, the error and keywords such as nth"),
    "DiskEffect": (
        DiskEffect,
        "Switches.inject_disk takes delay_ms, errno, operation, path, nth and times as keywords",
    ),
}
"""By name: what it is, and what replaces it."""


class FormerCalls(FaultCalls):
    """The methods of the declared faults, which also take what they took before."""

    async def isolate(
        self,
        broker: int | str,
        ends: Plane | str | Sequence[int],
        direction: Direction | str = "both",
        effect: NetworkEffect | None = None,
        **values: Any,
    ) -> Fault:
        """Partition a broker; see ``FaultCalls.isolate``, whose keywords replace ``effect``."""
        given = {**values, **(effect.values() if effect is not None else {})}
        return await super().isolate(broker, ends, direction, **given)

    async def inject_error(
        self, broker: int | str, rpc: str | InjectedError, error: ErrorCode | str = "NONE", **values: Any
    ) -> Fault:
        """Make calls of an RPC fail; see ``FaultCalls.inject_error``, whose arguments replace an ``InjectedError``."""
        if isinstance(rpc, InjectedError):
            return await self.set_fault(broker, kind_of("inject_error").wanted(rpc.values()))
        return await super().inject_error(broker, rpc, error, **values)

    async def set_disk(self, broker: int, effect: DiskEffect) -> Fault:
        """Make a broker's disk slow or failing; ``inject_disk`` replaces it."""
        former("Switches.set_disk", FORMER["DiskEffect"][1])
        return await self.set_fault(broker, kind_of("inject_disk").wanted(effect.values()))
