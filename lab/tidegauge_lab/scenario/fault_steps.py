"""The steps of scenario files that put a declared fault in force: one for each fault of the table."""

from __future__ import annotations

from typing import Any, ClassVar, Self, assert_never

from tidegauge.faults.model import FaultKind, Parameter, WantedFault
from tidegauge.faults.table import FAULTS
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_lab.local.roles import Role
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.readers import Reader
from tidegauge_lab.scenario.step_base import Argument, Step, argument, in_a_line
from tidegauge_lab.scenario.wording import brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStep(Step):
    """Puts a declared fault in force at a broker; each fault of the table has a subclass."""

    kind: ClassVar[FaultKind]

    broker: int | Role = argument(readers.broker_or_role, "the broker, or its role")
    fault: WantedFault

    @classmethod
    def more_arguments(cls) -> dict[str, Argument]:
        """Return the fault's parameters."""
        return {
            one.name: Argument(one.name, _fault_reader(one), _about(one), one.default, one.is_required)
            for one in cls.kind.parameters
        }

    @classmethod
    def made(cls, line: int, note: str, values: dict[str, Any]) -> Self:
        """Return the step; all values but the broker are the fault's."""
        return cls(line=line, note=note, broker=values.pop("broker"), fault=cls.kind.wanted(values))

    def value_of(self, argument: Argument) -> Any:
        """Return the broker, or the value of one of the fault's parameters."""
        return self.broker if argument.attribute == "broker" else self.fault[argument.attribute]

    def sentence(self) -> str:
        """Return the step in words."""
        return self.fault.order(brokers([self.broker]))


def _fault_reader(parameter: Parameter) -> Reader[Any]:
    match parameter.kind:
        case "integer":
            if parameter.minimum < 0:
                return readers.signed
            return readers.positive if parameter.minimum else readers.integer
        case "number":
            return readers.probability
        case "flag":
            return readers.truth
        case "choice":
            return readers.choice(*parameter.choices)
        case "error":
            return readers.error_name
        case "peers":
            return readers.plane
        case "partition":
            return readers.partition
        case "partitions":
            return readers.one_or_many(readers.partition)
        case "text" | "time":
            return readers.text
        case _:
            assert_never(parameter.kind)


def _about(parameter: Parameter) -> str:
    meaning = in_a_line(parameter.meaning)
    return f"{meaning} (default {parameter.shown_default})" if parameter.shown_default else meaning


def _fault_step(kind: FaultKind) -> type[FaultStep]:
    about = in_a_line(kind.meaning)
    return type(kind.name, (FaultStep,), {"verb": kind.name, "about": about, "kind": kind, "__doc__": kind.meaning})


FAULT_STEPS: tuple[type[FaultStep], ...] = tuple(map(_fault_step, FAULTS.values()))
