"""Every schedule of a small share group: all hold, and a rule that is taken away is missed by a shortest schedule."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.simulator.share_mutants import (
    deliveries_are_not_counted,
    former_leaders_may_write,
    nothing_is_archived_at_the_limit,
)

from tidegauge_broker.share.partition import SharePartition
from tidegauge_proof.exhaustive.share_schedules import ShareBounds, ShareExplorer

Patch = pytest.MonkeyPatch


def test_every_schedule_of_one_record_holds() -> None:
    """Two members, a change of the leader, locks that end once, and a write that is lost, or whose response is."""
    result = ShareExplorer(ShareBounds(records=1)).explore()
    assert result.violation is None, result.schedule
    assert result.states == 1_139


@pytest.mark.long
def test_every_schedule_of_two_records_and_a_change_of_the_leader_holds() -> None:
    result = ShareExplorer(ShareBounds(records=2, lock_ends=0, failures=0)).explore()
    assert result.violation is None, result.schedule
    assert result.states == 10_595


def a_leader_begins_without_the_records(patch: Patch) -> None:
    read = SharePartition.state_read
    patch.setattr(
        SharePartition, "state_read", lambda self, error, why, epoch, *_: read(self, error, why, epoch, 0, ())
    )


@pytest.mark.parametrize(
    ("mutant", "invariant", "steps"),
    [
        (former_leaders_may_write, "S7", 4),
        (deliveries_are_not_counted, "S3", 3),
        (nothing_is_archived_at_the_limit, "S4", 6),
        (a_leader_begins_without_the_records, "S2", 5),
    ],
)
def test_a_missing_rule_has_a_shortest_schedule(
    mutant: Callable[[Patch], None], invariant: str, steps: int, monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    result = ShareExplorer(ShareBounds(records=1)).explore()
    assert result.violation is not None
    assert (result.violation.invariant, len(result.schedule)) == (invariant, steps), result.schedule
