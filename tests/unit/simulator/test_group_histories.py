"""Consumer groups under faults: real coordinators on real cores, and a checker that notices when a rule is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator import committing as committing_module
from tidegauge_broker.coordinator.events import Resigned
from tidegauge_broker.coordinator.group import membership as membership_module
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.membership import Membership
from tidegauge_broker.coordinator.group.phases import Phases
from tidegauge_broker.coordinator.group.replacing import Replacing
from tidegauge_broker.coordinator.group.states import STABLE
from tidegauge_broker.coordinator.led_partitions import LedPartitions
from tidegauge_broker.coordinator.loading import Loader
from tidegauge_broker.coordinator.offsets import Offsets
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_proof.simulator.groups.group_history import group_history_of
from tidegauge_proof.simulator.groups.group_world import GroupWorld
from tidegauge_proof.simulator.memory_log import MemoryLog

STEPS = 1000


def test_histories_hold_and_do_something():
    """Kills meet coordinators in the middle of everything that a coordinator can be in the middle of."""
    commits = generations = loads = 0
    died_with: set[str] = set()
    for seed in (*range(25), 58):  # 58: a coordinator of an empty group dies
        history = group_history_of(seed, STEPS)
        assert history.violation is None, f"seed {seed}, step {history.steps}: {history.violation}"
        commits += history.commits
        generations += history.generations
        loads += history.loads
        died_with |= history.died_with
    assert commits > 60
    assert generations > 50
    assert loads > 60
    assert {"append in flight", "load", "parked JoinGroup", "parked SyncGroup", "pending member"} <= died_with
    assert {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"} <= died_with


@pytest.mark.parametrize("seed", [10_521_101, 10_579_810, 10_592_033])
def test_time_in_which_a_timer_is_due_and_does_not_run_counts_for_no_group(seed: int):
    """The dice decide when timers run: they came to the end of a rebalance seconds late, or after the faults."""
    assert group_history_of(seed, STEPS).violation is None


def test_a_seed_gives_the_same_history():
    assert group_history_of(7, 400, tells=True).story == group_history_of(7, 400, tells=True).story


# One rule less each


def _nothing(*_: object) -> None:
    """Stands for a call that is left out."""


def responds_before_the_record_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def store(self: Membership, group: Group, request) -> None:
        given = dict(request.assignments)
        self._phases.assign(group, {member_id: given.get(member_id, b"") for member_id in group.members})
        self._phases.change_state(group, STABLE)

    monkeypatch.setattr(Membership, "_store_assignment", store)


def acknowledges_commits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    append = GroupRuntime.append_record

    def hasty(self: GroupRuntime, partition: int, batch: bytes, outcome) -> None:
        append(self, partition, batch, _nothing)
        outcome(ErrorCode.NONE, 0)

    monkeypatch.setattr(GroupRuntime, "append_record", hasty)


def loads_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = GroupWorld.go_on_loading
    read = MemoryLog.read

    def short(self: GroupWorld, process) -> None:
        role = process.broker.partition
        bound = 0 if role is None else role.high_watermark
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(MemoryLog, "read", lambda log, start, end, size: read(log, start, min(end, bound), size))
            go_on(self, process)

    monkeypatch.setattr(GroupWorld, "go_on_loading", short)


def takes_commits_of_any_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    check = committing_module._commit_error

    def lax(group: Group, request) -> ErrorCode:
        error = check(group, request)
        return ErrorCode.NONE if error is ErrorCode.ILLEGAL_GENERATION else error

    monkeypatch.setattr(committing_module, "_commit_error", lax)


def takes_commits_while_completing(monkeypatch: pytest.MonkeyPatch) -> None:
    check = committing_module._commit_error

    def lax(group: Group, request) -> ErrorCode:
        error = check(group, request)
        return ErrorCode.NONE if error is ErrorCode.REBALANCE_IN_PROGRESS else error

    monkeypatch.setattr(committing_module, "_commit_error", lax)


def does_not_fence_old_members(monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Group.rename

    def keeps(self: Group, member, new_id: str) -> None:
        old_id = member.member_id
        rename(self, member, new_id)
        self.members[old_id] = member

    monkeypatch.setattr(Group, "rename", keeps)


def responds_to_a_replacement_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def persist(self: Replacing, replacement) -> None:
        self._phases.respond_to_join(replacement.member, self._response(replacement))

    monkeypatch.setattr(Replacing, "_persist", persist)


def unloads_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Phases, "unload", Phases.stop_timers)


def stays_when_the_leadership_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    hear = LedPartitions.change_leadership

    def deaf(self: LedPartitions, event) -> None:
        if not isinstance(event, Resigned):
            hear(self, event)

    monkeypatch.setattr(LedPartitions, "change_leadership", deaf)


def has_no_join_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Phases._start_join_phase

    def endless(self: Phases, group: Group) -> None:
        start(self, group)
        self._runtime.timers.cancel(group.phase)

    monkeypatch.setattr(Phases, "_start_join_phase", endless)
    monkeypatch.setattr(Phases, "_expire", _nothing)


def has_no_sync_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Phases, "_expire_sync_phase", _nothing)
    monkeypatch.setattr(Phases, "_expire", _nothing)


def keeps_the_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Group.begin_next_generation

    def again(self: Group, now_ms: int) -> None:
        self.generation = max(0, self.generation - 1)
        begin(self, now_ms)

    monkeypatch.setattr(Group, "begin_next_generation", again)


def loads_the_first_record_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Loader._replay_records

    def first(self: Loader, batch) -> None:
        kept = dict(self._offsets)
        replay(self, batch)
        self._offsets.update(kept)

    monkeypatch.setattr(Loader, "_replay_records", first)


def forgets_assignments_in_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    restored = Loader._restored

    def empty(self: Loader, group_id: str, value) -> Group:
        group = restored(self, group_id, value)
        for member in group.members.values():
            member.assignment = b""
        return group

    monkeypatch.setattr(Loader, "_restored", empty)


def leaves_failed_commits_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Offsets, "fail", _nothing)
    monkeypatch.setattr(Offsets, "complete", _nothing)


def accepts_late_outcomes_of_other_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Membership._store_assignment

    def careless(self: Membership, group: Group, request) -> None:
        given = dict(request.assignments)
        append = self._runtime.append_record

        def late(partition: int, batch: bytes, outcome) -> None:
            def apply(error: ErrorCode, offset: int) -> None:
                if error is ErrorCode.NONE and group.state is membership_module.COMPLETING:
                    self._phases.assign(group, {member_id: given.get(member_id, b"") for member_id in group.members})
                    self._phases.change_state(group, STABLE)
                else:
                    outcome(error, offset)

            append(partition, batch, apply)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(self._runtime, "append_record", late)
            store(self, group, request)

    monkeypatch.setattr(Membership, "_store_assignment", careless)


def parks_what_it_should_respond_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Phases, "respond_to_join", _nothing)


MUTANTS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    responds_before_the_record_is_committed,
    acknowledges_commits_at_once,
    loads_to_the_high_watermark,
    takes_commits_of_any_generation,
    takes_commits_while_completing,
    does_not_fence_old_members,
    responds_to_a_replacement_before_it_is_written,
    unloads_without_a_word,
    stays_when_the_leadership_is_lost,
    has_no_join_timer,
    has_no_sync_timer,
    keeps_the_generation,
    loads_the_first_record_of_a_key,
    forgets_assignments_in_a_load,
    leaves_failed_commits_pending,
    accepts_late_outcomes_of_other_generations,
    parks_what_it_should_respond_to,
)


SLOW = {
    has_no_sync_timer,
    unloads_without_a_word,
    takes_commits_of_any_generation,
    accepts_late_outcomes_of_other_generations,
    loads_to_the_high_watermark,
}
"""Take longer than a test of every day should."""


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, marks=[pytest.mark.long] if one in SLOW else [], id=one.__name__) for one in MUTANTS],
)
def test_without_a_rule_something_breaks(mutant, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    found = (group_history_of(seed, STEPS).violation for seed in range(200))
    assert any(violation is not None for violation in found)
