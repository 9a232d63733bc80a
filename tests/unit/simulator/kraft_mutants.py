"""Rules of Kafka 4's controller and its brokers, each taken away once: a history of ``--world kraft`` must notice.

``MUTANTS`` has each with a seed and the invariant of ``kraft_checker``, or of ``quorum_checker``, that breaks there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.simulator import quorum_mutants

from tidegauge_broker.replica import isr
from tidegauge_controller.metadata import active, delta, role_changes, snapshot
from tidegauge_controller.metadata.decisions import (
    activation,
    brokers,
    heartbeats,
    partition_change,
    partitions,
    registration,
    view,
)
from tidegauge_proof.simulator.kraft import kraft_world, metadata_node, sim_broker, sim_controller

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


def a_returning_broker_keeps_its_epoch(patch: pytest.MonkeyPatch) -> None:
    def register(view: Any, beats: Any, request: Any, *more: Any) -> Any:
        known = view.image.brokers.get(request.broker_id)
        same = request if known is None else replace(request, incarnation_id=known.incarnation_id)
        return original(view, beats, same, *more)

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


def a_fenced_broker_counts_as_one_that_serves(patch: pytest.MonkeyPatch) -> None:
    def touch(self: Any, broker_id: int, metadata_offset: int, *, fenced: bool) -> None:
        del fenced
        original(self, broker_id, metadata_offset, fenced=False)

    original = heartbeats.Heartbeats.touch
    patch.setattr(heartbeats.Heartbeats, "touch", touch)


def a_broker_that_shuts_down_is_elected(patch: pytest.MonkeyPatch) -> None:
    def is_active(self: Any, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    patch.setattr(view.ClusterView, "is_active", is_active)


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


def the_last_leader_is_remembered_beside_the_next_one(patch: pytest.MonkeyPatch) -> None:
    def record_last(old: Any, record: Any) -> None:
        if record.leader < 0:
            original(old, record)

    original = partition_change._record_last_known_leader
    patch.setattr(partition_change, "_record_last_known_leader", record_last)


def an_unclean_election_keeps_the_isr(patch: pytest.MonkeyPatch) -> None:
    def elect(*given: Any) -> None:
        original(*given)
        given[-1].isr = None

    original = partition_change._elect
    patch.setattr(partition_change, "_elect", elect)


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


def eligible_replicas_are_not_elected(patch: pytest.MonkeyPatch) -> None:
    def elected(cluster: Any, old: Any, targets: Any, rules: Any) -> Any:
        found = original(cluster, old, targets, rules)
        return (-1, False) if found[0] in targets.elr else found

    original = partition_change.elected
    patch.setattr(partition_change, "elected", elected)


def a_member_of_the_isr_stays_eligible(patch: pytest.MonkeyPatch) -> None:
    def target(old: Any, targets: Any, min_isr: int, unclean: Any) -> Any:
        return tuple(sorted({*original(old, targets, min_isr, unclean), *old.elr}))

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


def a_response_does_not_wait_for_the_commit(patch: pytest.MonkeyPatch) -> None:
    def park(self: Any, _: Any, write: Any, response: Any, last: int | None) -> None:
        if last is None:
            write.done(response)
        else:
            self._respond(last, write, response)

    patch.setattr(sim_controller.SimController, "_park", park)


def decisions_do_not_see_what_is_pending(patch: pytest.MonkeyPatch) -> None:
    def committed(self: Any) -> Any:
        return view.ClusterView(self.committed, self._settings, self.next_offset)

    patch.setattr(active.ActiveController, "view", property(committed))


# Brokers


def a_broker_overlooks_that_it_leads_no_more(patch: pytest.MonkeyPatch) -> None:
    def changes(*given: Any) -> Any:
        found = role_changes.role_changes(*given)
        found.followers.clear()
        return found

    patch.setattr(sim_broker, "role_changes", changes)


def a_broker_overlooks_that_it_leads(patch: pytest.MonkeyPatch) -> None:
    def changes(*given: Any) -> Any:
        found = role_changes.role_changes(*given)
        found.leaders.clear()
        return found

    patch.setattr(sim_broker, "role_changes", changes)


def a_leader_does_not_wait_for_who_joins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr.PendingExpand, "maximal_isr", property(lambda self: self.isr))


def a_leader_does_not_wait_for_who_leaves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr.PendingShrink, "maximal_isr", property(lambda self: tuple(self.proposal.new_isr)))


def a_broker_says_that_it_ended_in_order(patch: pytest.MonkeyPatch) -> None:
    def start(self: Any, now_ms: int) -> None:
        self.clean_epoch = max(self.clean_epoch, self.lifecycle.broker_epoch)
        original(self, now_ms)

    original = sim_broker.SimBroker.start
    patch.setattr(sim_broker.SimBroker, "start", start)


def a_node_takes_in_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    original = metadata_node.MetadataNode.take
    patch.setattr(metadata_node.MetadataNode, "take", lambda self, disk, _: original(self, disk, 2**62))


def a_broker_sends_no_heartbeats(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kraft_world.KRaftWorld, "_beat", lambda *_: None)


def a_leader_asks_for_no_change_of_the_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kraft_world.KRaftWorld, "_propose", lambda *_: None)


def a_leader_keeps_its_role_in_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    def apply(self: Any, now_ms: int) -> Any:
        if self.applied.is_empty or not any(one.leads for one in self.replicas.replicas.values()):
            return original(self, now_ms)
        self.applied = self.metadata.image
        return role_changes.role_changes(self.broker_id, self.applied, self.applied)

    original = sim_broker.SimBroker.apply
    patch.setattr(sim_broker.SimBroker, "apply", apply)


# Reassignments, snapshots, producer ids


def a_reassignment_ends_before_the_isr_has_who_joins(patch: pytest.MonkeyPatch) -> None:
    def complete(targets: Any) -> None:
        if targets.removing or targets.adding:
            targets.replicas = tuple([one for one in targets.replicas if one not in targets.removing])
            targets.isr = tuple([one for one in targets.isr if one not in targets.removing])
            targets.removing = targets.adding = ()

    patch.setattr(partition_change, "_complete_reassignment", complete)


def a_reassignment_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_change, "_complete_reassignment", lambda _: None)


def a_replica_that_leaves_stays_in_the_isr(patch: pytest.MonkeyPatch) -> None:
    def complete(targets: Any) -> None:
        isr = targets.isr
        original(targets)
        targets.isr = isr

    original = partition_change._complete_reassignment
    patch.setattr(partition_change, "_complete_reassignment", complete)


def a_broker_keeps_leading_what_is_no_longer_its_own(patch: pytest.MonkeyPatch) -> None:
    def changes(*given: Any) -> Any:
        found = role_changes.role_changes(*given)
        found.deletions.clear()
        return found

    patch.setattr(sim_broker, "role_changes", changes)


def a_snapshot_forgets_eligible_replicas(patch: pytest.MonkeyPatch) -> None:
    def record(topic_id: str, partition: int, state: Any) -> Any:
        return original(topic_id, partition, replace(state, elr=(), last_known_elr=()))

    original = snapshot.partition_record
    patch.setattr(snapshot, "partition_record", record)


def a_snapshot_forgets_who_is_fenced(patch: pytest.MonkeyPatch) -> None:
    def record(broker: Any, version: int) -> Any:
        return original(replace(broker, fenced=False), version)

    original = snapshot.broker_record
    patch.setattr(snapshot, "broker_record", record)


def a_snapshot_forgets_a_reassignment(patch: pytest.MonkeyPatch) -> None:
    def record(topic_id: str, partition: int, state: Any) -> Any:
        return original(topic_id, partition, replace(state, adding=(), removing=()))

    original = snapshot.partition_record
    patch.setattr(snapshot, "partition_record", record)


def a_snapshot_begins_producer_ids_again(patch: pytest.MonkeyPatch) -> None:
    def parts(image: Any) -> Any:
        return original(replace(image, next_producer_id=0))

    original = snapshot._small_parts
    patch.setattr(snapshot, "_small_parts", parts)


def a_block_of_producer_ids_is_given_twice(patch: pytest.MonkeyPatch) -> None:
    def allocate(cluster: Any, *more: Any) -> Any:
        found = original(cluster, *more)
        return replace(found, records=[])

    original = activation.allocate_producer_ids
    patch.setattr(activation, "allocate_producer_ids", allocate)


def a_block_is_longer_than_its_record(patch: pytest.MonkeyPatch) -> None:
    def allocate(cluster: Any, *more: Any) -> Any:
        found = original(cluster, *more)
        return replace(found, response=(found.response[0], 2 * found.response[1]))

    original = activation.allocate_producer_ids
    patch.setattr(activation, "allocate_producer_ids", allocate)


# The quorum


def a_leader_counts_what_it_has_not_flushed(patch: pytest.MonkeyPatch) -> None:
    quorum_mutants.a_leader_counts_what_it_has_not_flushed(patch)


MUTANTS: tuple[tuple[Mutant, int, str], ...] = (
    (an_unclean_restart_stays_eligible, 1, "C10"),
    (a_restarted_broker_stays_in_its_isrs, 1, "C7"),
    (a_broker_epoch_is_given_twice, 0, "C8"),
    (a_fenced_broker_stays_in_its_isrs, 0, "C7"),
    (a_returning_broker_is_not_elected, 1, "K2"),
    (a_broker_that_shuts_down_keeps_its_leaders, 3, "C7"),
    (sessions_never_end, 1, "K2"),
    (the_dead_are_elected, 2, "C6"),
    (an_eligible_replica_leads_outside_the_isr, 2, "C6"),
    (any_replica_is_elected, 1, "C9"),
    (an_unclean_election_leaves_no_trace, 1, "C10"),
    (the_last_leader_is_not_remembered, 1, "K2"),
    (members_are_eligible_beside_a_full_isr, 0, "C6"),
    (all_replicas_become_eligible, 3, "C10"),
    (a_new_leader_has_the_former_epoch, 1, "C5"),
    (a_change_keeps_the_partition_epoch, 0, "C5"),
    (memory_forgets_what_was_appended, 0, "C2"),
    (memory_is_kept_when_the_leadership_ends, 7, "K2"),
    (a_broker_overlooks_that_it_leads_no_more, 11, "B4"),
    (a_broker_says_that_it_ended_in_order, 17, "C10"),
    (a_leader_counts_what_it_has_not_flushed, 1, "Q9"),
    (a_returning_broker_keeps_its_epoch, 1, "C10"),
    (a_fenced_broker_counts_as_one_that_serves, 0, "K2"),
    (a_broker_that_shuts_down_is_elected, 33, "C7"),
    (the_last_leader_is_remembered_beside_the_next_one, 1, "C9"),
    (an_unclean_election_keeps_the_isr, 1, "C6"),
    (eligible_replicas_are_not_elected, 2, "K2"),
    (a_member_of_the_isr_stays_eligible, 2, "C6"),
    (a_response_does_not_wait_for_the_commit, 0, "C3"),
    (decisions_do_not_see_what_is_pending, 12, "C7"),
    (a_broker_overlooks_that_it_leads, 0, "B4"),
    (a_leader_does_not_wait_for_who_joins, 0, "C11"),
    (a_leader_does_not_wait_for_who_leaves, 0, "Own"),
    (a_node_takes_in_what_is_not_committed, 0, "C3"),
    (a_broker_sends_no_heartbeats, 0, "K2"),
    (a_leader_asks_for_no_change_of_the_isr, 0, "K2"),
    (a_leader_keeps_its_role_in_a_new_epoch, 0, "B4"),
    (a_reassignment_ends_before_the_isr_has_who_joins, 4, "C13"),
    (a_reassignment_never_ends, 3, "K2"),
    (a_replica_that_leaves_stays_in_the_isr, 1, "C6"),
    (a_broker_keeps_leading_what_is_no_longer_its_own, 10, "B4"),
    (a_snapshot_forgets_eligible_replicas, 2, "C1"),
    (a_snapshot_forgets_who_is_fenced, 2, "C1"),
    (a_snapshot_forgets_a_reassignment, 29, "C1"),
    (a_snapshot_begins_producer_ids_again, 15, "C1"),
    (a_block_of_producer_ids_is_given_twice, 5, "C12"),
    (a_block_is_longer_than_its_record, 5, "C12"),
)
"""Each mutant with the seed and the invariant."""
