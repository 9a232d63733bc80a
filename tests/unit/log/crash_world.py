"""A broker's logs in two log directories, driven by a script beside their twins, through crashes and starts.

A script is a list of processes. A process is a list of steps, each with two numbers that are taken modulo the
choices, so that every part of a script is a script; and its end: cleanly, by a kill or by a power loss, after its
steps or before one of the changes of files that it makes (its start counts). After each start everything is compared
with the twins (``crash_twin.py``), and the requests that the controller would repeat are repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.unit.log import crash_cleaning
from tests.unit.log.conftest import CLUSTER, START_MS, build_keyed_batch
from tests.unit.log.crash_disk import Crash, Fate, JournalDisk
from tests.unit.log.crash_look import look_at, names_in
from tests.unit.log.crash_moves import finish_moving, moves_of, run_at_once
from tests.unit.log.crash_twin import Batch, Found, Twin, adopted, differences

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.log_effects import LogEffects
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.effects import AdvanceLogStart, TruncateFully, TruncateLog
from tidegauge_broker.replica.messages import EpochEntry
from tidegauge_broker.replica.roles import Role

PARTITIONS = [TopicPartition(topic, at) for topic in ("orders", "keys") for at in (0, 1)]
SETTINGS = {
    "log.segment.bytes": "500",
    "log.index.interval.bytes": "0",
    "log.retention.bytes": "1000",
    "log.retention.ms": "-1",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.delete.retention.ms": "0",
    "num.recovery.threads.per.data.dir": "1",
}

Step = tuple[str, int, int]


class Process(NamedTuple):
    """A process's steps, and its end.

    Attributes:
        end: "clean", "kill" or "power".
        last: the change of a file before which it ends; None: after its steps.
        counts: which changes ``last`` counts: "all", only the last step's ("late"), or the "renames" in it.
        torn: half of that change happens, if it is an append.
        seed: of what a loss of power leaves.
        failing: the log directory that fails from the start, if any.
    """

    steps: tuple[Step, ...]
    end: str = "kill"
    last: int | None = None
    torn: bool = False
    seed: int = 0
    counts: str = "all"
    failing: int | None = None


class Wrong(AssertionError):
    """A rule does not hold."""


class World:
    """A broker's logs, driven by a script beside their twins."""

    def __init__(self, directory: Path) -> None:
        self.disks = [JournalDisk(directory / name, directory / f"attic-{name}") for name in "ab"]
        self.twins: dict[TopicPartition, Twin | None] = dict.fromkeys(PARTITIONS)
        self.after: dict[TopicPartition, Twin | None] = {}
        """The result of the step in progress, if it changes a replica; None: no replica."""
        self.power_lost: set[TopicPartition] = set()
        """The replicas that were not looked at since."""
        self.compacts = True
        """Whether the topic of keys is compacted at the moment."""
        self.now_ms = START_MS
        self.numbers = 0
        self.changes: list[int] = []
        """How many changes each process has made."""
        self._former_places: dict[TopicPartition, Path] = {}
        self._highest_starts: dict[tuple[TopicPartition, str], int] = {}
        """The highest log start offset of each replica; a kill may take it from the log, and not from its copy."""

    # A process

    def play(self, process: Process) -> None:
        fate = Fate(process.last if process.counts == "all" else None, torn=process.torn)
        for at, disk in enumerate(self.disks):
            disk.fate, disk.failing = fate, at == process.failing
        self.manager: LogManager | None = None
        self.cleaner = crash_cleaning.Cleaner(self)
        try:
            self.start()
            for number, (name, one, other) in enumerate(process.steps, 1):
                if process.counts != "all" and number == len(process.steps):
                    fate.begin(process.last, only_renames=process.counts == "renames")
                self.take(name, one, other)
            if process.end == "clean":
                self.close()
        except Crash:
            pass
        self.changes.append(fate.changes)
        fate.dead = True
        self._let_go()
        if process.end == "power":
            for disk in self.disks:
                disk.lose_power(Random(process.seed))
            self.power_lost.update(PARTITIONS)

    def _let_go(self) -> None:
        if self.manager is not None:
            self.manager._unlock()
            self.manager = None

    def open(self) -> None:
        broker, unknown = parse_broker_settings(SETTINGS)
        assert not unknown
        while self.manager is None:
            try:
                self.manager = LogManager.open(
                    [disk.root for disk in self.disks],
                    broker_id=1,
                    cluster_id=CLUSTER,
                    broker=broker,
                    topic_values=lambda topic: parse_topic_settings(self._settings_of(topic), broker),
                    now_ms=lambda: self.now_ms,
                    disk_of={disk.root: disk for disk in self.disks}.__getitem__,
                )
            except TidegaugeError as problem:
                if not problem.message.startswith("Duplicate log directories for") or not self._former_places:
                    raise
                self._remove_the_former_of(problem.message)
        self.effects = LogEffects(self.manager)
        core: Any = SimpleNamespace(
            partition=self._partition, hosted=SimpleNamespace(leader_of=lambda *_: (None, ErrorCode.NONE))
        )
        replicas: Any = SimpleNamespace(core=core, logs=self.manager, report_failures=lambda: None)
        self.moves = moves_of(replicas, lambda: self.now_ms)

    def _settings_of(self, topic: str) -> dict[str, str]:
        return {"cleanup.policy": "compact"} if topic == "keys" and self.compacts else {}

    def _remove_the_former_of(self, message: str) -> None:
        """Do as the error says: the operator moves the replica away that the move has left, or was about to."""
        at = next(at for at in PARTITIONS if f" {at} " in message)
        path = self._former_places.pop(at) / str(at)
        disk = next(disk for disk in self.disks if disk.root == path.parent)
        if not path.is_dir():
            raise Wrong(f"{message}; and none of it was moved")
        fate, failing = disk.fate, disk.failing
        disk.fate, disk.failing = Fate(), False
        disk.remove_directory(path)
        disk.sync_directory(disk.root)
        disk.fate, disk.failing = fate, failing

    def _partition(self, at: TopicPartition) -> Any:
        twin = self.twins[at]
        if twin is None:
            return None
        role = Role.LEADER if self.is_alive(at) else Role.OFFLINE
        return SimpleNamespace(role=role, high_watermark=twin.high_watermark)

    def start(self) -> None:
        self.open()
        self.check()
        self._repeat_requests()

    def _repeat_requests(self) -> None:
        """Repeat incomplete requests, as the controller does."""
        for topic in {at.topic for at in PARTITIONS}:
            asked = [at for at in PARTITIONS if at.topic == topic and self._is_request(at)]
            if any(self.after[at] is None for at in asked):
                self.delete_topic(topic)
            elif asked:
                self._create(asked, is_new=False)
        for at, twin in self.twins.items():
            if twin is not None and at not in self.after:
                with suppress(StorageError):
                    self.logs.get_or_create(at, twin.topic_id, is_new=False)
        self.moves.resume([at for at in PARTITIONS if self.is_alive(at)])

    @property
    def logs(self) -> LogManager:
        assert self.manager is not None
        return self.manager

    def close(self) -> None:
        values = {at: twin.high_watermark for at, twin in self.alive()}
        alive = [(at, twin, self.logs.logs[at].log_directory) for at, twin in self.alive()]
        self.logs.close(values)
        self.manager = None
        for at, twin, log_directory in alive:
            if log_directory.path in (disk.root for disk in self.disks if disk.failing):
                continue
            self.twins[at] = replace(
                twin.synced(), high_watermark_written=twin.high_watermark, start_written=twin.start
            )

    # Comparisons

    def check(self) -> None:
        """Compare everything with the twins; then continue with the found state."""
        self._check_directories()
        for at in PARTITIONS:
            self._check_replica(at)
        away = [at for at in self.after if self.logs.get(at) is None and self.logs.offline_directories]
        self.after = {at: twin for at, twin in self.after.items() if self._is_request(at) or at in away}

    def _is_request(self, at: TopicPartition) -> bool:
        """Whether a creation or a deletion is in progress: it is requested again, a change of a log is not."""
        return at in self.after and (self.after[at] is None or self.twins[at] is None)

    def _check_directories(self) -> None:
        for disk in self.disks:
            if disk.root in self.logs.offline_directories and not disk.failing:
                raise Wrong(f"{disk.root.name} is offline without a fault")

    def _check_replica(self, at: TopicPartition) -> None:
        log, before = self.logs.get(at), self.twins[at]
        pending = at in self.after
        after = self.after.get(at)
        if log is None:
            if pending and after is None and self.logs.offline_directories:
                return  # the deletion waits for the log directory
            if before is None or (pending and after is None):
                if pending and after is None:
                    self.twins[at] = None
                self.power_lost.discard(at)
                return
            if self.logs.offline_directories:
                return
            if at in self.power_lost and before.flushed == 0:
                self.twins[at] = Twin(before.topic_id, before.is_compacted, epoch=before.epoch + 1)
                self.power_lost.discard(at)
                return
            raise Wrong(f"{at} has no log")
        if before is None and not pending:
            if at not in self._former_places:
                raise Wrong(f"{at} was deleted, and its log is there")
            # The log directory that a move has left had failed, and holds the former log; an operator removes it.
            self.logs.delete(at)
            return
        twin = before or after
        assert twin is not None
        found = self.found(at)
        power_lost = at in self.power_lost
        reasons = differences(found, twin, after, power_lost=power_lost)
        if reasons:
            raise Wrong(f"{at}: {'; or '.join(reasons)}")
        self.power_lost.discard(at)
        offline = self.logs.offline_directories
        if offline and at in self._former_places:
            self._former_places[at] = offline[0]  # the replica continues in its present directory
        if before is not None:
            self.twins[at] = adopted(found, before, after, power_lost=power_lost)

    def found(self, at: TopicPartition) -> Found:
        return look_at(self.logs, at)

    def open_and_check_twice(self) -> None:
        """Start without a fault and end by a kill, twice: the second start changes nothing."""
        seen = []
        for _ in range(2):
            for disk in self.disks:
                disk.fate, disk.failing = Fate(), False
            self.manager = None
            self.open()
            self.check()
            seen.append({at: self.found(at) for at in PARTITIONS if self.logs.get(at)})
            self._repeat_requests()
            self.check_leftovers()
            self._let_go()
        first, second = seen
        for at, found in second.items():
            if at in first and found != first[at]:
                raise Wrong(f"{at}: a second start finds {found} where the first one found {first[at]}")

    def remove(self) -> None:
        """Remove all files."""
        self._let_go()
        shutil.rmtree(self.disks[0].root.parent, ignore_errors=True)

    def check_leftovers(self) -> None:
        """Nothing is left that no process will remove, and each replica is in one place."""
        self.now_ms += 100_000
        self.logs.remove_deleted()
        futures = {log.directory for log in self.logs.futures.logs.values()}
        hosted = {log.directory for log in self.logs.logs.values()}
        for disk in self.disks:
            for name in names_in(disk.root):
                path = disk.root / name
                is_of_deleted_topic = name.endswith("-future") and self.twins[_owner(name)] is None
                if path.is_dir() and path not in futures | hosted and not is_of_deleted_topic:
                    raise Wrong(f"{path} is nothing's")
                if path.parent != disk.root and path.suffix in {".deleted", ".cleaned", ".swap", ".tmp"}:
                    raise Wrong(f"{path} is left")

    # Steps

    def is_alive(self, at: TopicPartition) -> bool:
        log = self.logs.get(at)
        is_there = log is not None and self.twins[at] is not None and at not in self.after
        return is_there and not log.log_directory.offline  # type: ignore[union-attr]

    def alive(self) -> list[tuple[TopicPartition, Twin]]:
        return [(at, twin) for at, twin in self.twins.items() if twin is not None and self.is_alive(at)]

    @contextmanager
    def changing(self, at: TopicPartition, after: Twin) -> Iterator[None]:
        """A step in progress; where a disk refuses it, both are possible until the next start."""
        self.after[at] = after
        yield
        self.twins[at] = self.after.pop(at)

    def twin(self, at: TopicPartition) -> Twin:
        """Return the twin of a replica that is there."""
        twin = self.twins[at]
        assert twin is not None
        return twin

    def take(self, name: str, one: int, other: int) -> None:
        """Make one step; those without sense at the moment do nothing."""
        try:
            if name in _OF_A_REPLICA:
                alive = dict(self.alive())
                if not alive:
                    return
                at = PARTITIONS[one % len(PARTITIONS)]
                at = at if at in alive else list(alive)[one % len(alive)]
                twin = alive[at]
                log = self.logs.get(at)
                assert log is not None
                self.change(name, at, twin, log, other)
            else:
                _OF_THE_BROKER[name](self, one, other)
        except StorageError:
            self.moves.drop_offline()
        for at, twin in self.alive():
            known = self._highest_starts.get((at, twin.topic_id), 0)
            self._highest_starts[at, twin.topic_id] = max(known, twin.start)
        self._check_directories()

    def change(self, name: str, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        """Make one step of a replica."""
        _OF_A_REPLICA[name](self, at, twin, log, other)

    def append(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        """A batch without a producer, of an idempotent one, or of a transactional one.

        A compacted topic's may come from a leader that has no batches just before it any more: it leaves a gap.
        """
        base = twin.end + (1 + other % 3 if twin.is_compacted and other % 13 == 0 else 0)
        producer_id = (-1, -1, 5, 11, 12)[other % 5]
        known = twin.producers(twin.end).get(producer_id)
        sequence = -1 if producer_id < 0 else known.last_sequence + 1 if known else 0
        pairs = []
        for index in range(1 + other % 3):
            self.numbers += 1
            kind = (other // 5 + index) % 6
            pairs.append((b"k%d" % ((other // 7 + index) % 8), None if kind > 3 else b"%d" % self.numbers))
        data = build_keyed_batch(
            *pairs, time_ms=self.now_ms, producer_id=producer_id, sequence=sequence, transactional=producer_id > 10
        )
        rows = tuple((base + index, *pair) for index, pair in enumerate(pairs))
        last_sequence = -1 if producer_id < 0 else sequence + len(pairs) - 1
        self._append(at, twin, log, data, rows, producer_id, last_sequence, "", base)

    def end_transaction(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        open_ones = [key for key, one in twin.producers(twin.end).items() if one.transaction_start is not None]
        if not open_ones:
            return
        producer_id = open_ones[other % len(open_ones)]
        outcome = Outcome.ABORT if other // 2 % 2 else Outcome.COMMIT
        data = make_marker(TransactionMarker(producer_id, 0, outcome, 0), self.now_ms)
        self._append(at, twin, log, data, (), producer_id, -1, "abort" if outcome is Outcome.ABORT else "commit")

    def _append(
        self, at: TopicPartition, twin: Twin, log: PartitionLog, data: bytes, rows: Any, producer_id: int,
        last_sequence: int, outcome: str, base: int = -1,
    ) -> None:  # fmt: skip
        base = max(base, twin.end)
        header = read_header(data)._replace(base_offset=base, leader_epoch=twin.epoch)
        stored = base.to_bytes(8, "big") + data[8:12] + twin.epoch.to_bytes(4, "big") + data[16:]
        is_transactional = producer_id > 10
        epoch = 0 if producer_id >= 0 else -1
        batch = Batch(base, stored, rows, twin.epoch, producer_id, epoch, last_sequence, is_transactional, outcome)
        with self.changing(at, twin.appended(batch)):
            if not log.epochs or log.epochs[-1].epoch < twin.epoch:
                kept = [entry for entry in log.epochs if entry.start_offset < base]
                log.write_epochs([*kept, EpochEntry(twin.epoch, base)], sync=True)
            log.append_as_leader(data, header)

    def roll(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        with log.storage("rolling"):
            if log.segments[-1].size_bytes:
                log._roll(log.log_end_offset)

    def raise_high_watermark(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        value = twin.end if other % 3 else min(twin.end, max(twin.high_watermark, twin.start) + other % 4)
        self.twins[at] = replace(twin, high_watermark=value)
        self.logs.note_high_watermarks({at: value})
        log.producer_state.transactions.replicated(value)

    def lead(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        """A new leader epoch, which the log has with its first batch."""
        self.twins[at] = replace(twin, epoch=twin.epoch + 1)

    def sync(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        self.logs.sync(at)
        self.twins[at] = twin.synced()

    def delete_records(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        if twin.high_watermark > twin.start and not twin.is_compacted:
            start = twin.start + 1 + other % (twin.high_watermark - twin.start)
            with self.changing(at, replace(twin, start=start)):
                self.effects.advance_log_start(AdvanceLogStart(at, start))

    def truncate(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        """As a follower of a new leader."""
        wanted = twin.end - other % 8 if other % 2 else twin.end - other // 2 % (twin.end - twin.start + 1)
        borders = [twin.start, *(one.base_offset for one in twin.batches if twin.start <= one.base_offset <= wanted)]
        to_offset = min(twin.end, borders[-1])
        with self.changing(at, replace(twin.truncated(to_offset), epoch=twin.epoch + 1)):
            self.effects.truncate_to(TruncateLog(at, to_offset))
            log.write_epochs([one for one in log.epochs if one.start_offset < to_offset], sync=False)

    def empty(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        """As a follower whose log ends below the leader's log start offset."""
        start = twin.end + 1 + other % 5
        with self.changing(at, replace(twin.emptied(start), epoch=twin.epoch + 1)):
            self.effects.truncate_fully(TruncateFully(at, start))
            log.write_epochs([], sync=False)

    def begin_move(self, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
        away = [disk for disk in self.disks if (disk.root == log.log_directory.path) is not bool(other % 8)]
        run_at_once(self.moves.alter({at: str(away[0].root)}))

    def go_on_moving(self, one: int, other: int, *, steps: int = 0) -> None:
        moving = min(self.moves.copied, default=None)
        log = None if moving is None else self.logs.get(moving)
        twin = None if moving is None else self.twins[moving]
        copied_to = 0
        for _ in range(steps or 1 + other % 4):
            if moving is not None and log is not None and twin is not None:
                self._former_places[moving] = log.log_directory.path
                copy = self.logs.futures.logs.get(moving)
                copied_to = copied_to if copy is None else copy.log_end_offset
            self.moves.advance()
        moved = None if moving is None else self.logs.get(moving)
        if moving is not None and twin is not None and moved is not None and moved is not log:
            written = min(twin.high_watermark, copied_to)  # a truncation within a batch leaves offsets without records
            highest = self._highest_starts.get((moving, twin.topic_id), 0)
            start = max(twin.start, min(moved.log_start_offset, highest))
            self.twins[moving] = replace(twin, high_watermark_written=written, start=start)

    def flush_rolled(self, one: int, other: int) -> None:
        self.logs.flush_dirty()
        for at, twin in self.alive():
            log = self.logs.get(at)
            assert log is not None
            self.twins[at] = replace(twin, flushed=max(twin.flushed, min(twin.end, log.segments[-1].base_offset)))

    def checkpoint(self, one: int, other: int) -> None:
        if one % 3 == 0:
            self.logs.write_recovery_points()
        elif one % 3 == 1:
            self.logs.write_log_start_offsets()
            for at, twin in self.alive():
                self.twins[at] = replace(twin, start_written=twin.start)
        else:
            self.logs.note_high_watermarks({at: twin.high_watermark for at, twin in self.alive()})
            self.logs.write_high_watermarks()
            for at, twin in self.alive():
                self.twins[at] = replace(twin, high_watermark_written=twin.high_watermark)

    def retain(self, one: int, other: int) -> None:
        alive = dict(self.alive())
        values = {at: twin.high_watermark for at, twin in alive.items()}
        for at, twin in alive.items():
            self.after[at] = replace(twin, start=max(twin.start, twin.high_watermark))
        self.logs.housekeeping(values)
        self.logs.housekeeping_of_compacted(values)
        for at, twin in alive.items():
            log = self.logs.get(at)
            assert log is not None
            if log.log_directory.offline:
                continue
            del self.after[at]
            if not twin.start <= log.log_start_offset <= max(twin.start, twin.high_watermark):
                raise Wrong(f"{at}: retention moved the log start from {twin.start} to {log.log_start_offset}")
            self.twins[at] = replace(twin, start=log.log_start_offset)

    def remove_deleted(self, one: int, other: int) -> None:
        self.now_ms += 100_000
        self.logs.remove_deleted()

    def note_flushed(self, at: TopicPartition) -> None:
        """All of a log is on the disk."""
        twin = self.twin(at)
        self.twins[at] = replace(twin, flushed=twin.end)

    def change_policy(self, one: int, other: int) -> None:
        """The topic of keys is compacted, or no longer."""
        self.compacts = not self.compacts
        self.logs.settings_changed("keys")

    def delete_or_create_topic(self, one: int, other: int) -> None:
        topic = PARTITIONS[one % len(PARTITIONS)].topic
        replicas = [at for at in PARTITIONS if at.topic == topic]
        if any(at in self.after for at in replicas):
            return
        if all(self.twins[at] is None for at in replicas):
            self.numbers += 1
            for at in replicas:
                self.after[at] = Twin(f"topic{self.numbers:017d}", at.topic == "keys")
            self._create(replicas, is_new=True)
        elif other % 3 == 0:
            self.delete_topic(topic)

    def _create(self, replicas: list[TopicPartition], *, is_new: bool) -> None:
        for at in replicas:
            twin = self.after[at]
            assert twin is not None
            with suppress(StorageError):
                self.logs.get_or_create(at, twin.topic_id, is_new=is_new)
                self.twins[at] = self.after.pop(at)

    def delete_topic(self, topic: str) -> None:
        """A replica whose log directory is offline holds the deletion up, until that is back."""
        replicas = [at for at in PARTITIONS if at.topic == topic and self.twins[at] is not None]
        places = [self.logs.get(at) for at in replicas]
        if any(log is not None and log.log_directory.offline for log in places) or (
            None in places and self.logs.offline_directories
        ):
            return
        for at in replicas:
            self.after[at] = None
        self.moves.stop(replicas)
        self.logs.delete_all(replicas)
        for at in PARTITIONS:
            if at.topic == topic:
                self.twins[at] = None
                self.after.pop(at, None)

    def fail(self, one: int, other: int) -> None:
        """A log directory refuses from now on; the other one must be sound, or the broker would halt."""
        if other % 3 == 0 and not any(disk.failing for disk in self.disks):
            self.disks[one % 2].failing = True


def _owner(name: str) -> TopicPartition:
    return TopicPartition.parse(name.rpartition(".")[0])


_OF_A_REPLICA: dict[str, Callable[..., None]] = {
    "append": World.append,
    "end transaction": World.end_transaction,
    "roll": World.roll,
    "high watermark": World.raise_high_watermark,
    "lead": World.lead,
    "sync": World.sync,
    "delete records": World.delete_records,
    "truncate": World.truncate,
    "empty": World.empty,
    "move": World.begin_move,
    "churn": crash_cleaning.churn,
    "abort": crash_cleaning.abort,
    "repeat": crash_cleaning.repeat,
    "gap": crash_cleaning.begin_behind_a_gap,
}
_OF_THE_BROKER: dict[str, Callable[..., None]] = {
    "go on moving": World.go_on_moving,
    "finish moving": finish_moving,
    "flush rolled": World.flush_rolled,
    "checkpoint": World.checkpoint,
    "retain": World.retain,
    "remove deleted": World.remove_deleted,
    "compact": crash_cleaning.compact,
    "compact all": crash_cleaning.compact_all,
    "compact once": crash_cleaning.compact_once,
    "disturb": crash_cleaning.disturb,
    "policy": World.change_policy,
    "topic": World.delete_or_create_topic,
    "fail": World.fail,
}
STEPS = {
    "append": 24, "end transaction": 5, "roll": 4, "high watermark": 8, "lead": 2, "sync": 2, "delete records": 2,
    "truncate": 3, "empty": 1, "move": 3, "go on moving": 4, "finish moving": 1, "flush rolled": 3, "checkpoint": 5,
    "retain": 2, "remove deleted": 2, "compact": 10, "topic": 4, "fail": 1, "churn": 4, "abort": 1, "compact all": 3,
    "compact once": 1, "disturb": 3, "policy": 1, "repeat": 1, "gap": 1,
}  # fmt: skip
"""How often each step comes."""
