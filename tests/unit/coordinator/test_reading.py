"""Requests that only read leave a coordinator as it was, so that one of them may fail and its group is served on.

docs/adr/0023-a-defect-costs-its-group.md is the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.coordinator.harness import T0, T1, Harness
from tests.unit.coordinator.transaction_harness import TransactionHarness

from tidegauge.groups import DeleteGroup, DescribeGroup, Heartbeat, ListGroups, OffsetCommit, OffsetFetch
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeTransaction,
    EndTxn,
    ListTransactions,
)
from tidegauge_broker.coordinator.reading import only_reads

GROUP_READS = [
    OffsetFetch("g"),
    OffsetFetch("g", (T0, T1), require_stable=True),
    OffsetFetch("unknown", (T0,)),
    DescribeGroup("g"),
    DescribeGroup(None),
    ListGroups(),
    ListGroups(("stable",), ("classic",)),
]
TRANSACTION_READS = [
    DescribeTransaction("tx"),
    DescribeTransaction("unknown"),
    ListTransactions(),
    ListTransactions(("Ongoing",), (0,), 1),
    AddPartitionsToTxn("tx", 0, 0, (T0, T1), verify_only=True),
    AddPartitionsToTxn("tx", 7, 0, (T0,), verify_only=True),
]


def groups() -> Harness:
    """A group with members, a committed offset, one that is being appended, and one of an open transaction."""
    made = Harness()
    made.stable_group(2)
    made.commit_transactional(3, T1)
    made.commit(1, T0, group="other")
    made.holds = True
    made.commit(2, T0, group="other")
    return made


def transactions() -> TransactionHarness:
    """An open transaction, and one whose markers are being written."""
    made = TransactionHarness()
    made.holds_markers = True
    made.init()
    made.add(T0)
    made.init(name="ending")
    made.add(T0, producer_id=1, name="ending")
    made.send_end(producer_id=1, name="ending")
    return made


def state_of(coordinator: Any) -> tuple[Any, ...]:
    """Return a coordinator's visible state, and its next deadline."""
    views = coordinator.group_views if hasattr(coordinator, "group_views") else coordinator.transaction_views
    return (
        views(),
        coordinator.gauges(),
        coordinator.shard_states(),
        coordinator.appends_in_flight,
        coordinator.next_deadline_ms(),
    )


@pytest.mark.parametrize(
    ("make", "request_"),
    [*((groups, one) for one in GROUP_READS), *((transactions, one) for one in TRANSACTION_READS)],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_a_read_leaves_a_coordinator_as_it_was(make: Callable[[], Harness | TransactionHarness], request_: Any) -> None:
    made = make()
    before = state_of(made.coordinator)
    assert only_reads(request_)
    made.ask(request_)
    assert state_of(made.coordinator) == before


@pytest.mark.parametrize(
    "request_",
    [
        OffsetCommit("g", ()),
        Heartbeat("g", 1, "m"),
        DeleteGroup("g"),
        AddPartitionsToTxn("tx", 0, 0, (T0,)),
        AddOffsetsToTxn("tx", 0, 0, 0),
        EndTxn("tx", 0, 0, Outcome.COMMIT),
        None,
    ],
    ids=repr,
)
def test_what_changes_something_is_no_read(request_: Any) -> None:
    assert not only_reads(request_)
