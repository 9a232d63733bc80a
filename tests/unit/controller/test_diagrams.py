"""The diagrams in docs/controller.md show the tables that the code obeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge_controller.diagrams import mermaid, renewed
from tidegauge_controller.zookeeper.decisions.context import PartitionStatus

PAGE = Path(__file__).parents[3] / "docs" / "controller.md"


def test_the_page_is_up_to_date():
    page = PAGE.read_text()
    assert renewed(page) == page, "run: make diagrams"


def test_a_diagram_has_an_arrow_for_each_legal_transition():
    new, online, none = PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.NON_EXISTENT
    offline = PartitionStatus.OFFLINE
    drawn = mermaid(
        {new: frozenset({none}), online: frozenset({new, online}), none: frozenset(), offline: frozenset()}, none
    )
    assert [line.strip() for line in drawn.splitlines()[2:-1]] == [
        "[*] --> NewPartition",
        "NewPartition --> OnlinePartition",
        "OnlinePartition --> OnlinePartition",
    ]


def test_a_page_without_its_markers_is_refused():
    with pytest.raises(ValueError, match="partition state machine"):
        renewed("# The controller")
