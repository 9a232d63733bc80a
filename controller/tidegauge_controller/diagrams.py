"""The state machines as Mermaid diagrams, drawn from their tables of legal transitions, and put into the docs.

``python -m tidegauge_controller.diagrams docs/controller.md`` renews the text between a machine's markers in the page;
a test checks that it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from tidegauge.page_sections import with_section
from tidegauge_controller.zookeeper.decisions import partition_machine, replica_machine
from tidegauge_controller.zookeeper.decisions.context import PartitionStatus, ReplicaStatus

State = TypeVar("State", PartitionStatus, ReplicaStatus)


def mermaid(transitions: Mapping[State, frozenset[State]], start: State) -> str:
    """Return a state diagram.

    Args:
        transitions: for each state, the states from which it may be reached.
        start: the state before all others, which is also the final one.
    """
    lines: list[str] = ["```mermaid", "stateDiagram-v2"]
    for source in type(start):
        lines += [
            f"    {_name(source, start)} --> {_name(target, start)}"
            for target in type(start)
            if source in transitions[target]
        ]
    return "\n".join([*lines, "```"])


def _name(state: State, start: State) -> str:
    return "[*]" if state is start else str(state.value)


def table(transitions: Mapping[State, frozenset[State]]) -> str:
    """Return the transitions as a table: a row for each state."""
    rows = ["| target | may be reached from |", "|---|---|"]
    for target, sources in transitions.items():
        named = ", ".join(str(source.value) for source in type(target) if source in sources)
        rows.append(f"| {target.value} | {named} |")
    return "\n".join(rows)


def sections() -> dict[str, str]:
    """Return the text between the markers, by the machine's name."""
    partition, replica = partition_machine.TRANSITIONS, replica_machine.TRANSITIONS
    return {
        "partition": f"{mermaid(partition, PartitionStatus.NON_EXISTENT)}\n\n{table(partition)}",
        "replica": f"{mermaid(replica, ReplicaStatus.NON_EXISTENT)}\n\n{table(replica)}",
    }


def renewed(page: str) -> str:
    """Return the page with its generated parts renewed.

    Raises:
        ValueError: a marker is missing.
    """
    for name, text in sections().items():
        begin, end = f"<!-- {name} state machine: generated -->", f"<!-- {name} state machine: end -->"
        page = with_section(page, begin, end, text)
    return page


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(renewed(file.read_text()))
