"""The diagrams in docs/replication.md, groups.md and transactions.md show the tables that the code obeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.groups import GroupState
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.states import ALLOWED
from tidegauge_broker.diagrams import TABLES, renewed

PAGES = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", TABLES)
def test_the_page_is_up_to_date(name):
    page = (PAGES / name).read_text(encoding="utf-8")
    assert renewed(page, name) == page, "run: make diagrams"


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError, match="group states: generated"):
        renewed("# Consumer groups\n", "groups.md")


def test_what_is_not_in_the_table_of_groups_is_refused():
    """The predecessors of GroupMetadata.validPreviousStates; Dead takes any."""
    for old in GroupState:
        for new in GroupState:
            group = Group("g", 0, 0)
            group.state = old
            if (old, new) in ALLOWED:
                group.change_state(new, 1)
                assert (group.state, group.state_since_ms) == (new, 1)
            else:
                with pytest.raises(AssertionError, match="may not change"):
                    group.change_state(new, 1)
