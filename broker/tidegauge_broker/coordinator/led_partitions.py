"""The partitions of an internal topic that a broker leads: elections, loads one after the other, resignations.

Contract: events of partitions take effect in their order, on what in Kafka is one thread (the scheduler
    of GroupMetadataManager or of TransactionStateManager): a load holds up the events behind it until it is complete.

While a partition is led, events of a lower epoch than its election's are ignored. Without a leadership any
election counts: the epochs of a topic that was deleted and created again begin at 0 once more. Kafka's group
coordinator compares with the highest epoch that it has ever seen (maybeUpdateCoordinatorEpoch), and so serves no group
of such a partition until its broker restarts; its transaction coordinator compares with none.

The two coordinators differ in when an election or resignation takes effect. For groups it is a task on the thread, so
it waits for the loads before it. For transactions it takes effect at once, so that requests get
COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR from then on, and only the load waits.

A partition whose log can't be read to its end is not served at all: its requests get NOT_COORDINATOR until another
replica leads it, or this one is elected again. The records read so far lack the latest decisions; served, older ones
would count as the newest, and be written behind them. That is the rule of Kafka's newer group coordinator
(CoordinatorRuntime, CoordinatorState.FAILED); the one of 3.9 in ZooKeeper mode serves no groups then, its transaction
coordinator the records it has read (doLoadGroupsAndOffsets and loadTransactionMetadata log the exception and continue).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from tidegauge.errors import TidegaugeError
from tidegauge.record_batch import Buffer
from tidegauge_broker.coordinator.effects import Defect, ReadLog
from tidegauge_broker.coordinator.events import Elected, LoadCompleted, RecordsRead, Resigned
from tidegauge_broker.coordinator.runtime import Runtime


class ShardState(Enum):
    """The state of an internal topic's partition at this broker."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    UNLOADED = "unloaded"


class ShardTransition(NamedTuple):
    """One row: ``old`` is None before the first load."""

    old: ShardState | None
    new: ShardState
    when: str


class LedPartition:
    """A partition that this broker leads, with what lives there: the base of the coordinators' shards.

    Attributes:
        leader_epoch: at which this broker took over, the coordinator epoch; a higher one under the same leader does not
            change it.
        since_ms: when the load was asked for, for the time that it took.
        is_load_committed: whether the loaded records were known to be committed at the end of the load.
        unknown_versions: of keys that were read and skipped: a newer broker left them behind (KIP-915).
    """

    def __init__(
        self, runtime: Runtime, partition: int, leader_epoch: int, since_ms: int, table: Iterable[ShardTransition]
    ) -> None:
        self._runtime_of_states = runtime
        self._allowed = frozenset((row.old, row.new) for row in table)
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.since_ms = since_ms
        self.unknown_versions: set[int] = set()
        self.is_load_committed = True
        self.state: ShardState | None = None
        self.change_state(ShardState.LOADING)

    def change_state(self, new: ShardState, **fields: object) -> None:
        """Enter a state, which must be allowed by the table, and note it."""
        assert (self.state, new) in self._allowed, f"A shard may not change from {self.state} to {new}"
        self.state = new
        self._runtime_of_states.note(
            "coordinator", str(self.partition), state=new.value, leader_epoch=self.leader_epoch, **fields
        )

    def replay(self, batches: Buffer) -> None:
        """Take the next part of the log.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, a batch cannot be read.
        """
        raise NotImplementedError

    def activate(self) -> None:
        """End the load and serve the partition."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop the records that were read of the log, which is not served."""
        raise NotImplementedError

    def unload(self) -> None:
        """Forget the partition."""
        raise NotImplementedError


LedT = TypeVar("LedT", bound=LedPartition)


class LedPartitions(Generic[LedT]):
    """All shards of a coordinator.

    Args:
        topic: the internal topic.
        what: what its records are, in Kafka's words, for the log.
        create: makes the shard of a partition that begins to load: partition, leader epoch, time of the election.
        takes_effect_at_once: whether elections and resignations do, and only loads wait; see the module.

    Attributes:
        shards: by partition, those that load and those that are served.
        loading: the one whose log is being read.
    """

    def __init__(
        self,
        runtime: Runtime,
        topic: str,
        what: str,
        create: Callable[[int, int, int], LedT],
        *,
        takes_effect_at_once: bool,
    ) -> None:
        self._runtime = runtime
        self._topic = topic
        self._what = what
        self._create = create
        self._takes_effect_at_once = takes_effect_at_once
        self.shards: dict[int, LedT] = {}
        self.loading: LedT | None = None
        self._problem = ""
        self._tasks: deque[Callable[[], None]] = deque()

    def states(self) -> dict[int, ShardState]:
        """Return the state of every partition that this broker loads or serves."""
        return {partition: shard.state for partition, shard in self.shards.items() if shard.state is not None}

    def active(self) -> list[LedT]:
        """Return the shards that are served."""
        return [shard for shard in self.shards.values() if shard.state is ShardState.ACTIVE]

    def change_leadership(self, event: Elected | Resigned) -> None:
        """Take an election or resignation, now or when its turn comes."""
        if isinstance(event, Elected):
            take = partial(self._elect, event, self._runtime.now_ms)
        else:
            take = partial(self._resign, event)
        if self._takes_effect_at_once:
            take()
            self._run_tasks()
        else:
            self.run_in_turn(take)

    def run_in_turn(self, task: Callable[[], None]) -> None:
        """Run a task when all loads and tasks before it are complete, which may be at once."""
        self._tasks.append(task)
        self._run_tasks()

    def take_records(self, event: RecordsRead) -> None:
        """Replay a part of the log that is being read."""
        shard = self.loading
        if shard is None or self._problem or not _is_of(shard, event) or not self._has(shard):
            return
        try:
            shard.replay(event.batches)
        except TidegaugeError as problem:
            self._problem = problem.message
        except Exception as defect:  # noqa: BLE001 - it is logged, and the partition fails, and nothing else
            self._problem = repr(defect)
            self._runtime.effects.append(Defect(f"Reading {self._name(shard.partition)} failed", defect))

    def complete_load(self, event: LoadCompleted) -> None:
        """Serve the partition whose log has been read, and continue with the waiting events."""
        shard = self.loading
        if shard is None or not _is_of(shard, event):
            return
        self.loading = None
        if self._has(shard):
            self._runtime.cause = "Load"
            for version in sorted(shard.unknown_versions):
                self._runtime.log(
                    f"Unknown message key with version {version} while loading {self._what} from "
                    f"{self._name(shard.partition)}. Ignoring it. It could be a left over from an aborted upgrade.",
                    "warning",
                )
            problem = self._problem or event.problem
            if problem:
                self._fail(shard, problem)
            else:
                shard.is_load_committed = event.is_committed
                shard.activate()
        self._run_tasks()

    def _fail(self, shard: LedT, problem: str) -> None:
        """Serve nothing of a partition whose log can't be read to its end; this file's head says why."""
        shard.forget()
        self._runtime.log(
            f"Error loading {self._what} from {self._name(shard.partition)}: {problem}. The records read may not be "
            "the latest, so none of them is served: requests get NOT_COORDINATOR. Let a replica with a sound log lead "
            "the partition, or put a sound copy of the log in place while this broker is down.",
            "error",
        )
        shard.change_state(ShardState.FAILED, load_ms=self._runtime.now_ms - shard.since_ms)

    def clear(self) -> None:
        """Drop all partitions; what still waits for a load finds none."""
        for partition in list(self.shards):
            self._drop(partition)

    def _run_tasks(self) -> None:
        while self._tasks and self.loading is None:
            self._tasks.popleft()()

    def _elect(self, event: Elected, since_ms: int) -> None:
        if not self._is_current(event):
            return
        self._runtime.cause = "Election"
        if self._takes_effect_at_once:
            # An entry that a failed unload has left is replaced (KAFKA-9307).
            self._drop(event.partition)
        elif (known := self.shards.get(event.partition)) is not None and known.state is ShardState.FAILED:
            self._drop(event.partition)
        elif known is not None:
            self._runtime.log(f"Already loading {self._what} from {self._name(event.partition)}")
            return
        shard = self.shards[event.partition] = self._create(event.partition, event.leader_epoch, since_ms)
        if self._takes_effect_at_once:
            self._tasks.append(partial(self._start_load, shard))
        else:
            self._start_load(shard)

    def _start_load(self, shard: LedT) -> None:
        if self._has(shard):
            self.loading = shard
            self._problem = ""
            self._runtime.effects.append(ReadLog(shard.partition, shard.leader_epoch))

    def _resign(self, event: Resigned) -> None:
        if self._is_current(event):
            self._runtime.cause = "Resignation"
            self._drop(event.partition)

    def _drop(self, partition: int) -> None:
        shard = self.shards.pop(partition, None)
        if shard is not None:
            shard.unload()

    def _has(self, shard: LedT) -> bool:
        """Whether a shard has not been dropped since its load was asked for."""
        return self.shards.get(shard.partition) is shard

    def _is_current(self, event: Elected | Resigned) -> bool:
        """Whether an event is not older than the current leadership; the rules are at the head of this file."""
        shard, leader_epoch = self.shards.get(event.partition), event.leader_epoch
        if shard is None or leader_epoch is None or leader_epoch >= shard.leader_epoch:
            return True
        self._runtime.log(
            f"Ignoring {type(event).__name__} for {self._name(event.partition)} in epoch {leader_epoch} since current "
            f"epoch is {shard.leader_epoch}"
        )
        return False

    def _name(self, partition: int) -> str:
        return f"{self._topic}-{partition}"


def _is_of(shard: LedPartition, event: RecordsRead | LoadCompleted) -> bool:
    return shard.partition == event.partition and shard.leader_epoch == event.leader_epoch
