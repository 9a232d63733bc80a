"""The share coordinator of one broker: events in, effects out.

It keeps what partitions' leaders write of the records that share groups consume, on a topic of its own, and fences
leaders and states of former epochs. Reads no clock, no log and no network.
Source: ShareCoordinatorService and ShareCoordinatorShard of Kafka 4.3; KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.groups import partition_of
from tidegauge.share_groups import (
    SHARE_STATE_TOPIC,
    InitializeShareState,
    ReadShareSummary,
    SharePartitionKey,
    ShareStateRequest,
    ShareStateResult,
    WriteShareState,
)
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.driven import Driven
from tidegauge_broker.coordinator.events import ShareEvent, ShareStateRequestArrived, TopicsChanged
from tidegauge_broker.coordinator.gates import Waiting
from tidegauge_broker.coordinator.led_partitions import LedPartitions, ShardState
from tidegauge_broker.coordinator.owner import Owner
from tidegauge_broker.coordinator.runtime import ShareRuntime
from tidegauge_broker.coordinator.settings import ShareStateSettings
from tidegauge_broker.coordinator.share_state.deciding import Decision, Given, decide
from tidegauge_broker.coordinator.share_state.shard import ShareShard
from tidegauge_broker.coordinator.share_state.state import ShareState
from tidegauge_broker.coordinator.sizes import LARGE_FROM_ITEMS
from tidegauge_broker.coordinator.text_limits import is_too_long


class KeptState(NamedTuple):
    """A state that a share coordinator serves.

    Attributes:
        state_partition: of __share_group_state.
        is_being_written: whether a change of it is being written; the state is the one before it.
    """

    key: SharePartitionKey
    state: ShareState
    state_partition: int
    is_being_written: bool


class ShareCoordinator(Driven[ShareRuntime, ShareEvent]):
    """Keeps the states of the share partitions of the partitions of __share_group_state that this broker leads.

    Attributes:
        writes: states that leaders have had written, counted as their records are.
    """

    def __init__(self, settings: ShareStateSettings, now_ms: int, wall: WallTime | None = None) -> None:
        runtime = ShareRuntime(settings, now_ms, wall)
        self._topics = Topics()
        self.writes = 0
        self._led = LedPartitions(
            runtime, SHARE_STATE_TOPIC, "share group states", partial(ShareShard, runtime), takes_effect_at_once=True
        )
        super().__init__(runtime, self._led)
        runtime.abandon, runtime.fail = self._abandon, _failed_unexpectedly
        self._events |= {ShareStateRequestArrived: self._on_request, TopicsChanged: self._on_topics_changed}
        for interval_ms, cause, action in (
            (settings.prune_interval_ms, "Prune", self._prune),
            (settings.cold_interval_ms, "ColdSnapshots", self._snapshot_cold),
        ):
            self._schedule(now_ms + interval_ms, interval_ms, cause, action)

    # Methods for the shell

    def state_of(self, key: SharePartitionKey) -> ShareState | None:
        """Return a share partition's committed state; None if not on this broker."""
        shard = self._shard_of(key)
        return None if shard is None else shard.states.get(key)

    def kept_states(self) -> Iterator[KeptState]:
        """Yield the committed states of all share partitions that this broker serves."""
        for shard in self._led.active():
            for key, state in shard.states.items():
                yield KeptState(key, state, shard.partition, shard.gates.is_closed(str(key)))

    def refusals(self) -> Mapping[SharePartitionKey, str]:
        """Return why share partitions are out of service that this broker serves."""
        return {key: cause for shard in self._led.active() for key, cause in shard.refused.items()}

    def pruned_offsets(self) -> Mapping[int, int]:
        """Return the offset up to which each served partition was pruned."""
        return {shard.partition: shard.pruned_before for shard in self._led.active() if shard.pruned_before}

    def shard_states(self) -> dict[int, ShardState]:
        """Return the state of every partition that this broker loads or serves."""
        return self._led.states()

    def _shard_of(self, key: SharePartitionKey) -> ShareShard | None:
        return self._led.shards.get(partition_of(str(key), self._runtime.settings.partitions))

    # Timers and topics

    def _prune(self) -> None:
        for shard in self._led.active():
            shard.prune()

    def _snapshot_cold(self) -> None:
        for shard in self._led.active():
            shard.snapshot_cold()

    def _on_topics_changed(self, event: TopicsChanged) -> None:
        """Take over changed topics; the states of deleted ones are deleted."""
        former = {name: self._topics.by_name[name].topic_id for name in event.changes if name in self._topics.by_name}
        self._topics.change(event.changes)
        deleted = [topic_id for topic_id in former.values() if topic_id not in self._topics.by_id]
        for shard in self._led.active() if deleted else ():
            shard.delete_topics(deleted)

    # Requests

    def _is_about_much(self, request: ShareStateRequest) -> bool:
        state = self.state_of(request.key)
        return state is not None and len(state.batches) >= LARGE_FROM_ITEMS

    def _on_request(self, event: ShareStateRequestArrived) -> None:
        request, token = event.request, event.token
        self._runtime.cause = type(request).__name__
        shard = self._shard_of(request.key)
        error = self._error_before(request, shard)
        if error is not ErrorCode.NONE or shard is None:
            self._runtime.respond(token, ShareStateResult(error))
            return
        act = partial(self._decide, shard, request, token)
        if isinstance(request, ReadShareSummary):
            self._runtime.read(token, request, act)
            return
        owner = shard.owner(request.key)
        self._runtime.open(token, owner, request)
        self._runtime.attempt(owner, lambda: shard.gates.enter(owner.key, Waiting(act, token, request)))

    def _error_before(self, request: ShareStateRequest, shard: ShareShard | None) -> ErrorCode:
        """Return why a request is not for this coordinator now."""
        if is_too_long(request.key.group_id):
            return ErrorCode.INVALID_REQUEST
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if shard is None or shard.state is ShardState.FAILED:
            return ErrorCode.NOT_COORDINATOR
        if shard.state is ShardState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        is_refused = request.key in shard.refused and not isinstance(request, InitializeShareState)
        return ErrorCode.UNKNOWN_SERVER_ERROR if is_refused else ErrorCode.NONE

    def _decide(self, shard: ShareShard, request: ShareStateRequest, token: object) -> None:
        settings = self._runtime.settings
        given = Given(shard.states.get(request.key), self._topics, self._runtime.wall_ms, settings.updates_per_snapshot)
        decision: Decision = decide(request, given)

        def written(error: ErrorCode) -> None:
            result = decision.result if error is ErrorCode.NONE else ShareStateResult(error)
            self._runtime.respond(token, result)

        if decision.has_change:
            self.writes += isinstance(request, WriteShareState)
            shard.write(request.key, decision.change, written)
        else:
            written(ErrorCode.NONE)

    def _abandon(self, owner: Owner, cause: str) -> None:
        shard = self._led.shards.get(owner.partition)
        if shard is not None:
            shard.take_out_of_service(owner.key, cause)


def _failed_unexpectedly(_request: Any) -> ShareStateResult:
    """Return the response after an unexpected failure."""
    return ShareStateResult(ErrorCode.UNKNOWN_SERVER_ERROR)
