"""Rules of transactions, groups and logs, each taken away once: histories of consume, transform, produce must notice.

``FOUND`` has those that are missed, with the first seed and the invariant; ``FORCED`` those that are missed where
faults strike at named steps. For the others no history was found: the older histories (``test_transaction_histories``)
and unit tests hold their rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.transaction_marker import Outcome
from tidegauge_broker.coordinator import loading as loading_module
from tidegauge_broker.coordinator import offsets as offsets_module
from tidegauge_broker.coordinator import shard as shard_module
from tidegauge_broker.coordinator import transactional_commits as commits_module
from tidegauge_broker.coordinator.transaction import adding as adding_module
from tidegauge_broker.coordinator.transaction import markers as markers_module
from tidegauge_broker.coordinator.transaction.ending import Ending
from tidegauge_broker.coordinator.transaction.initializing import Initializing
from tidegauge_broker.coordinator.transaction.resuming import Resuming
from tidegauge_broker.coordinator.transaction.states import DECIDED
from tidegauge_broker.coordinator.transaction.storing import Owned
from tidegauge_broker.coordinator.transaction.transaction import Transaction
from tidegauge_broker.log import cleaned_transactions as cleaned_module
from tidegauge_broker.log import compaction as compaction_module
from tidegauge_broker.log.producer_snapshot import decode_snapshot
from tidegauge_broker.replica.open_transactions import OpenTransactions
from tidegauge_broker.replica.producer_state import ProducerCheck, ProducerState
from tidegauge_broker.replica.verification import Verifications
from tidegauge_broker.server.coordinators.leadership_proof import LeadershipProof
from tidegauge_proof.simulator import memory_log as memory_log_module
from tidegauge_proof.simulator.exactly_once import cluster as cluster_module
from tidegauge_proof.simulator.exactly_once.forced_history import Forced
from tidegauge_proof.simulator.exactly_once.network import TIMELY

E = ErrorCode
Mutant = Callable[[pytest.MonkeyPatch], None]


def _nothing(*_: object, **__: object) -> None:
    """Stands for a call that is left out."""


# The partition


def readers_pass_a_marker_that_is_not_replicated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenTransactions, "hold", _nothing)


def readers_pass_open_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenTransactions, "first_unstable_offset", lambda *_: None)


def a_marker_ends_every_transaction(patch: pytest.MonkeyPatch) -> None:
    complete = OpenTransactions.complete

    def all_of_them(self: OpenTransactions, producer_id: int, marker_offset: int):
        completed = complete(self, producer_id, marker_offset)
        self._open.clear()
        return completed

    patch.setattr(OpenTransactions, "complete", all_of_them)


def an_old_epoch_may_write(patch: pytest.MonkeyPatch) -> None:
    check = ProducerState.check

    def lax(self: ProducerState, header, **rules) -> ProducerCheck:
        found = check(self, header, **rules)
        return ProducerCheck() if found.error is E.INVALID_PRODUCER_EPOCH else found

    patch.setattr(ProducerState, "check", lax)


def an_old_coordinator_may_write_markers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerState, "check_marker", lambda *_: ProducerCheck())


def a_repeated_batch_is_appended_again(patch: pytest.MonkeyPatch) -> None:
    check = ProducerState.check

    def forgetful(self: ProducerState, header, **rules) -> ProducerCheck:
        found = check(self, header, **rules)
        return ProducerCheck() if found.duplicate is not None else found

    patch.setattr(ProducerState, "check", forgetful)


def a_new_epoch_keeps_its_sequences(patch: pytest.MonkeyPatch) -> None:
    update_marker = ProducerState.update_marker

    def keeps(self: ProducerState, header, marker):
        entry = self._entries.get(marker.producer_id)
        batches = list(entry.batches) if entry is not None else []
        completed = update_marker(self, header, marker)
        known = self._entries[marker.producer_id].batches
        known.extend([] if known else batches)
        return completed

    patch.setattr(ProducerState, "update_marker", keeps)


def any_guard_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Verifications, "holds", lambda *_: True)
    patch.setattr(adding_module.Adding, "_verified", lambda _, request: dict.fromkeys(request.partitions, E.NONE))


def a_marker_does_not_end_a_verification(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Verifications, "end", _nothing)
    patch.setattr(Verifications, "lowest_sequence", lambda *_: None)


def a_snapshot_forgets_open_transactions(patch: pytest.MonkeyPatch) -> None:
    def poor(data: bytes):
        entries = decode_snapshot(data)
        for entry in entries:
            entry.transaction_start = None
        return entries

    patch.setattr(memory_log_module, "decode_snapshot", poor)


# The groups


def aborted_offsets_count(patch: pytest.MonkeyPatch) -> None:
    complete = offsets_module.Offsets.complete_transaction
    patch.setattr(
        offsets_module.Offsets,
        "complete_transaction",
        lambda self, who, _, offset: complete(self, who, Outcome.COMMIT, offset),
    )


def aborted_offsets_count_after_a_load(patch: pytest.MonkeyPatch) -> None:
    class Anything:
        def __ne__(self, _: object) -> bool:
            return False

    patch.setattr(loading_module, "_COMMIT_MARKER", Anything())


def the_marker_decides_the_order_of_commits(patch: pytest.MonkeyPatch) -> None:
    def latest(self: offsets_module.Offsets, topic_partition, logged) -> None:
        self.materialised[topic_partition] = logged

    patch.setattr(offsets_module.Offsets, "_materialise", latest)


def a_load_forgets_whose_offsets_are_pending(patch: pytest.MonkeyPatch) -> None:
    activate = shard_module.Shard.activate

    def poor(self: shard_module.Shard) -> None:
        activate(self)
        self.open_groups.clear()

    patch.setattr(shard_module.Shard, "activate", poor)


def members_of_old_generations_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commits_module.TransactionalCommits, "_refusal", lambda *_: E.NONE)


def unstable_offsets_are_given_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offsets_module.Offsets, "is_unstable", lambda *_: False)


def a_coordinator_that_was_replaced_gives_out_stable_offsets(patch: pytest.MonkeyPatch) -> None:
    async def is_assumed(*_: object) -> bool:
        return True

    patch.setattr(LeadershipProof, "holds", is_assumed)


def a_marker_ends_offsets_behind_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offsets_module.AppendingOffset, "outcome", lambda self, _: next(iter(self.markers.values()), None))


def offsets_of_a_completed_transaction_stay_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shard_module.Shard, "complete_transaction", _nothing)


# The coordinator of transactions


def markers_are_sent_before_the_decision_is_committed(patch: pytest.MonkeyPatch) -> None:
    def end(self: Ending, owned, change, on_end) -> None:
        self._store.store(owned, change, on_end)
        owned.transaction.complete(change)
        self._markers.complete(owned)
        owned.transaction.complete = _nothing

    patch.setattr(Ending, "_end", end)


def decided_transactions_are_not_resumed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Resuming, "resume", _nothing)


def loaded_decisions_are_taken_for_committed(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Resuming, shard) -> None:
        for transaction in shard.transactions.values():
            if transaction.state in DECIDED:
                self._markers.complete(Owned(shard, transaction))

    patch.setattr(Resuming, "resume", hasty)


def failed_markers_count_as_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(markers_module, "_WRITTEN", markers_module._WRITTEN | markers_module._RETRIABLE)


def partitions_without_leader_count_as_deleted(patch: pytest.MonkeyPatch) -> None:
    leaders_known = cluster_module.Cluster.leaders_known

    def careless(self: cluster_module.Cluster, broker, effect):
        return {at: leader for at, leader in leaders_known(self, broker, effect).items() if leader >= 0}

    patch.setattr(cluster_module.Cluster, "leaders_known", careless)


def a_new_producer_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    prepare = Transaction.prepare_next_epoch

    def same(self: Transaction, timeout_ms, expected_epoch, now_ms):
        change = prepare(self, timeout_ms, expected_epoch, now_ms)
        return change if isinstance(change, ErrorCode) else change._replace(producer_epoch=max(self.producer_epoch, 0))

    patch.setattr(Transaction, "prepare_next_epoch", same)


def a_new_producer_inherits_the_transaction(patch: pytest.MonkeyPatch) -> None:
    def grant(self: Initializing, owned, token) -> None:
        change = owned.transaction
        result = adding_result(change.producer_id, change.producer_epoch)
        self._runtime.respond(token, result)

    def adding_result(producer_id: int, producer_epoch: int):
        from tidegauge.transactions import InitProducerIdResult  # noqa: PLC0415 - of this mutant alone

        return InitProducerIdResult(E.NONE, producer_id, producer_epoch)

    patch.setattr(Initializing, "_fence", grant)


def transactions_do_not_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ending, "abort_timed_out", _nothing)


def a_fence_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    prepare = Transaction.prepare_epoch_fence
    patch.setattr(
        Transaction,
        "prepare_epoch_fence",
        lambda self: prepare(self)._replace(producer_epoch=self.producer_epoch),
    )


# The cleaner


def aborted_records_survive_compaction(patch: pytest.MonkeyPatch) -> None:
    is_aborted = cleaned_module.CleanedTransactions.is_aborted

    def blind(self: cleaned_module.CleanedTransactions, header) -> bool:
        is_aborted(self, header)
        return False

    patch.setattr(cleaned_module.CleanedTransactions, "is_aborted", blind)


def markers_go_before_their_data(patch: pytest.MonkeyPatch) -> None:
    end = cleaned_module.CleanedTransactions.end
    patch.setattr(
        cleaned_module.CleanedTransactions, "end", lambda self, header, marker: (True, end(self, header, marker)[1])
    )


def aborted_records_hide_older_ones(patch: pytest.MonkeyPatch) -> None:
    add_batch = compaction_module.OffsetMap.add_batch

    def greedy(self, batch, header, first_dirty_offset, *, is_aborted: bool = False) -> bool:
        del is_aborted
        return add_batch(self, batch, header, first_dirty_offset)

    patch.setattr(compaction_module.OffsetMap, "add_batch", greedy)


MUTANTS: tuple[Mutant, ...] = (
    readers_pass_a_marker_that_is_not_replicated,
    readers_pass_open_transactions,
    a_marker_ends_every_transaction,
    an_old_epoch_may_write,
    an_old_coordinator_may_write_markers,
    a_repeated_batch_is_appended_again,
    a_new_epoch_keeps_its_sequences,
    any_guard_is_taken,
    a_marker_does_not_end_a_verification,
    a_snapshot_forgets_open_transactions,
    aborted_offsets_count,
    aborted_offsets_count_after_a_load,
    the_marker_decides_the_order_of_commits,
    a_load_forgets_whose_offsets_are_pending,
    members_of_old_generations_commit,
    unstable_offsets_are_given_out,
    a_coordinator_that_was_replaced_gives_out_stable_offsets,
    a_marker_ends_offsets_behind_it,
    offsets_of_a_completed_transaction_stay_pending,
    markers_are_sent_before_the_decision_is_committed,
    decided_transactions_are_not_resumed,
    loaded_decisions_are_taken_for_committed,
    failed_markers_count_as_written,
    partitions_without_leader_count_as_deleted,
    a_new_producer_keeps_the_epoch,
    a_new_producer_inherits_the_transaction,
    transactions_do_not_time_out,
    a_fence_keeps_the_epoch,
    aborted_records_survive_compaction,
    markers_go_before_their_data,
    aborted_records_hide_older_ones,
)
FOUND: Mapping[str, tuple[str, int, str]] = {
    "readers_pass_a_marker_that_is_not_replicated": (TIMELY, 0, "T6"),
    "readers_pass_open_transactions": (TIMELY, 0, "T6"),
    "a_marker_ends_every_transaction": (TIMELY, 0, "T6"),
    "a_repeated_batch_is_appended_again": (TIMELY, 3, "T11"),
    "a_new_epoch_keeps_its_sequences": (TIMELY, 0, "T8"),
    "a_snapshot_forgets_open_transactions": (TIMELY, 12, "T6"),
    "aborted_offsets_count": (TIMELY, 2, "T9"),
    "aborted_offsets_count_after_a_load": (TIMELY, 1, "T9"),
    "a_coordinator_that_was_replaced_gives_out_stable_offsets": (TIMELY, 29, "T14"),
    "offsets_of_a_completed_transaction_stay_pending": (TIMELY, 2, "T9"),
    "markers_are_sent_before_the_decision_is_committed": (TIMELY, 0, "T4"),
    "transactions_do_not_time_out": (TIMELY, 0, "T10"),
    "aborted_records_survive_compaction": (TIMELY, 9, "T9"),
    "markers_go_before_their_data": (TIMELY, 1, "T9"),
    "aborted_records_hide_older_ones": (TIMELY, 9, "T9"),
}
"""By mutant: the mode, the seed of the first history of 3000 steps that breaks, and the invariant that it breaks."""
QUICK = {
    "readers_pass_a_marker_that_is_not_replicated",
    "readers_pass_open_transactions",
    "markers_are_sent_before_the_decision_is_committed",
}
"""Found within a quarter of a second each."""
FORCED: Mapping[str, tuple[int, tuple[Forced, ...], str]] = {
    "decided_transactions_are_not_resumed": (0, (Forced("PrepareCommit replicated", "kill", "transactions"),), "Load"),
    "loaded_decisions_are_taken_for_committed": (
        0,
        (
            Forced("PrepareCommit replicated", "kill", "transactions"),
            Forced("load of transactions begun", "kill", "output"),
        ),
        "T4",
    ),
    "a_new_producer_inherits_the_transaction": (
        44,
        (Forced("AddOffsetsToTxn acknowledged", "restart", "copier"),),
        "T13",
    ),
    "an_old_coordinator_may_write_markers": (
        0,
        (
            Forced("markers sent", "hold", "WriteTxnMarkers"),
            Forced("", "kill", "transactions"),
            Forced("CompleteCommit replicated", "", ""),
            Forced("data acknowledged", "release", ""),
        ),
        "T11",
    ),
    "a_load_forgets_whose_offsets_are_pending": (0, (Forced("markers sent", "bounce", "offsets"),), "T9"),
    "a_marker_ends_offsets_behind_it": (
        11,
        (
            Forced("markers sent", "hold", "markers of offsets"),
            Forced("CompleteCommit replicated", "", ""),
            Forced("AddOffsetsToTxn acknowledged", "release", ""),
        ),
        "T11",
    ),
    "the_marker_decides_the_order_of_commits": (5, (Forced("TxnOffsetCommit pending", "commit", ""),), "T9"),
    "members_of_old_generations_commit": (
        2,
        (Forced("AddOffsetsToTxn acknowledged", "pause-past-session", "copier"),),
        "T11",
    ),
    "unstable_offsets_are_given_out": (
        2,
        (Forced("TxnOffsetCommit acknowledged", "pause-past-session", "copier"),),
        "T11",
    ),
    "a_coordinator_that_was_replaced_gives_out_stable_offsets": (
        0,
        (Forced("data acknowledged", "isolate", "offsets"),),
        "T14",
    ),
}
"""By mutant: the seed and the faults of a history that breaks, and the invariant; the same history holds without it."""
