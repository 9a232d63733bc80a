"""One led partition of __share_group_state: the states of the share partitions that live there.

Contract: the loaded states depend on the records alone, and equal those in force before. A share partition has one
write in flight at a time; its state changes when the record is committed, and other requests about it wait until then.
A record that cannot be read costs its share partition, which gets UNKNOWN_SERVER_ERROR until it is initialized again.
Source: ShareCoordinatorShard, CoordinatorRuntime of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import Buffer
from tidegauge.share_groups import SHARE_STATE_TOPIC, SharePartitionKey, ShareStateResult
from tidegauge_broker.coordinator.effects import PruneLog
from tidegauge_broker.coordinator.gates import Gates, Waiting
from tidegauge_broker.coordinator.led_partitions import LedPartition, ShardState, ShardTransition
from tidegauge_broker.coordinator.outcomes import IN_THE_LOG, client_error
from tidegauge_broker.coordinator.owner import Owner
from tidegauge_broker.coordinator.record_codec import batch_of, read_batches, version_of
from tidegauge_broker.coordinator.runtime import ShareRuntime
from tidegauge_broker.coordinator.share_state.deciding import snapshot_of_cold
from tidegauge_broker.coordinator.share_state.pruning import SnapshotOffsets
from tidegauge_broker.coordinator.share_state.records import (
    KINDS,
    Change,
    Update,
    read_change,
    read_key,
    to_bytes,
)
from tidegauge_broker.coordinator.share_state.state import ShareState, incoherence, replayed

SHARD_TRANSITIONS = (
    ShardTransition(None, ShardState.LOADING, "elected"),
    ShardTransition(ShardState.LOADING, ShardState.ACTIVE, "the log was read to its LEO"),
    ShardTransition(ShardState.LOADING, ShardState.FAILED, "the log could not be read to its LEO"),
    ShardTransition(ShardState.LOADING, ShardState.UNLOADED, "resigned"),
    ShardTransition(ShardState.ACTIVE, ShardState.UNLOADED, "resigned"),
    ShardTransition(ShardState.FAILED, ShardState.UNLOADED, "resigned, or elected again"),
)
Written = Callable[[ErrorCode], None]
"""Called with NONE when a record is committed and its state is in force; else with a client's error."""


class ShareShard(LedPartition):
    """A partition that this broker leads.

    Attributes:
        states: of the share partitions.
        gates: where requests about a share partition wait while a change of it is being written; by its name.
        refused: why share partitions are out of service, by key.
        pruned_before: records before this offset were asked to be deleted; 0: none were.
    """

    def __init__(self, runtime: ShareRuntime, partition: int, leader_epoch: int, since_ms: int) -> None:
        self._runtime = runtime
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.gates = Gates()
        self.refused: dict[SharePartitionKey, str] = {}
        self._snapshots = SnapshotOffsets()
        self.pruned_before = 0
        self._unreadable_keys: list[str] = []
        super().__init__(runtime, partition, leader_epoch, since_ms, SHARD_TRANSITIONS)

    # Loading

    def replay(self, batches: Buffer) -> None:
        """Take the next part of the log; see LedPartition."""
        for batch in read_batches(batches):
            if batch.header.is_control or batch.first_offset is None:
                continue
            for offset, (key, value) in enumerate(batch.records, batch.first_offset):
                self._replay_record(key or b"", value, offset)

    def _replay_record(self, key_bytes: bytes, value: bytes | None, offset: int) -> None:
        try:
            version = version_of(key_bytes)
            if version not in KINDS:
                self.unknown_versions.add(version)
                return
            key, kafkas_key = read_key(key_bytes)
        except TidegaugeError as problem:
            self._unreadable_keys.append(problem.message)
            return
        try:
            change = None if value is None else read_change(kafkas_key, value)
        except TidegaugeError as problem:
            self.refused[key] = f"a record of it cannot be read: {problem.message}"
            return
        if not isinstance(change, Update):
            self.refused.pop(key, None)
        self._apply(key, change, offset)

    def _apply(self, key: SharePartitionKey, change: Change, offset: int) -> None:
        if change is None:
            self.states.pop(key, None)
        else:
            limit = self._runtime.settings.updates_per_snapshot
            self.states[key] = replayed(self.states.get(key), change, limit)
        if not isinstance(change, Update) and offset >= 0:
            self._snapshots.note(key, offset, is_deleted=change is None)

    def activate(self) -> None:
        """End the load, and serve the loaded states."""
        runtime = self._runtime
        name = f"{SHARE_STATE_TOPIC}-{self.partition}"
        took_ms = runtime.now_ms - self.since_ms
        if self._unreadable_keys:
            runtime.log(
                f"Ignoring {len(self._unreadable_keys)} records of {name} whose keys cannot be read, so that they "
                f"belong to no share partition; the first: {self._unreadable_keys[0]}",
                "warning",
            )
            self._unreadable_keys = []
        for key, state in self.states.items():
            if problem := incoherence(state):
                self.refused.setdefault(key, f"its records make no sense: {problem}")
        for key, cause in self.refused.items():
            self.states.pop(key, None)
            self._log_refused(key, cause)
        runtime.log(f"Finished loading {len(self.states)} share partitions from {name} in {took_ms} milliseconds")
        self.change_state(ShardState.ACTIVE, share_partitions=len(self.states), load_ms=took_ms)

    def forget(self) -> None:
        """Drop the loaded states."""
        self.states, self.refused, self._unreadable_keys = {}, {}, []
        self._snapshots = SnapshotOffsets()

    def unload(self) -> None:
        """Respond to what waits with NOT_COORDINATOR, and forget the states."""
        for waiting in self.gates.drop_all():
            if waiting.request is not None:
                self._runtime.respond(waiting.token, ShareStateResult(ErrorCode.NOT_COORDINATOR))
        self.forget()
        self.change_state(ShardState.UNLOADED)

    # Service

    def owner(self, key: SharePartitionKey) -> Owner:
        """Return a share partition's name as owner of outcomes and requests."""
        return Owner(self.partition, str(key))

    def take_out_of_service(self, name: str, cause: str) -> None:
        """Forget a share partition about which a decision has failed."""
        self.gates.drop(name)
        for key in [one for one in self.states if str(one) == name]:
            del self.states[key]
            self.refused[key] = cause
            self._log_refused(key, cause)

    def _log_refused(self, key: SharePartitionKey, cause: str) -> None:
        self._runtime.log(
            f"Share partition '{key}' ({SHARE_STATE_TOPIC}-{self.partition}) is out of service: {cause}. Its requests "
            "get UNKNOWN_SERVER_ERROR; others are served. Initialize it again by setting the group's offset of the "
            "partition; another leader, or a restart of this one, loads it again.",
            "error",
        )

    def write(self, key: SharePartitionKey, change: Change, written: Written) -> None:
        """Write a record, and put its state in force when it is committed."""
        runtime, settings = self._runtime, self._runtime.settings

        def outcome(error: ErrorCode, base_offset: int) -> None:
            if self.state is not ShardState.ACTIVE:
                written(ErrorCode.NOT_COORDINATOR)
                return
            if error in IN_THE_LOG:
                if change is not None and not isinstance(change, Update):
                    self.refused.pop(key, None)
                self._apply(key, change, base_offset)
            else:
                runtime.log(f"A change of the share partition {key} was not written: {error.name}", "warning")
            self.gates.open(str(key), lambda: written(client_error(error)))

        self.gates.close(str(key))
        batch = batch_of([to_bytes(key, change)], runtime.wall_ms, 0, settings.compression)
        runtime.append_record(self.partition, batch, outcome)

    # Housekeeping

    def delete_topics(self, topic_ids: Iterable[bytes]) -> None:
        """Delete the states of the partitions of topics that exist no longer."""
        deleted = set(topic_ids)
        for key in [one for one in self.states if one.topic_id in deleted]:
            self._when_idle(key, partial(self._delete, key))

    def _delete(self, key: SharePartitionKey) -> None:
        if key in self.states:
            self.write(key, None, lambda _: None)

    def snapshot_cold(self) -> None:
        """Write the states that were not written as a whole for long, while some share partition is active.

        Without it the log before their last snapshots could not be pruned. A state that was written so itself, and
        not changed since, counts as cold for good.
        """
        runtime = self._runtime
        if all(state.created_ms != state.written_ms for state in self.states.values()):
            return
        for key, state in list(self.states.items()):
            if runtime.wall_ms - state.written_ms >= runtime.settings.cold_interval_ms:
                self._when_idle(key, partial(self._snapshot, key))

    def _snapshot(self, key: SharePartitionKey) -> None:
        state = self.states.get(key)
        if state is not None:
            self.write(key, snapshot_of_cold(state, self._runtime.wall_ms), lambda _: None)

    def _when_idle(self, key: SharePartitionKey, act: Callable[[], None]) -> None:
        self._runtime.attempt(self.owner(key), lambda: self.gates.enter(str(key), Waiting(act)))

    def prune(self) -> None:
        """Have the records deleted from the log that say nothing any more."""
        before = self._snapshots.redundant_before
        if before is not None and before > self.pruned_before:
            self.pruned_before = before
            self._runtime.effects.append(PruneLog(self.partition, before))
