"""Fetches of consumers and followers: served at once, or parked until there is enough (ReplicaManager.fetchMessages).

A fetch names all partitions of its session, thousands perhaps, of which few have changed. Of a follower's session only
those in question are looked at (``standing_fetch``); of all other fetches each partition is.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.delayed_fetch import DelayedFetch, is_due
from tidegauge_broker.replica.effects import Effect, RespondToFetch
from tidegauge_broker.replica.hosted import HostedPartitions, contain, message_for
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.messages import CONSUMER, CoreSettings, FetchPartition, FetchRequest, FetchResult
from tidegauge_broker.replica.parked import ParkedOperations
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import Logs, Metadata
from tidegauge_broker.replica.preferred_replica import RackOf, preferred_replica
from tidegauge_broker.replica.quota import ReplicationQuota, is_throttled
from tidegauge_broker.replica.reading import Reader

_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up, and it is asked for every partition


class Fetches:
    """Serve fetches.

    Args:
        broker_id: this broker.
        settings: of the core.
        hosted: the replicas.
        parked: where a fetch waits for enough records.
        logs: how much there is to read.
        metadata: what the broker knows of the cluster.

    Attributes:
        rack_of: by which a leader chooses a follower for a consumer (KIP-392); None: ``replica.selector.class`` is off.
        quota: how fast throttled replicas are copied from here.
        time_ms: of the event that is handled.
    """

    __slots__ = (
        "_broker_id",
        "_hosted",
        "_logs",
        "_metadata",
        "_parked",
        "_settings",
        "quota",
        "rack_of",
        "time_ms",
    )

    def __init__(
        self,
        broker_id: int,
        settings: CoreSettings,
        hosted: HostedPartitions,
        parked: ParkedOperations,
        logs: Logs,
        metadata: Metadata,
        quota: ReplicationQuota,
        rack_of: RackOf | None,
    ) -> None:
        self.rack_of = rack_of
        self.quota = quota
        self.time_ms = 0
        self._broker_id = broker_id
        self._settings = settings
        self._hosted = hosted
        self._parked = parked
        self._logs = logs
        self._metadata = metadata

    def fetch(self, request: FetchRequest, token: object, now_ms: int) -> list[Effect]:
        """Read; RespondToFetch(token) comes now or later."""
        self.time_ms = now_ms
        out: list[Effect] = []
        results: list[FetchResult] = []
        touched: list[Partition] = []
        alive, rack_of, session = self._metadata.live_brokers(), self.rack_of, request.standing
        for wanted in request.partitions:
            leader, error = self._hosted.leader_of(wanted.topic_partition, wanted.current_leader_epoch)
            if leader is None:
                results.append(self._read_as_follower(wanted, request, error))
                continue
            partition = leader.partition
            try:
                if request.replica_id != CONSUMER:
                    leader.asked_by(request)
                result = None if rack_of is None else self._elsewhere(leader, wanted, request, rack_of)
                if result is None:
                    result = leader.fetch(
                        wanted, request.replica_id, now_ms, alive, out, reads_committed=request.reads_committed
                    )
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                contain(partition, problem, out)
                results.append(self._refused_fetch(wanted, ErrorCode.UNKNOWN_SERVER_ERROR))
                continue
            if session is not None and result.read is None and result.error is _NONE and result.diverging is None:
                leader.covered(request.replica_id, session)
            throttles = partition.rules.leader_throttled_replicas
            results.append(self._throttled(leader, result, request.replica_id) if throttles else result)
            if partition.moved_high_watermark or partition.moved_log_end or partition.moved_low_watermark:
                touched.append(partition)
        if session is not None:
            session.time_ms = now_ms
        tried: set[int] = set()
        for partition in touched:
            self._parked.settle(partition, out, fetches_tried=tried)
        max_bytes = request.max_bytes
        if request.replica_id == CONSUMER:
            max_bytes = min(max_bytes, self._settings.fetch_max_bytes)
        is_empty = not (request.partitions or session)
        if is_empty or request.max_wait_ms <= 0 or is_due(results, request.min_bytes, self._available):
            out.append(RespondToFetch(token, () if request.only_waits else results, max_bytes))
        else:
            deadline_ms = now_ms + request.max_wait_ms
            operation = DelayedFetch(token, deadline_ms, request, max_bytes, self._read_again, self._available)
            self._parked.fetches.watch(operation)
            if session is not None:
                session.park_in(self._parked.fetches)
        return out

    def _read_again(self, wanted: FetchPartition, request: FetchRequest) -> FetchResult:
        leader, error = self._hosted.leader_of(wanted.topic_partition, wanted.current_leader_epoch)
        if leader is None:
            return self._read_as_follower(wanted, request, error)
        replica_id = request.replica_id
        read = leader.read(wanted, replica_id, reads_committed=request.reads_committed)
        return self._throttled(leader, read, replica_id)

    def _read_as_follower(self, wanted: FetchPartition, request: FetchRequest, error: ErrorCode) -> FetchResult:
        """Return a non-leader's result.

        It has records for a consumer that knows of KIP-392, else an error.
        """
        partition = self._hosted.by_name.get(wanted.topic_partition)
        if (
            error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            and request.replica_id == CONSUMER
            and request.client_rack is not None
            and partition is not None
        ):
            return Reader(partition).read(wanted, CONSUMER, reads_committed=request.reads_committed)
        return self._refused_fetch(wanted, error)

    def _elsewhere(
        self, leader: Leader, wanted: FetchPartition, request: FetchRequest, rack_of: RackOf
    ) -> FetchResult | None:
        """Return the result that redirects a consumer to a follower, or None."""
        if request.client_rack is None or request.replica_id != CONSUMER:
            return None
        preferred = preferred_replica(leader, wanted.fetch_offset, request.client_rack, rack_of)
        if preferred is None:
            return None
        partition = leader.partition
        return FetchResult(
            partition.topic_partition,
            high_watermark=partition.high_watermark,
            log_start_offset=partition.log_start_offset,
            preferred_read_replica=preferred,
            last_stable_offset=partition.last_stable_offset,
            aborted_transactions=() if request.reads_committed else None,
        )

    def _throttled(self, leader: Leader, result: FetchResult, replica_id: int) -> FetchResult:
        """Return a follower's result, without records while its quota is exceeded.

        This quota applies to followers that are not in sync.
        """
        partition = leader.partition
        throttled = partition.rules.leader_throttled_replicas
        if (
            throttled
            and result.read is not None
            and replica_id != CONSUMER
            and replica_id not in leader.isr.isr
            and is_throttled(throttled, partition.topic_partition.partition, self._broker_id)
            and self.quota.is_exceeded(self.time_ms)
        ):
            result.read = None
        return result

    def note_sent(self, topic_partition: TopicPartition, size_bytes: int, now_ms: int) -> None:
        """Count the bytes sent to a follower, where the replica is throttled."""
        partition = self._hosted.by_name.get(topic_partition)
        if partition is not None and is_throttled(
            partition.rules.leader_throttled_replicas, topic_partition.partition, self._broker_id
        ):
            self.quota.record(size_bytes, now_ms)

    def _refused_fetch(self, wanted: FetchPartition, error: ErrorCode) -> FetchResult:
        return FetchResult(
            wanted.topic_partition,
            error,
            message_for(error, wanted.topic_partition),
            leader_hint=self._hosted.leader_hint(wanted.topic_partition),
        )

    def _available(self, result: FetchResult) -> int | None:
        """Bytes that a result would give: of the log, and of what this step has appended and not yet written.

        None where the log can't be read.
        """
        read = result.read
        if read is None:
            return 0
        unwritten = self._hosted.by_name[result.topic_partition].unwritten
        written_end = min(read.upper_bound, unwritten[0].base_offset) if unwritten else read.upper_bound
        written_bytes = self._logs.bytes_between(result.topic_partition, read.from_offset, written_end)
        if written_bytes is None or not unwritten:
            return written_bytes
        return written_bytes + sum(
            header.size_bytes
            for header in unwritten
            if header.base_offset < read.upper_bound and header.next_offset > read.from_offset
        )
