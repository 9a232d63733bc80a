"""A share group (KIP-932) under faults: real share partitions and coordinators, and a checker that misses no rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.simulator.share_mutants import (
    deliveries_are_not_counted,
    former_leaders_may_write,
    nothing_is_archived_at_the_limit,
)

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import InitializeShareState, ReadShareState, ShareStateResult, WriteShareState
from tidegauge_broker.coordinator.runtime import ShareRuntime
from tidegauge_broker.coordinator.share_state import deciding, shard
from tidegauge_broker.coordinator.share_state import state as state_module
from tidegauge_broker.coordinator.share_state.records import Snapshot, Update
from tidegauge_broker.share import acknowledging
from tidegauge_broker.share.acknowledging import Transitions
from tidegauge_broker.share.acquiring import Acquisition
from tidegauge_broker.share.partition import SharePartition
from tidegauge_broker.share.states import Delivery, RecordState
from tidegauge_broker.share.window import Window
from tidegauge_proof.simulator.shares.leaders import Leader
from tidegauge_proof.simulator.shares.share_history import share_history_of

STEPS = 800


def test_histories_hold_and_do_something() -> None:
    """Kills meet share coordinators in the middle of a write and of a load, and leaders with records in flight."""
    deliveries = done = leaders = loads = 0
    died_with: set[str] = set()
    for seed in range(80):
        history = share_history_of(seed, STEPS)
        assert history.violation is None, f"seed {seed}, step {history.steps}: {history.violation}"
        deliveries += history.deliveries
        done += history.done
        leaders += history.leaders
        loads += history.loads
        died_with |= history.died_with
    assert deliveries > 3000
    assert done > 2000
    assert leaders > 200
    assert loads > 200
    assert died_with == {"load", "write in flight"}


def test_a_seed_gives_the_same_history() -> None:
    assert share_history_of(7, 400, tells=True).story == share_history_of(7, 400, tells=True).story


# One rule less each

Patch = pytest.MonkeyPatch


def a_read_fences_no_leader(patch: Patch) -> None:
    read = deciding._read

    def harmless(request: ReadShareState, given: deciding.Given) -> deciding.Decision:
        return deciding.Decision(read(request, given).result)

    patch.setitem(deciding._DECISIONS, ReadShareState, harmless)


def a_write_that_failed_counts(patch: Patch) -> None:
    written = SharePartition.state_written

    def hopeful(self: SharePartition, write_id: int, error: ErrorCode, message: str | None = None) -> Any:
        return written(self, write_id, ErrorCode.NONE if error in _NOT_WRITTEN else error, message)

    patch.setattr(SharePartition, "state_written", hopeful)


_NOT_WRITTEN = {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def accepted_records_are_not_written(patch: Patch) -> None:
    decide = deciding._DECISIONS[WriteShareState]

    def forgetful(request: WriteShareState, given: deciding.Given) -> Any:
        kept = tuple(one for one in request.batches if one.state != RecordState.ACKNOWLEDGED)
        return decide(replace(request, batches=kept), given)

    patch.setitem(deciding._DECISIONS, WriteShareState, forgetful)


def a_state_counts_before_it_is_committed(patch: Patch) -> None:
    """The coordinator responds with the append."""
    append = ShareRuntime.append_record

    def hasty(self: ShareRuntime, partition_number: int, batch: bytes, outcome: Any) -> None:
        append(self, partition_number, batch, lambda *_: None)
        outcome(ErrorCode.NONE, 0)

    patch.setattr(ShareRuntime, "append_record", hasty)


def a_load_leaves_updates_out(patch: Patch) -> None:
    replayed = state_module.replayed

    def lossy(former: Any, change: Snapshot | Update, updates: int) -> Any:
        is_lost = isinstance(change, Update) and former is not None and len(change.batches) > 1
        return replayed(former, replace_batches(change) if is_lost else change, updates)

    patch.setattr(shard, "replayed", lossy)


def replace_batches(change: Any) -> Any:
    return change._replace(batches=change.batches[1:])


def a_snapshot_has_no_records(patch: Patch) -> None:
    replayed = state_module.replayed

    def lossy(former: Any, change: Snapshot | Update, updates: int) -> Any:
        return replayed(former, change._replace(batches=()) if isinstance(change, Snapshot) else change, updates)

    patch.setattr(shard, "replayed", lossy)


def a_late_state_takes_the_place_of_a_newer_one(patch: Patch) -> None:
    combined = state_module.combined

    def oldest(batches: Any, start_offset: int) -> Any:
        turned = [one._replace(delivery_count=9 - one.delivery_count, state=4 - one.state) for one in batches]
        return tuple(
            one._replace(delivery_count=9 - one.delivery_count, state=4 - one.state)
            for one in combined(turned, start_offset)
        )

    patch.setattr(state_module, "combined", oldest)


def a_leader_begins_without_the_records(patch: Patch) -> None:
    read = SharePartition.state_read

    def empty(self: SharePartition, error: ErrorCode, message: Any, epoch: int, start: int, batches: Any) -> Any:
        del batches
        return read(self, error, message, epoch, start, ())

    patch.setattr(SharePartition, "state_read", empty)


def a_leader_begins_at_the_start_of_the_log(patch: Patch) -> None:
    read = SharePartition.state_read

    def early(self: SharePartition, error: ErrorCode, message: Any, epoch: int, start: int, batches: Any) -> Any:
        del start
        return read(self, error, message, epoch, 0, batches)

    patch.setattr(SharePartition, "state_read", early)


def what_a_member_has_is_given_to_others(patch: Patch) -> None:
    patch.setattr(Delivery, "is_acquirable", property(lambda self: not self.state.is_terminal))


def who_acknowledges_need_not_have_the_record(patch: Patch) -> None:
    patch.setattr(acknowledging, "_check_record", lambda *_: None)


def the_start_passes_available_records(patch: Patch) -> None:
    patch.setattr(RecordState, "is_terminal", property(lambda state: state is not RecordState.ACQUIRED))


def locks_never_end(patch: Patch) -> None:
    patch.setattr(SharePartition, "expire", lambda *_: [])


def locks_end_and_nothing_is_given_back(patch: Patch) -> None:
    patch.setattr(SharePartition, "_time_out", lambda *_: [])


def locks_end_at_once(patch: Patch) -> None:
    acquire = Acquisition.acquire

    def short(self: Acquisition) -> Any:
        self._deadline_ms -= 3_999
        return acquire(self)

    patch.setattr(Acquisition, "acquire", short)


def a_failed_write_is_not_taken_back(patch: Patch) -> None:
    patch.setattr(Transitions, "roll_back", lambda _: None)


def a_written_state_is_not_completed(patch: Patch) -> None:
    patch.setattr(Transitions, "complete", lambda _: False)


def the_start_does_not_move(patch: Patch) -> None:
    patch.setattr(Window, "advance_start", lambda _: False)


def the_start_is_written_too_far(patch: Patch) -> None:
    write = SharePartition._next_write

    def far(self: SharePartition, batches: Any, one: Any) -> Any:
        return replace(write(self, batches, one), start_offset=self.window.end_offset)

    patch.setattr(SharePartition, "_next_write", far)


def a_state_epoch_is_not_checked_and_begins_again(patch: Patch) -> None:
    """The state is initialized with each read, as by a group coordinator that forgets it has been."""
    read, initialize = deciding._DECISIONS[ReadShareState], deciding._DECISIONS[InitializeShareState]

    def again(request: ReadShareState, given: deciding.Given) -> Any:
        state = given.state
        if state is None or state.leader_epoch >= request.leader_epoch:
            return read(request, given)
        begun = initialize(InitializeShareState(request.key, state.state_epoch), given)
        return begun._replace(result=replace(read(request, given).result, start_offset=-1, batches=()))

    patch.setitem(deciding._DECISIONS, ReadShareState, again)


def a_persister_takes_each_write_for_done(patch: Patch) -> None:
    next_call = Leader.next_call

    def lazy(self: Leader, number: int) -> Any:
        call = next_call(self, number)
        if call is not None and isinstance(call.request, WriteShareState) and call.number % 3 == 0:
            self.responded(ShareStateResult(ErrorCode.NONE))
            return None
        return call

    patch.setattr(Leader, "next_call", lazy)


def a_coordinator_responds_twice(patch: Patch) -> None:
    respond = ShareRuntime.respond

    def eager(self: ShareRuntime, token: object, result: Any) -> None:
        respond(self, token, result)
        if result.error is ErrorCode.FENCED_LEADER_EPOCH or result.batches:
            respond(self, token, result)

    patch.setattr(ShareRuntime, "respond", eager)


MUTANTS: dict[Callable[[Patch], None], set[str]] = {
    former_leaders_may_write: {"S7", "S2", "S5"},
    a_read_fences_no_leader: {"S7", "S2", "S5"},
    a_write_that_failed_counts: {"S2"},
    accepted_records_are_not_written: {"S2"},
    a_state_counts_before_it_is_committed: {"S2", "S5", "S7", "S9", "Own"},
    a_load_leaves_updates_out: {"S8", "S2"},
    a_snapshot_has_no_records: {"S8", "S2"},
    a_late_state_takes_the_place_of_a_newer_one: {"S8", "S2"},
    a_leader_begins_without_the_records: {"S2"},
    a_leader_begins_at_the_start_of_the_log: {"S2", "S5"},
    what_a_member_has_is_given_to_others: {"S1", "Own"},
    who_acknowledges_need_not_have_the_record: {"S10", "S2", "Own"},
    deliveries_are_not_counted: {"S3", "S4"},
    nothing_is_archived_at_the_limit: {"S4"},
    the_start_passes_available_records: {"S6", "S2", "Own", "S5"},
    locks_never_end: {"S6"},
    locks_end_and_nothing_is_given_back: {"S6"},
    locks_end_at_once: {"S1"},
    a_failed_write_is_not_taken_back: {"S6", "Own"},
    a_written_state_is_not_completed: {"S6"},
    the_start_does_not_move: {"S6"},
    the_start_is_written_too_far: {"S6", "S5"},
    a_state_epoch_is_not_checked_and_begins_again: {"S2", "S5"},
    a_persister_takes_each_write_for_done: {"S2"},
    a_coordinator_responds_twice: {"S9"},
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_missing_rule_is_noticed(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    for seed in range(120):
        violation = share_history_of(seed, STEPS).violation
        if violation is not None:
            assert violation.invariant in MUTANTS[mutant], violation
            return
    pytest.fail("no history has broken anything")
