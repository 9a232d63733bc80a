"""Every schedule of a small consumer group, and shortest schedules when a rule is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tidegauge_broker.coordinator.consumer_group import heartbeats
from tidegauge_broker.coordinator.consumer_group.reconciling import Reconciliation
from tidegauge_proof.exhaustive.consumer_schedules import ConsumerBounds, ConsumerExplorer

Patch = pytest.MonkeyPatch
SMALL = ConsumerBounds(joins=3, ends=1, lost=1)


def test_every_schedule_of_two_members_and_two_partitions_holds() -> None:
    """Three joins, a leave or the end of a session, and a response that is lost."""
    result = ConsumerExplorer(SMALL).explore()
    assert result.violation is None, result.schedule
    assert result.states == 1_058


@pytest.mark.long
def test_every_schedule_with_two_ends_and_two_lost_responses_holds() -> None:
    result = ConsumerExplorer(ConsumerBounds(joins=4, ends=2, lost=2)).explore()
    assert result.violation is None, result.schedule
    assert result.states == 14_379


def partitions_are_given_before_they_are_released(patch: Patch) -> None:
    apply = Reconciliation.apply_to
    patch.setattr(Reconciliation, "apply_to", lambda self, member: apply(replace(self, owners={}), member))


def no_revocation_is_awaited(patch: Patch) -> None:
    patch.setattr(Reconciliation, "_owns_some_of", lambda *_: False)


def no_target_is_computed(patch: Patch) -> None:
    patch.setattr(heartbeats, "add_target", lambda *_: None)


def a_repeated_heartbeat_gets_no_assignment(patch: Patch) -> None:
    patch.setattr(heartbeats, "_is_full", lambda _: False)


@pytest.mark.parametrize(
    ("mutant", "invariant"),
    [
        (partitions_are_given_before_they_are_released, "K1"),
        (no_revocation_is_awaited, "K7"),
        (no_target_is_computed, "K6"),
        (a_repeated_heartbeat_gets_no_assignment, "K6"),
    ],
)
def test_a_missing_rule_has_a_schedule(mutant: Callable[[Patch], None], invariant: str, monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    result = ConsumerExplorer(SMALL).explore()
    assert result.violation is not None
    assert result.violation.invariant == invariant, result.schedule
    assert result.schedule
