"""Each change of a future replica's state is one of the table, and each row of it is taken here.

Kafka has no such table: ReplicaAlterLogDirsManager, ReplicaAlterLogDirsThread, Partition.futureLog.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidegauge_broker.replica.future_states import ALLOWED, TRANSITIONS, FutureReplica, FutureState, check_transition

STOPPED, COPYING = FutureState.STOPPED, FutureState.COPYING
FLUSHING, FLUSHED = FutureState.FLUSHING, FutureState.FLUSHED
Act = Callable[[FutureReplica], None]
Change = tuple[FutureState | None, FutureState | None]


def be_complete(replica: FutureReplica) -> None:
    replica.enter(FLUSHING)


def end(replica: FutureReplica) -> None:
    replica.enter(None)


WAYS: dict[FutureState, tuple[Act, ...]] = {
    STOPPED: (),
    COPYING: (FutureReplica.begin,),
    FLUSHING: (FutureReplica.begin, be_complete),
    FLUSHED: (FutureReplica.begin, be_complete, FutureReplica.flushed),
}
ACTS: dict[Change, Act] = {
    (STOPPED, COPYING): FutureReplica.begin,
    (COPYING, FLUSHING): be_complete,
    (FLUSHING, FLUSHED): FutureReplica.flushed,
    (FLUSHED, FLUSHING): be_complete,
    (FLUSHING, COPYING): FutureReplica.followed,
    (FLUSHED, COPYING): FutureReplica.followed,
    (COPYING, STOPPED): FutureReplica.stop,
    (FLUSHING, STOPPED): FutureReplica.stop,
    (FLUSHED, STOPPED): FutureReplica.stop,
    (STOPPED, None): end,
    (COPYING, None): end,
    (FLUSHING, None): end,
    (FLUSHED, None): end,
}


def replica_in(state: FutureState) -> FutureReplica:
    replica = FutureReplica()
    for act in WAYS[state]:
        act(replica)
    assert replica.state is state
    return replica


@pytest.mark.parametrize("change", ACTS)
def test_a_row_of_the_table_is_taken(change: Change) -> None:
    old, new = change
    assert old is not None
    replica = replica_in(old)
    ACTS[change](replica)
    assert replica.state is new


def test_every_row_of_the_table_is_among_them() -> None:
    """All of them share a future replica's first state."""
    assert {*ACTS, (None, STOPPED)} == ALLOWED
    assert len(ALLOWED) == len(TRANSITIONS)


def test_what_is_not_in_the_table_is_refused() -> None:
    for old in (None, *FutureState):
        for new in (None, *FutureState):
            if (old, new) in ALLOWED:
                check_transition(old, new)
            else:
                with pytest.raises(AssertionError, match="may not change"):
                    check_transition(old, new)


@pytest.mark.parametrize("state", FutureState)
def test_what_finds_nothing_to_change_changes_nothing(state: FutureState) -> None:
    """The controller resumes copied replicas, and stops stopped ones (becomeLeaderOrFollower)."""
    acts = [FutureReplica.followed, FutureReplica.stop, FutureReplica.begin, FutureReplica.flushed]
    for act in (act for act in acts if all(change[0] is not state or one is not act for change, one in ACTS.items())):
        replica = replica_in(state)
        act(replica)
        assert replica.state is state


def test_a_flush_that_a_truncation_overtakes_does_not_count() -> None:
    """The flushed records are not the copy's present ones."""
    replica = replica_in(FLUSHING)
    replica.followed()
    replica.flushed()
    assert replica.state is COPYING


def test_the_lowest_truncation_counts_until_the_copy_has_followed() -> None:
    """ReplicaAlterLogDirsManager.markPartitionsForTruncation."""
    replica = replica_in(COPYING)
    for offset in (7, 4, 9):
        replica.note_truncated(offset)
    assert replica.truncated_to == 4
    replica.followed()
    assert replica.truncated_to is None
