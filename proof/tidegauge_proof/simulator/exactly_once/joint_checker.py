"""Invariants of consume, transform, produce, checked after every event; T1, T2, T4 as in ``transaction_checker``.

| name | statement |
|---|---|
| T3 | a transaction is complete only when every partition of its decision has committed its marker |
| T5 | no record of a transaction is in any replica of a partition that was in no transaction of its producer |
| T6 | a replica's last stable offset is what its log and its high watermark say; in a leadership it never falls |
| T7 | readers of committed records read what the log's markers say, all and nothing else; so they do after compaction |
| T8 | the state of producers and .txnindex are what the replica's log says, live and after truncation or restart |
| T9 | the offsets of a group are what the log says, by the order of the commits, live and after a load |
| T10 | at rest every transaction is complete, and all replicas' last stable offsets reach the ends of their logs |
| T11 | the committed output is the image of the input up to the committed positions, once and in order |
| T12 | no producer's epoch writes after a marker of a newer one |
| T13 | a request that got a definite error had no effect, and an acknowledged one has it |
| T14 | stable offsets that a client gets are not older than the committed ones at the coordinator's lookup |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetFetchResult, TransactionCompletedResult
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers, read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker, read_marker
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.records import OffsetKey, read_key, read_offset
from tidegauge_broker.coordinator.transaction.states import DECIDED, ONGOING, OUTCOME_OF
from tidegauge_broker.coordinator.transaction.transaction import Transaction
from tidegauge_broker.replica.messages import ProduceResult
from tidegauge_client.isolation import Aborted, without_aborted
from tidegauge_client.records import decode_batches
from tidegauge_proof.simulator.checker import Checker, Violation
from tidegauge_proof.simulator.exactly_once.clients import (
    DEFINITE,
    INPUT_RECORDS,
    OUTPUTS,
    SIMPLE_GROUP,
    Copier,
    Reader,
    Story,
    Value,
)
from tidegauge_proof.simulator.exactly_once.compacting import compacted
from tidegauge_proof.simulator.exactly_once.folds import Folds, batches_of
from tidegauge_proof.simulator.groups.members import GROUP, TOPIC
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.memory_log import MemoryLog
from tidegauge_proof.simulator.sim_partition import SimPartition
from tidegauge_proof.simulator.stored_replica import StoredReplica
from tidegauge_proof.simulator.transactions.transaction_checker import TransactionChecker, read_log

if TYPE_CHECKING:
    from tidegauge_proof.simulator.exactly_once.cluster import Cluster

_EVERYTHING = 1 << 30


class JointChecker(TransactionChecker):
    """Looks at the transaction coordinators and at the data.

    Attributes:
        cluster: set by the cluster.
        folds: of the logs of every partition.
        offsets: looks at the group coordinators.
    """

    cluster: Cluster

    def __init__(self, partition: Checker, names: Sequence[TopicPartition]) -> None:
        super().__init__(partition)
        self.folds = {at: Folds() for at in names}
        self.offsets = OffsetsChecker(self)
        self._seen: dict[tuple[int, TopicPartition], tuple[int, int]] = {}
        self._stable: dict[tuple[int, TopicPartition], tuple[int, int, int]] = {}
        self._known: dict[StoredReplica, tuple[object, ...]] = {}
        self._highest: dict[StoredReplica, tuple[object, int, int]] = {}
        self._in_transactions: set[tuple[int, int, TopicPartition]] = set()

    # T3

    def _must_be_marked(self, name: str, decision: Transaction, *, is_current: bool) -> None:
        del is_current  # a marker that is committed stays so, whoever leads
        for at in decision.partitions:
            partition = self.cluster.partitions[at]
            fold = self.folds[at].of(committed_log(partition), len(partition.checker.committed))
            if (decision.producer_id, decision.producer_epoch, OUTCOME_OF[decision.state]) not in fold.markers:
                raise Violation("T3", f"{name} is complete, and {at} has no committed marker of it")

    # T5, T6, T8, T12

    def look_at_data(self) -> None:
        """After an event: every replica of every partition."""
        for partition in self.cluster.world.partitions:
            for replica in partition.brokers.values():
                self._look_at(partition, replica)

    def _look_at(self, partition: SimPartition, replica: StoredReplica) -> None:
        log, broker, hosted = replica.log, replica.broker, replica.partition
        high_watermark, leader_epoch = (-1, -1) if hosted is None else (hosted.high_watermark, hosted.leader_epoch)
        since = (log.cuts, log.rebuilt_from, broker.incarnation, broker.is_running)
        known = (log.log_end_offset, since, high_watermark, hosted is None, leader_epoch)
        if self._known.get(replica) == known:
            return
        self._known[replica] = known
        self._look_at_batches(partition, replica)
        if hosted is None:
            return
        key = replica.broker_id, partition.at
        fold = self.folds[partition.at].of(log)
        expected = fold.last_stable_offset(
            high_watermark, max(log.rebuilt_from, self.passed(replica, since, high_watermark))
        )
        if hosted.last_stable_offset != expected:
            raise Violation(
                "T6",
                f"the last stable offset of {partition.at} on broker {replica.broker_id} is "
                f"{hosted.last_stable_offset}, not {expected} (high watermark {high_watermark})",
            )
        self._never_falls(key, replica, hosted.leader_epoch if hosted.leader_role else -1, expected)
        producers = {
            entry.producer_id: (
                entry.producer_epoch,
                entry.last_sequence,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
            for entry in hosted.producer_state.entries()
        }
        if producers != fold.producers:
            raise Violation(
                "T8", f"broker {replica.broker_id} knows producers of {partition.at} as {producers}: {fold.producers}"
            )
        aborted = tuple(
            (one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset) for one in log.aborted
        )
        if aborted != fold.aborted:
            raise Violation("T8", f".txnindex of {partition.at} on broker {replica.broker_id} has {aborted}")

    def passed(self, replica: StoredReplica, since: object, high_watermark: int) -> int:
        """Return the highest high watermark of a replica since its process began or its log was last truncated.

        A process begins with its checkpoint's, which its leader's response may lower before it is looked at.

        A follower's falls when the new leader knows less (ReplicaFetcherThread.processPartitionData); transactions
        whose marker it had passed are not unreplicated again (ProducerStateManager.onHighWatermarkUpdated).
        """
        before, incarnation, highest = self._highest.get(replica, (None, -1, -1))
        if incarnation != replica.incarnation:
            highest = replica.checkpoint
        elif before != since:
            highest = high_watermark
        highest = max(highest, high_watermark)
        self._highest[replica] = since, replica.incarnation, highest
        return highest

    def _never_falls(
        self, key: tuple[int, TopicPartition], replica: StoredReplica, leader_epoch: int, stable: int
    ) -> None:
        incarnation, epoch, before = self._stable.get(key, (-1, -1, -1))
        if leader_epoch >= 0 and (incarnation, epoch) == (replica.incarnation, leader_epoch) and stable < before:
            raise Violation("T6", f"the last stable offset of leader {key} falls from {before} to {stable}")
        self._stable[key] = replica.incarnation, leader_epoch, stable

    def _look_at_batches(self, partition: SimPartition, replica: StoredReplica) -> None:
        """Look at the batches appended to a replica since the last time."""
        log, key = replica.log, (replica.broker_id, partition.at)
        cuts, end = self._seen.get(key, (0, 0))
        begin = end if cuts == log.cuts else 0
        self._seen[key] = log.cuts, log.log_end_offset
        for header, data in batches_of(log, begin, log.log_end_offset):
            if partition is self.cluster.world.partitions[0]:
                self._note_transactions(data)
            elif header.is_transactional and not header.is_control:
                wanted = header.producer_id, header.producer_epoch, partition.at
                if wanted not in self._in_transactions:
                    raise Violation("T5", f"{wanted} has written, and the partition is in no transaction of it")

    def _note_transactions(self, data: bytes) -> None:
        for _, _, one in read_log(data):
            if one.state is ONGOING:
                self._in_transactions |= {(one.producer_id, one.producer_epoch, at) for at in one.partitions}

    # Loads: a compacted log must give the same as the whole log

    def loaded(self, process: Any, part: bytes) -> None:
        """Take in a part of the log that is handed to a load: the checker reads the whole log in the end."""

    def load_completed(self, process: Any) -> None:
        """Check a complete load against the whole log."""
        self._loaded[process] = [process.log.read(0, process.read_to, _EVERYTHING)]
        super().load_completed(process)

    # The end

    def rests(self, copiers: Sequence[Copier], readers: Sequence[Reader], *, judges: bool) -> None:
        """Check the cluster once everything is delivered and all timeouts have passed.

        Args:
            copiers: with their transactions.
            readers: with what they have read.
            judges: whether T11 and T13 are asked for: a late end may end another transaction.
        """
        cluster = self.cluster
        leader = cluster.transactions.processes[cluster.transactions.partition.state_now.leader]
        for view in leader.coordinator.transaction_views():
            if view.state in DECIDED or view.state is ONGOING or view.pending_state is not None:
                raise Violation("T10", f"{view.transactional_id} does not come to rest: {view}")
        for partition in cluster.world.partitions:
            for replica in partition.brokers.values():
                hosted = replica.partition
                if hosted is None or hosted.last_stable_offset != replica.log.log_end_offset:
                    raise Violation("T10", f"readers of {partition.at} on {replica.broker_id} do not reach the end")
        truth = {at: committed_records(cluster.partitions[at]) for at in OUTPUTS}
        for reader in readers:
            self._judge_reader(reader, truth[reader.at])
        for at in OUTPUTS:
            self._judge_compaction(cluster.partitions[at], truth[at])
        self.offsets.rests()
        if judges:
            values = {at: [Value.decoded(data) for _, data in records] for at, records in truth.items()}
            self._judge_output(values)
            seen = Counter(value for of_partition in values.values() for value in of_partition)
            for copier in copiers:
                for story in copier.stories:
                    _judge_story(story, seen)

    def _judge_reader(self, reader: Reader, truth: list[tuple[int, bytes]]) -> None:
        for begin, end, rows in reader.reads:
            expected = [(offset, value) for offset, value in truth if begin <= offset < end]
            if rows != expected:
                raise Violation("T7", f"{reader.at} was read from {begin} to {end} as {rows}, not {expected}")

    def _judge_compaction(self, partition: SimPartition, truth: list[tuple[int, bytes]]) -> None:
        """Read what compaction leaves: records without a key go, so that nothing may be read of aborted ones."""
        log = committed_log(partition)
        for passes in (1, 2, 3):
            batches = compacted(log, log.log_end_offset, self.cluster.world.now_ms, passes)
            data = b"".join(batch for _, batch in batches)
            headers = [header for header, _ in batches]
            listed = [Aborted(one.first_offset, one.producer_id) for one in log.aborted]
            kept = list(without_aborted(data, _placed(headers), listed))
            rows = {
                record.offset
                for header in kept
                if not header.is_control
                for record in decode_batches(data[header.position : header.position + header.size_bytes])
            }
            if not rows <= {offset for offset, _ in truth}:
                raise Violation("T7", f"after {passes} compactions of {partition.at} offsets {rows} are read")

    def _judge_output(self, values: dict[TopicPartition, list[Value]]) -> None:
        positions = self.offsets.committed_positions()
        for partition, total in enumerate(INPUT_RECORDS):
            position = positions.get(partition, 0)
            images = [value for of_output in values.values() for value in of_output if value.partition == partition]
            if sorted(value.position for value in images) != list(range(position)):
                raise Violation(
                    "T11",
                    f"{position} of {total} records of input {partition} are committed as processed; in the output "
                    f"are {sorted(value.position for value in images)}",
                )
            for at, of_output in values.items():
                mine = [value.position for value in of_output if value.partition == partition]
                if mine != sorted(mine):
                    raise Violation("T11", f"input {partition} is out of order in {at}: {mine}")


def _judge_story(story: Story, seen: Counter[Value]) -> None:
    """Compare the responses that a producer got with the committed records."""
    counts = {value: seen[value] for value in story.written}
    if any(count > 1 for count in counts.values()):
        raise Violation("T13", f"{story}: a record is there more than once")
    acknowledged = [count for value, count in counts.items() if ErrorCode.NONE in story.written[value]]
    if len(set(acknowledged)) > 1:
        raise Violation("T13", f"a part of {story} is committed: {counts}")
    for value, attempts in story.written.items():
        if counts[value] and attempts and all(error in DEFINITE for error in attempts):
            raise Violation("T13", f"{value} is committed, and its writes were refused: {attempts}")
    if not story.endings and story.end is None and any(counts.values()):
        raise Violation("T13", f"no producer has committed {story}, and {counts} are read")
    if story.end is Outcome.ABORT and any(counts.values()):
        raise Violation("T13", f"{story} was to be aborted, and {counts} are read")
    if story.end is Outcome.COMMIT:
        if story.is_acknowledged and not all(acknowledged):
            raise Violation("T13", f"{story} is committed, and {counts} are read")
        if story.endings and all(error in DEFINITE for error in story.endings) and any(counts.values()):
            raise Violation("T13", f"the commit of {story} was refused, and {counts} are read")


class OffsetsChecker:
    """Looks at the group coordinators: T9; what holds of groups else is asked in ``group_checker``."""

    def __init__(self, owner: JointChecker) -> None:
        self._owner = owner
        self._open: set[Any] = set()
        self._failed: dict[int, set[int]] = {}
        """The batches whose append failed at a broker since its last load: it does not count them until the next."""
        self._counted: dict[int, set[int]] = {}
        """Those that it counts: a commit that is sent again in the same ms has the CRC of the one that failed, and one
        that was pending when the same process loaded the partition again may fail afterwards."""
        self.loads = 0
        self.completions = 0

    def appended(self, broker: MemoryBroker, batch: bytes, result: ProduceResult) -> None:
        """Check that a reported append is committed; note one that failed, though its batch may be in the log."""
        if result.error is not ErrorCode.NONE:
            if read_header(batch).crc not in self._counted.get(broker.broker_id, ()):
                self._failed.setdefault(broker.broker_id, set()).add(read_header(batch).crc)
            return
        header, base = read_header(batch), result.base_offset
        self._counted.setdefault(broker.broker_id, set()).add(header.crc)
        self._failed.get(broker.broker_id, set()).discard(header.crc)
        committed = self._partition.checker.committed[base : base + header.record_count]
        if [record.batch_crc for record in committed] != [header.crc] * header.record_count:
            raise Violation(
                "Appended", f"broker {broker.broker_id} reports offset {base} as committed, which it is not"
            )

    @property
    def _partition(self) -> SimPartition:
        return self._owner.cluster.groups.partition

    def arrives(self, process: Any, token: Any) -> None:
        """Take in that a request is about to be handled."""
        del process
        self._open.add(token)

    def responded(self, process: Any, token: Any, result: Any) -> None:
        """Check that a response is the first."""
        del process
        if token not in self._open:
            raise Violation("Once", f"{token.call.request} got two responses, or was never sent")
        self._open.discard(token)
        self.completions += isinstance(result, TransactionCompletedResult)

    def process_ended(self, process: Any) -> None:
        """Forget the requests of a process that has ended."""
        self._open = {token for token in self._open if token.process is not process}

    def loaded(self, process: Any, part: bytes) -> None:
        """Take in a part of the log that is handed to a load: the checker reads the whole log in the end."""

    def given_out(self, committed: Mapping[int, int], result: OffsetFetchResult) -> None:
        """Check stable offsets that a client gets, whoever led when they were looked up.

        Args:
            committed: the positions that were committed then, by partition of the input.
            result: what the client gets.
        """
        for at, fetched in result.offsets.items():
            position = committed.get(at.partition, -1) if at.topic == TOPIC else -1
            if fetched.error is ErrorCode.NONE and fetched.offset < position:
                raise Violation("T14", f"{fetched.offset} is given out as the stable offset of {at}, not {position}")

    def load_completed(self, process: Any) -> None:
        """Check a complete load: what it gave must be what the whole log says."""
        if process.coordinator.shard_states().get(0) is ShardState.ACTIVE:
            self.loads += 1
            self._failed.pop(process.broker.broker_id, None)
            data = process.log.read(0, process.read_to, _EVERYTHING)
            self._counted[process.broker.broker_id] = {header.crc for header in iterate_headers(data)}
            self._compare(process, data, "loaded")

    def look(self, cluster: Any) -> None:
        """Nothing: between two events commits are in flight."""

    def _compare(self, process: Any, data: bytes, how: str) -> None:
        expected = folded_offsets(data, self._failed.get(process.broker.broker_id, ()))
        found: dict[tuple[str, TopicPartition], int] = {}
        for group_id in (GROUP, SIMPLE_GROUP):
            view = process.coordinator.group_view(group_id)
            if view is not None:
                found |= {(group_id, at): one.offset for at, one in view.offsets.items()}
        if found != expected:
            raise Violation("T9", f"the offsets are {how} as {found}, and the log says {expected}")

    def rests(self) -> None:
        """Check the offsets of the leader against the whole log."""
        partition = self._partition
        process = self._owner.cluster.groups.processes[partition.state_now.leader]
        self._compare(process, process.log.read(0, process.log.log_end_offset, _EVERYTHING), "kept")

    def committed_positions(self) -> dict[int, int]:
        """Return the committed position in each partition of the input."""
        log = committed_log(self._partition)
        offsets = folded_offsets(log.read(0, log.log_end_offset, _EVERYTHING))
        return {at.partition: offset for (group, at), offset in offsets.items() if (group, at.topic) == (GROUP, TOPIC)}


def folded_offsets(data: bytes, left_out: Collection[int] = ()) -> dict[tuple[str, TopicPartition], int]:
    """Return the offsets of a __consumer_offsets log; the latest commit counts.

    Args:
        data: the log.
        left_out: the CRCs of batches that do not count.
    """
    kept: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
    pending: dict[int, dict[tuple[str, TopicPartition], tuple[int, int]]] = {}
    for batch in read_batches(data):
        header = batch.header
        if header.is_control:
            position = header.position
            marker = read_marker(data[position : position + header.size_bytes], header.alone())
            ended = pending.pop(header.producer_id, {})
            if isinstance(marker, TransactionMarker) and marker.outcome is Outcome.COMMIT:
                for name, commit in ended.items():
                    kept[name] = max(commit, kept.get(name, commit))
            continue
        if header.crc in left_out:
            continue
        target = pending.setdefault(header.producer_id, {}) if header.is_transactional else kept
        for key_bytes, value in batch.records:
            key = read_key(key_bytes or b"")
            if isinstance(key, OffsetKey) and value is not None:
                commit = header.base_offset, read_offset(value).offset
                name = key.group_id, key.topic_partition
                target[name] = max(commit, target.get(name, commit))
    return {key: offset for key, (_, offset) in kept.items()}


def committed_log(partition: SimPartition) -> MemoryLog:
    """Return a log that begins with all that is committed."""
    checker = partition.checker
    end = len(checker.committed)
    for replica in partition.brokers.values():
        if len(replica.log.chain) > end and replica.log.chain[end] == checker.chain[end]:
            return replica.log
    raise Violation("StrongIsr", f"no replica has what is committed of {partition.at}")


def committed_records(partition: SimPartition) -> list[tuple[int, bytes]]:
    """Return the committed transactions' records with offsets, by the log's markers."""
    log = committed_log(partition)
    pending: dict[int, list[tuple[int, bytes]]] = {}
    records: list[tuple[int, bytes]] = []
    for header, data in batches_of(log, 0, len(partition.checker.committed)):
        if header.is_control:
            marker = read_marker(data, header)
            ended = pending.pop(header.producer_id, [])
            if marker is not None and marker.outcome is Outcome.COMMIT:
                records += ended
        else:
            rows = [(record.offset, record.value or b"") for record in decode_batches(data)]
            pending.setdefault(header.producer_id, []).extend(rows)
    return sorted(records)


def _placed(headers: Sequence[Any]) -> list[Any]:
    """Return headers with the positions that they have in one buffer."""
    placed, position = [], 0
    for header in headers:
        placed.append(header._replace(position=position))
        position += header.size_bytes
    return placed
