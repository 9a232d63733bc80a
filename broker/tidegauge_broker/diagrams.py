"""The states of groups and of their partitions as Mermaid diagrams, drawn from the tables that the coordinator obeys.

``python -m tidegauge_broker.diagrams docs/groups.md`` (``make diagrams``) renews the text between a table's markers in
the page; a test checks that it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tidegauge.page_sections import with_section
from tidegauge_broker.coordinator.group.states import TRANSITIONS, Transition
from tidegauge_broker.coordinator.shard import SHARD_TRANSITIONS, ShardTransition


def mermaid(rows: Iterable[Transition | ShardTransition]) -> str:
    """Return a state diagram with one arrow for each pair of states."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for row in rows:
        arrow = f"    {'[*]' if row.old is None else row.old.value} --> {row.new.value}"
        if arrow not in lines:
            lines.append(arrow)
    return "\n".join([*lines, "```"])


def table(rows: Iterable[Transition | ShardTransition]) -> str:
    """Return the transitions as a table: a row for each."""
    lines = ["| from | to | when |", "|---|---|---|"]
    lines += [f"| {'' if row.old is None else row.old.value} | {row.new.value} | {row.when} |" for row in rows]
    return "\n".join(lines)


def sections() -> dict[str, str]:
    """Return the text between the markers, by the name of what has the states."""
    return {
        "group": f"{mermaid(TRANSITIONS)}\n\n{table(TRANSITIONS)}",
        "shard": f"{mermaid(SHARD_TRANSITIONS)}\n\n{table(SHARD_TRANSITIONS)}",
    }


def renewed(page: str) -> str:
    """Return the page with its generated parts renewed.

    Raises:
        ValueError: a marker is missing.
    """
    for name, text in sections().items():
        begin, end = f"<!-- {name} states: generated -->", f"<!-- {name} states: end -->"
        page = with_section(page, begin, end, text)
    return page


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(renewed(file.read_text(encoding="utf-8")), encoding="utf-8")
