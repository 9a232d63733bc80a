"""The roles of replicas, and the states of future replicas, groups, transactional ids and their partitions, as Mermaid.

``python -m tidegauge_broker.diagrams PAGE...`` (``make diagrams``) renews the text between a table's markers in the
pages; a test checks that it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tidegauge.page_sections import with_section
from tidegauge_broker.coordinator import shard
from tidegauge_broker.coordinator.group import states as group_states
from tidegauge_broker.coordinator.led_partitions import ShardTransition
from tidegauge_broker.coordinator.transaction import states as transaction_states
from tidegauge_broker.replica import future_states, roles

Row = (
    roles.Transition
    | future_states.Transition
    | group_states.Transition
    | transaction_states.Transition
    | ShardTransition
)


def mermaid(rows: Iterable[Row]) -> str:
    """Return a state diagram with one arrow for each pair of states."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for row in rows:
        arrow = f"    {'[*]' if row.old is None else row.old.value} --> {'[*]' if row.new is None else row.new.value}"
        if arrow not in lines:
            lines.append(arrow)
    return "\n".join([*lines, "```"])


def table(rows: Iterable[Row]) -> str:
    """Return the transitions as a table: a row for each."""
    lines = ["| from | to | when |", "|---|---|---|"]
    for row in rows:
        old, new = ("" if state is None else state.value for state in (row.old, row.new))
        lines.append(f"| {old} | {new} | {row.when} |")
    return "\n".join(lines)


TABLES: dict[str, dict[str, Iterable[Row]]] = {
    "replication.md": {"replica role": roles.TRANSITIONS, "future replica": future_states.TRANSITIONS},
    "groups.md": {"group": group_states.TRANSITIONS, "shard": shard.SHARD_TRANSITIONS},
    "transactions.md": {
        "transaction": transaction_states.TRANSITIONS,
        "transaction shard": transaction_states.SHARD_TRANSITIONS,
    },
}
"""The diagrams, by page, and by the name of the object that has the states."""


def renewed(page: str, name_of_page: str) -> str:
    """Return the page with its generated parts renewed.

    Raises:
        ValueError: a marker is missing.
    """
    for name, rows in TABLES[name_of_page].items():
        text = f"{mermaid(rows)}\n\n{table(rows)}"
        begin, end = f"<!-- {name} states: generated -->", f"<!-- {name} states: end -->"
        page = with_section(page, begin, end, text)
    return page


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(renewed(file.read_text(encoding="utf-8"), file.name), encoding="utf-8")
