"""The diagrams in docs/groups.md are those of the tables that the coordinator obeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.groups import GroupState
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.states import ALLOWED
from tidegauge_broker.diagrams import renewed

PAGE = Path(__file__).parents[3] / "docs" / "groups.md"


def test_the_page_of_groups_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page) == page, "run: make diagrams"


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError, match="group states: generated"):
        renewed("# Consumer groups\n")


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
