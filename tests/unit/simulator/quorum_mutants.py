"""Rules of the Raft node, each taken away once: a history, a schedule or the search of a small quorum must notice.

``BY_HISTORY`` has those that are missed soon, with a seed, the number of steps and the invariant that breaks there;
``BY_SCHEDULE`` others, each with the schedule of ``tests/unit/raft``, made by hand, that fails without the rule.
``MISSED`` of ``test_quorum_schedules`` has the searches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.raft import test_quorum_log, test_quorum_rules, test_voter_changes, test_votes

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import elections, following, leading, membership
from tidegauge_controller.raft import node as node_module
from tidegauge_controller.raft.connections import Connections
from tidegauge_controller.raft.core import Core
from tidegauge_controller.raft.effects import HighWatermarkMoved, LeadershipChanged
from tidegauge_controller.raft.log_view import LogView, Match
from tidegauge_controller.raft.states import Candidate, Leader, Prospective, Resigned, Unattached
from tidegauge_controller.raft.values import OffsetAndEpoch, VoterSet
from tidegauge_controller.raft.voter_history import VoterHistory

Mutant = Callable[[pytest.MonkeyPatch], None]


# Votes


def votes_twice(patch: pytest.MonkeyPatch) -> None:
    def handle(core: Core, event: Any, request: Any) -> None:
        state = core.state
        voted_for_another = isinstance(state, Unattached | Prospective) and state.voted not in {None, request.candidate}
        if voted_for_another and request.epoch == state.epoch and not request.pre_vote:
            core.state.voted = None  # type: ignore[misc]
        original(core, event, request)

    original = elections.handle_vote
    patch.setattr(elections, "handle_vote", handle)


def grants_before_the_vote_is_written(patch: pytest.MonkeyPatch) -> None:
    def handle(core: Core, event: Any, request: Any) -> None:
        if request.epoch == core.state.epoch and not request.pre_vote and elections._may_grant(core, request):
            elections._respond(core, event.token, granted=True)
            return
        original(core, event, request)

    original = elections.handle_vote
    patch.setattr(elections, "handle_vote", handle)


def does_not_compare_logs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections, "_may_grant", _granting(lambda *_: (0, 0)))


def compares_offsets_before_epochs(patch: pytest.MonkeyPatch) -> None:
    def up_to_date(core: Core, request: Any) -> tuple[int, int]:
        longer = (request.end_offset, request.last_epoch) >= (core.log.end_offset, core.log.last_epoch)
        return (0, 0) if longer else (1, 1)

    patch.setattr(elections, "_may_grant", _granting(up_to_date))


def _granting(own_end: Callable[[Core, Any], tuple[int, int]]) -> Callable[[Core, Any], bool]:
    """Return the rule of votes with another comparison of logs.

    A candidate's end counts as (0, 0).
    """

    def may_grant(core: Core, request: Any) -> bool:
        state = core.state
        is_up_to_date = own_end(core, request) <= (0, 0)
        if request.pre_vote:
            return is_up_to_date and not isinstance(state, Leader) and not getattr(state, "has_fetched", False)
        if not isinstance(state, Unattached | Prospective):
            return False
        if state.voted is not None:
            return state.voted == request.candidate
        return state.leader_id is None and is_up_to_date

    return may_grant


def a_pre_vote_counts_as_a_vote(patch: pytest.MonkeyPatch) -> None:
    def become(core: Core, reason: str) -> None:
        state = core.state
        granted = set(state.granted) if isinstance(state, Prospective) else {core.me.id}
        core.persist(Candidate(state.epoch + 1, core.me, granted=granted), reason)

    patch.setattr(elections, "become_candidate", become)


def half_of_the_voters_is_a_majority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterSet, "majority", property(lambda self: max(1, len(self.voters) // 2)))


def takes_late_responses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connections, "reset", lambda *_: None)


def a_former_leader_restarts_as_a_voter(patch: pytest.MonkeyPatch) -> None:
    def first(core: Core, election: Any) -> Any:
        state = original(core, election)
        return Unattached(state.epoch) if isinstance(state, Resigned) else state

    original = node_module.first_state
    patch.setattr(node_module, "first_state", first)


def a_former_leader_goes_on_leading(patch: pytest.MonkeyPatch) -> None:
    def first(core: Core, election: Any) -> Any:
        state = original(core, election)
        return Candidate(state.epoch, core.me, granted=set(core.voters.ids)) if isinstance(state, Resigned) else state

    original = node_module.first_state
    patch.setattr(node_module, "first_state", first)


def forgets_its_vote_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    def first(core: Core, election: Any) -> Any:
        state = original(core, election)
        return Unattached(state.epoch) if isinstance(state, Unattached | Candidate) else state

    original = node_module.first_state
    patch.setattr(node_module, "first_state", first)


def forgets_its_epoch_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    def first(core: Core, election: Any) -> Any:
        del election
        return Unattached(core.log.last_epoch)

    patch.setattr(node_module, "first_state", first)


# The high watermark


def commits_records_of_former_epochs(patch: pytest.MonkeyPatch) -> None:
    def move(core: Core, leader: Leader) -> None:
        ends = sorted((leading._end_offset(progress) for progress in leader.voters.values()), reverse=True)
        bound = min(ends[len(ends) // 2], core.log.end_offset) if ends else -1
        if bound > 0 and core.move_high_watermark(bound):
            leader.is_announced = True
            core.emit(LeadershipChanged(core.me.id, leader.epoch))
            leading._complete_parked(core, leader, with_records_only=False)

    patch.setattr(leading, "maybe_move_high_watermark", move)


def a_minority_commits(patch: pytest.MonkeyPatch) -> None:
    def move(core: Core, leader: Leader) -> None:
        ends = sorted((leading._end_offset(progress) for progress in leader.voters.values()), reverse=True)
        bound = min(ends[max(0, len(ends) // 2 - 1)], core.log.end_offset) if ends else -1
        if bound > leader.epoch_start_offset and core.move_high_watermark(bound):
            leader.is_announced = True
            core.emit(LeadershipChanged(core.me.id, leader.epoch))
            leading._complete_parked(core, leader, with_records_only=False)

    patch.setattr(leading, "maybe_move_high_watermark", move)


def a_leader_counts_what_it_has_not_flushed(patch: pytest.MonkeyPatch) -> None:
    def note(core: Core, leader: Leader) -> None:
        if core.is_voter and core.me.id in leader.voters:
            leader.voters[core.me.id].end_offset = core.log.end_offset
            leading.maybe_move_high_watermark(core, leader)

    def appended(core: Core, leader: Leader) -> None:
        original(core, leader)
        note(core, leader)

    original = leading._appended
    patch.setattr(leading, "note_own_log", note)
    patch.setattr(leading, "_appended", appended)


def a_follower_fetches_before_its_flush(patch: pytest.MonkeyPatch) -> None:
    def send(core: Core, state: Any) -> None:
        flushed, core.log.flushed_offset = core.log.flushed_offset, core.log.end_offset
        original(core, state)
        core.log.flushed_offset = flushed

    original = following._send_to_leader
    patch.setattr(following, "_send_to_leader", send)


def a_flush_from_before_a_truncation_counts(patch: pytest.MonkeyPatch) -> None:
    def flushed(self: LogView, number: int, end_offset: int) -> None:
        del number
        self.flushed_offset = max(self.flushed_offset, min(end_offset, self.end_offset))

    patch.setattr(LogView, "flushed", flushed)


def a_leader_reports_the_high_watermark_that_it_had_as_a_follower(patch: pytest.MonkeyPatch) -> None:
    def own(core: Core, leader: Leader) -> int:
        del leader
        return -1 if core.high_watermark is None else core.high_watermark

    patch.setattr(leading, "own_high_watermark", own)


def a_follower_takes_the_leaders_high_watermark_beyond_its_end(patch: pytest.MonkeyPatch) -> None:
    def follow(core: Core, _: int | None, leaders: int) -> None:
        core.move_high_watermark(leaders)

    patch.setattr(following, "_follow_high_watermark", follow)


def the_high_watermark_may_fall(patch: pytest.MonkeyPatch) -> None:
    def follow(core: Core, _: int | None, leaders: int) -> None:
        bound = min(leaders, core.log.end_offset)
        if bound != core.high_watermark:
            core.high_watermark = bound
            core.emit(HighWatermarkMoved(bound))

    patch.setattr(following, "_follow_high_watermark", follow)
    patch.setattr(leading, "own_high_watermark", lambda core, *_: core.high_watermark or 0)


# Truncation


def never_truncates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "_truncate", lambda *_: False)


def truncates_to_the_leaders_end_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogView, "truncation_offset", lambda self, diverging: min(diverging.offset, self.end_offset))


def every_end_matches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogView, "match", lambda _, offset, epoch: (Match.VALID, OffsetAndEpoch(offset, epoch)))


# Snapshots


def a_log_behind_a_snapshot_has_no_last_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogView, "last_epoch", property(lambda self: self.epochs[-1].epoch if self.epochs else 0))


def the_log_does_not_begin_behind_an_installed_snapshot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogView, "restart_at", lambda self, snapshot: self.add_snapshot(snapshot))


# Voters


def two_changes_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "_refuse_change", _without(membership._refuse_change, ErrorCode.REQUEST_TIMED_OUT))


def changes_before_its_epoch_is_committed(patch: pytest.MonkeyPatch) -> None:
    def refuse(core: Core, leader: Leader, *, allow_static: bool) -> ErrorCode:
        before, leader.is_announced = leader.is_announced, True
        mark = core.high_watermark
        if mark is None:
            core.high_watermark = core.log.end_offset
        try:
            return original(core, leader, allow_static=allow_static)
        finally:
            leader.is_announced, core.high_watermark = before, mark

    original = membership._refuse_change
    patch.setattr(membership, "_refuse_change", refuse)


def _without(rule: Callable[..., ErrorCode], error: ErrorCode) -> Callable[..., ErrorCode]:
    def refuse(*args: Any, **kwargs: Any) -> ErrorCode:
        found = rule(*args, **kwargs)
        return ErrorCode.NONE if found is error else found

    return refuse


def replaces_two_voters_at_once(patch: pytest.MonkeyPatch) -> None:
    def without(self: VoterSet, voter_id: int) -> VoterSet:
        others = [voter for voter in self.voters.values() if voter.key.id != voter_id]
        return VoterSet.of(others[1:] if len(others) > 2 else others)

    patch.setattr(VoterSet, "without", without)


def a_voter_with_another_disk_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterSet, "has", lambda self, key: key.id in self.voters)
    patch.setattr(elections, "voter_key_error", lambda *_: ErrorCode.NONE)


def the_voter_set_is_not_truncated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterHistory, "truncate", lambda *_: None)


def a_snapshot_keeps_the_former_voters(patch: pytest.MonkeyPatch) -> None:
    def handle(core: Core, event: Any) -> None:
        voters, versions = list(core.history.voters), list(core.history.versions)
        original(core, event)
        if voters:
            core.history.voters, core.history.versions = voters, versions

    original = following.handle_installed
    patch.setattr(following, "handle_installed", handle)


def a_removed_leader_counts_itself(patch: pytest.MonkeyPatch) -> None:
    def move(core: Core, leader: Leader) -> None:
        ends = [leading._end_offset(progress) for progress in leader.voters.values()]
        if not core.is_voter:
            ends.append(core.log.flushed_offset)
        ends.sort(reverse=True)
        bound = min(ends[core.voters.majority - 1], core.log.end_offset) if ends else -1
        if bound > leader.epoch_start_offset and core.move_high_watermark(bound):
            leader.is_announced = True
            core.emit(LeadershipChanged(core.me.id, leader.epoch))
            leading._complete_parked(core, leader, with_records_only=False)

    patch.setattr(leading, "maybe_move_high_watermark", move)


def a_change_is_acknowledged_before_its_commit(patch: pytest.MonkeyPatch) -> None:
    def append_set(core: Core, leader: Leader, change: Any, voters: VoterSet) -> None:
        change.ack_when_committed = False
        original(core, leader, change, voters)

    original = membership._append_set
    patch.setattr(membership, "_append_set", append_set)


# Liveness


def never_makes_its_leadership_known(patch: pytest.MonkeyPatch) -> None:
    def send(core: Core) -> None:
        if isinstance(core.state, Leader):
            core.state.begin_deadlines_ms.clear()
        original(core)

    original = leading.send
    patch.setattr(leading, "send", send)


def a_resigned_leader_stays_in_its_epoch(patch: pytest.MonkeyPatch) -> None:
    def run(core: Core) -> None:
        if not isinstance(core.state, Resigned):
            original(core)

    original = leading.run_timers
    patch.setattr(leading, "run_timers", run)


BY_HISTORY: tuple[tuple[Mutant, int, int, str], ...] = (
    (commits_records_of_former_epochs, 1, 60, "Q7"),
    (a_leader_counts_what_it_has_not_flushed, 1, 60, "Q9"),
    (a_follower_takes_the_leaders_high_watermark_beyond_its_end, 1, 60, "Q13"),
    (a_resigned_leader_stays_in_its_epoch, 1, 60, "Q14"),
)
"""Each mutant with the seed, the steps and the invariant."""

BY_SCHEDULE: tuple[tuple[Mutant, Callable[[], None]], ...] = (
    (votes_twice, test_votes.test_one_vote_an_epoch_and_the_same_candidate_is_granted_again),
    (grants_before_the_vote_is_written, test_votes.test_a_vote_is_on_the_disk_before_it_is_granted),
    (does_not_compare_logs, test_votes.test_a_vote_of_a_higher_epoch_deposes_even_if_it_is_refused),
    (compares_offsets_before_epochs, test_quorum_rules.test_epochs_are_compared_before_offsets),
    (a_pre_vote_counts_as_a_vote, test_votes.test_equal_fetch_timeouts_and_the_split_vote),
    (
        half_of_the_voters_is_a_majority,
        test_votes.test_a_prospective_keeps_its_epoch_and_its_leader_until_a_majority_agrees,
    ),
    (takes_late_responses, test_votes.test_a_voter_with_a_higher_epoch_is_heard_through_begin_quorum_epoch),
    (
        a_former_leader_restarts_as_a_voter,
        test_votes.test_a_former_leader_restarts_as_resigned_and_votes_in_the_next_epoch_only,
    ),
    (
        a_former_leader_goes_on_leading,
        test_votes.test_a_former_leader_restarts_as_resigned_and_votes_in_the_next_epoch_only,
    ),
    (forgets_its_vote_at_a_restart, test_votes.test_a_restart_remembers_the_vote),
    (forgets_its_epoch_at_a_restart, test_votes.test_a_restart_remembers_the_vote),
    (a_minority_commits, test_quorum_log.test_a_leader_begins_with_its_leader_change_and_knows_no_high_watermark),
    (a_follower_fetches_before_its_flush, test_quorum_log.test_a_follower_fetches_on_only_after_its_flush),
    (
        a_flush_from_before_a_truncation_counts,
        test_quorum_log.test_a_flush_from_before_a_truncation_says_nothing_about_what_came_after,
    ),
    (
        a_leader_reports_the_high_watermark_that_it_had_as_a_follower,
        test_quorum_rules.test_a_new_leader_does_not_report_the_high_watermark_that_it_had_as_a_follower,
    ),
    (the_high_watermark_may_fall, test_quorum_log.test_a_high_watermark_that_falls_ends_the_process),
    (never_truncates, test_quorum_log.test_a_diverging_response_truncates_to_the_common_end),
    (truncates_to_the_leaders_end_alone, test_quorum_log.test_a_diverging_response_truncates_to_the_common_end),
    (every_end_matches, test_quorum_log.test_a_fetch_from_before_the_log_gets_the_newest_snapshot),
    (two_changes_at_once, test_voter_changes.test_only_one_change_at_a_time),
    (
        changes_before_its_epoch_is_committed,
        test_voter_changes.test_no_change_before_a_record_of_the_epoch_is_committed,
    ),
    (replaces_two_voters_at_once, test_quorum_rules.test_a_removal_takes_one_voter_away),
    (
        a_voter_with_another_disk_counts,
        test_voter_changes.test_a_voter_that_lost_its_disk_does_not_count_as_the_voter_that_it_was,
    ),
    (the_voter_set_is_not_truncated, test_voter_changes.test_a_voter_set_that_is_truncated_is_no_longer_in_force),
    (a_snapshot_keeps_the_former_voters, test_quorum_rules.test_the_voters_of_an_installed_snapshot_are_in_force),
    (a_removed_leader_counts_itself, test_quorum_rules.test_a_leader_that_removed_itself_is_not_part_of_the_majority),
    (a_change_is_acknowledged_before_its_commit, test_voter_changes.test_an_observer_that_has_caught_up_is_added),
    (never_makes_its_leadership_known, test_votes.test_a_voter_with_a_higher_epoch_is_heard_through_begin_quorum_epoch),
)
"""Each mutant with the test that fails."""
