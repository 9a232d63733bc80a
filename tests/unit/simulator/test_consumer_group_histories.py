"""A consumer group (KIP-848) under faults: real coordinators on real cores, a checker that notices a missing rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.kafka.coordinator.consumer_group_target_assignment_member import ConsumerGroupTargetAssignmentMemberKey
from tidegauge_broker.coordinator import coordinator as coordinator_module
from tidegauge_broker.coordinator.consumer_group import heartbeats
from tidegauge_broker.coordinator.consumer_group import image as image_module
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.image import GroupImage
from tidegauge_broker.coordinator.consumer_group.member import MemberState
from tidegauge_broker.coordinator.consumer_group.reconciling import Reconciliation
from tidegauge_broker.coordinator.consumer_group.writing import GroupWriter
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_proof.simulator.consumer_groups.consumer_history import consumer_history_of

STEPS = 600


def test_histories_hold_and_do_something():
    """Kills meet coordinators in the middle of everything that a coordinator of a consumer group can be in."""
    moves = commits = loads = 0
    died_with: set[str] = set()
    for seed in range(60):
        history = consumer_history_of(seed, STEPS)
        assert history.violation is None, f"seed {seed}, step {history.steps}: {history.violation}"
        moves += history.moves
        commits += history.commits
        loads += history.loads
        died_with |= history.died_with
    assert moves > 150
    assert commits > 60
    assert loads > 100
    assert {"append in flight", "load", "Stable", "Reconciling", "static member away"} <= died_with
    assert {"STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS"} <= died_with


@pytest.mark.parametrize("seed", [1224, 1549])
def test_no_response_rests_on_what_the_next_leader_may_lack(seed: int):
    """The simulation found it: a heartbeat that wrote nothing got a response by records not known to be committed."""
    assert consumer_history_of(seed, 700).violation is None


@pytest.mark.parametrize("seed", [42, 143, 175])
def test_a_member_whose_join_was_not_committed_in_time_does_not_keep_the_group_waiting(seed: int):
    """The simulation found it: without a session it would have kept its partitions for ever."""
    assert consumer_history_of(seed, STEPS).violation is None


def test_a_seed_gives_the_same_history():
    assert consumer_history_of(7, 400, tells=True).story == consumer_history_of(7, 400, tells=True).story


# One rule less each


def _nothing(*_: object) -> None:
    """Replaces the rule that is left out."""


def assigns_before_the_former_owner_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Reconciliation.apply_to
    monkeypatch.setattr(Reconciliation, "apply_to", lambda self, member: apply(replace(self, owners={}), member))


def takes_silence_for_a_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconciliation, "_owns_some_of", lambda *_: False)


def raises_the_epoch_before_the_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Reconciliation.apply_to

    def hasty(self: Reconciliation, member: Any) -> Any:
        after = apply(self, member)
        is_revoking = after.state is MemberState.UNREVOKED_PARTITIONS
        return replace(after, epoch=self.epoch + 1) if is_revoking and not member.pending_revocation else after

    monkeypatch.setattr(Reconciliation, "apply_to", hasty)


def gives_a_member_an_older_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Reconciliation.apply_to

    def older(self: Reconciliation, member: Any) -> Any:
        after = apply(self, member)
        is_new = after is not member and after.state is MemberState.STABLE and member.epoch > 2
        return replace(after, epoch=member.epoch - 1) if is_new else after

    monkeypatch.setattr(Reconciliation, "apply_to", older)


def is_stable_without_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Reconciliation.apply_to

    def content(self: Reconciliation, member: Any) -> Any:
        after = apply(self, member)
        return replace(after, state=MemberState.STABLE) if after.state is MemberState.UNRELEASED_PARTITIONS else after

    monkeypatch.setattr(Reconciliation, "apply_to", content)


def leaves_a_partition_out_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = GroupImage.replay_target

    def lossy(self: GroupImage, key: Any, value: Any) -> None:
        replay(self, key, value)
        if value is not None and len(self.members) > 2:
            self.targets[key.member_id] = tuple((topic, ones[:-1]) for topic, ones in self.targets[key.member_id])

    monkeypatch.setitem(image_module._REPLAYS, ConsumerGroupTargetAssignmentMemberKey, lossy)


def never_ends_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupWriter, "_expire", _nothing)


def accepts_commits_of_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "commit_error", lambda *_, **__: ErrorCode.NONE)


def acknowledges_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    append = GroupRuntime.append_record

    def hasty(self: GroupRuntime, partition: int, batch: bytes, outcome: Any, guard: object | None = None) -> None:
        append(self, partition, batch, _nothing, guard)
        outcome(ErrorCode.NONE, 0)

    monkeypatch.setattr(GroupRuntime, "append_record", hasty)


def forgets_what_is_yet_to_be_given_up_in_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    resume = GroupWriter.resume

    def forgetful(self: GroupWriter, shard: Any, group: Any) -> None:
        for member_id, member in group.image.members.items():
            group.image.members[member_id] = replace(member, pending_revocation={})
        resume(self, shard, group)

    monkeypatch.setattr(GroupWriter, "resume", forgetful)


def responds_by_what_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "is_uncertain", property(lambda _: False, _nothing), raising=False)


def responds_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    respond = GroupRuntime.respond

    def eager(self: GroupRuntime, token: object, result: Any) -> None:
        respond(self, token, result)
        if getattr(result, "member_epoch", 0) == -1:
            respond(self, token, result)

    monkeypatch.setattr(GroupRuntime, "respond", eager)


def starts_no_session_after_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupWriter, "resume", _nothing)


def raises_no_group_epoch_for_a_new_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "_bump", lambda *_, **__: False)


def ends_sessions_that_are_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupWriter, "_session_deadline_ms", lambda self, *_: self._runtime.now_ms + 1)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], set[str]] = {
    assigns_before_the_former_owner_has_given_up: {"K1", "K7"},
    takes_silence_for_a_revocation: {"K7"},
    raises_the_epoch_before_the_revocation: {"K2"},
    gives_a_member_an_older_epoch: {"K3"},
    responds_by_what_may_be_lost: {"K3", "K7"},
    is_stable_without_its_target: {"K4"},
    leaves_a_partition_out_of_the_target: {"K5"},
    never_ends_a_session: {"K6"},
    accepts_commits_of_any_epoch: {"K8"},
    acknowledges_before_the_commit: {"K8", "K3"},
    forgets_what_is_yet_to_be_given_up_in_a_load: {"K9"},
    responds_twice: {"K10"},
    starts_no_session_after_a_load: {"K6"},
    raises_no_group_epoch_for_a_new_member: {"K5"},
    ends_sessions_that_are_in_time: {"K6"},
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_checker_notices_a_missing_rule(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch):
    mutant(monkeypatch)
    for seed in (1224, 1549, *range(300)):
        violation = consumer_history_of(seed, 700).violation
        if violation is not None:
            assert violation.invariant in MUTANTS[mutant], f"seed {seed}: {violation}"
            return
    pytest.fail("300 histories notice nothing")
