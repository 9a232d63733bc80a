"""Rules of Kafka 4's controller and its brokers, each taken away once: a history of ``--world kraft`` must notice.

``MUTANTS`` has each with a seed and the invariant of ``kraft_checker``, or of ``quorum_checker``, that breaks there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.simulator import quorum_mutants

from tidegauge_controller.metadata import active, delta, role_changes
from tidegauge_controller.metadata.decisions import (
    brokers,
    heartbeats,
    partition_change,
    partitions,
    registration,
)
from tidegauge_proof.simulator.kraft import sim_broker, sim_controller

Mutant = Callable[[pytest.MonkeyPatch], None]


# Registration


def an_unclean_restart_stays_eligible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        registration, "_clean_up", lambda cluster, request, _: brokers.out_of_isrs(cluster, request.broker_id)
    )


def a_restarted_broker_stays_in_its_isrs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(registration, "_clean_up", lambda *_: [])


def a_broker_epoch_is_given_twice(patch: pytest.MonkeyPatch) -> None:
    def register(view: Any, *more: Any) -> Any:
        known = view.image.brokers.get(more[1].broker_id)
        return original(view if known is None else replace(view, next_offset=known.epoch), *more)

    original = registration.register_broker
    patch.setattr(registration, "register_broker", register)


# Fencing and return


def a_fenced_broker_stays_in_its_isrs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(brokers, "out_of_isrs", lambda *_: [])


def a_returning_broker_is_not_elected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(brokers, "unfence", lambda _, one: [brokers.registration_change(one, 0, fenced=brokers.UNFENCE)])


def a_broker_that_shuts_down_keeps_its_leaders(patch: pytest.MonkeyPatch) -> None:
    def begin(view: Any, broker: Any) -> Any:
        return [brokers.registration_change(broker, 1, in_controlled_shutdown=1)]

    patch.setattr(brokers, "_begin_controlled_shutdown", begin)


def sessions_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heartbeats.Heartbeats, "pop_expired", lambda *_: None)
    patch.setattr(heartbeats.Heartbeats, "has_valid_session", lambda self, *at: at[:2] in self._contacts)


# Elections


def the_dead_are_elected(patch: pytest.MonkeyPatch) -> None:
    def elected(cluster: Any, old: Any, targets: Any, rules: Any) -> Any:
        return original(cluster, old, targets, replace(rules, is_alive=lambda _: True))

    original = partition_change.elected
    patch.setattr(partition_change, "elected", elected)


def an_eligible_replica_leads_outside_the_isr(patch: pytest.MonkeyPatch) -> None:
    def elect(view: Any, old: Any, targets: Any, rules: Any, record: Any) -> None:
        isr, elr = targets.isr, targets.elr
        original(view, old, targets, rules, record)
        targets.isr, targets.elr = isr, elr

    original = partition_change._elect
    patch.setattr(partition_change, "_elect", elect)


def any_replica_is_elected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_change, "election_for", lambda *_: partition_change.Election.UNCLEAN)
    patch.setattr(partitions, "election_for", lambda *_: partition_change.Election.UNCLEAN)


def an_unclean_election_leaves_no_trace(patch: pytest.MonkeyPatch) -> None:
    def build(*given: Any) -> Any:
        record = original(*given)
        if record is not None and record.message.leader_recovery_state == delta.RECOVERING:
            record.message.leader_recovery_state = -1
        return record

    original = partition_change.build_change
    patch.setattr(partition_change, "build_change", build)


def the_last_leader_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_change, "_record_last_known_leader", lambda *_: None)


# Eligible leader replicas


def members_are_eligible_beside_a_full_isr(patch: pytest.MonkeyPatch) -> None:
    def target(old: Any, targets: Any, min_isr: int, unclean: Any) -> Any:
        return original(old, targets, len(targets.replicas) + 1, unclean)

    original = partition_change._target_elr
    patch.setattr(partition_change, "_target_elr", target)


def all_replicas_become_eligible(patch: pytest.MonkeyPatch) -> None:
    def target(old: Any, targets: Any, min_isr: int, unclean: Any) -> Any:
        found = original(old, targets, min_isr, unclean)
        return tuple(sorted({*targets.replicas} - {*targets.isr})) if found else found

    original = partition_change._target_elr
    patch.setattr(partition_change, "_target_elr", target)


# Epochs and memory


def a_new_leader_has_the_former_epoch(patch: pytest.MonkeyPatch) -> None:
    def merged(old: Any, message: Any) -> Any:
        return replace(original(old, message), leader_epoch=old.leader_epoch)

    original = delta.merged
    patch.setattr(delta, "merged", merged)
    patch.setattr(partitions, "merged", merged)


def a_change_keeps_the_partition_epoch(patch: pytest.MonkeyPatch) -> None:
    def merged(old: Any, message: Any) -> Any:
        return replace(original(old, message), partition_epoch=old.partition_epoch)

    original = delta.merged
    patch.setattr(delta, "merged", merged)
    patch.setattr(partitions, "merged", merged)


def memory_forgets_what_was_appended(patch: pytest.MonkeyPatch) -> None:
    def accept(self: Any, *given: Any) -> int:
        image = self.image
        last = original(self, *given)
        self.image = image
        return last

    original = active.ActiveController.accept
    patch.setattr(active.ActiveController, "accept", accept)


def memory_is_kept_when_the_leadership_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sim_controller.SimController, "renounce", lambda self: setattr(self, "_claimed", None))


# Brokers


def a_broker_overlooks_that_it_leads_no_more(patch: pytest.MonkeyPatch) -> None:
    def changes(*given: Any) -> Any:
        found = role_changes.role_changes(*given)
        found.followers.clear()
        return found

    patch.setattr(sim_broker, "role_changes", changes)


def a_broker_says_that_it_ended_in_order(patch: pytest.MonkeyPatch) -> None:
    def start(self: Any, now_ms: int) -> None:
        self.clean_epoch = max(self.clean_epoch, self.lifecycle.broker_epoch)
        original(self, now_ms)

    original = sim_broker.SimBroker.start
    patch.setattr(sim_broker.SimBroker, "start", start)


# The quorum


def a_leader_counts_what_it_has_not_flushed(patch: pytest.MonkeyPatch) -> None:
    quorum_mutants.a_leader_counts_what_it_has_not_flushed(patch)


MUTANTS: tuple[tuple[Mutant, int, str], ...] = (
    (an_unclean_restart_stays_eligible, 0, "C10"),
    (a_restarted_broker_stays_in_its_isrs, 0, "C6"),
    (a_broker_epoch_is_given_twice, 0, "C8"),
    (a_fenced_broker_stays_in_its_isrs, 0, "C7"),
    (a_returning_broker_is_not_elected, 0, "K2"),
    (a_broker_that_shuts_down_keeps_its_leaders, 0, "C7"),
    (sessions_never_end, 0, "K2"),
    (the_dead_are_elected, 0, "C6"),
    (an_eligible_replica_leads_outside_the_isr, 2, "C6"),
    (any_replica_is_elected, 0, "C9"),
    (an_unclean_election_leaves_no_trace, 1, "C10"),
    (the_last_leader_is_not_remembered, 0, "K2"),
    (members_are_eligible_beside_a_full_isr, 0, "C6"),
    (all_replicas_become_eligible, 0, "C10"),
    (a_new_leader_has_the_former_epoch, 0, "C5"),
    (a_change_keeps_the_partition_epoch, 0, "C5"),
    (memory_forgets_what_was_appended, 0, "C2"),
    (memory_is_kept_when_the_leadership_ends, 4, "K2"),
    (a_broker_overlooks_that_it_leads_no_more, 0, "B4"),
    (a_broker_says_that_it_ended_in_order, 0, "C10"),
    (a_leader_counts_what_it_has_not_flushed, 1, "Q9"),
)
"""Each mutant with the seed and the invariant."""
