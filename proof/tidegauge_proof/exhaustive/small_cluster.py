"""One broker that leads one partition of an internal topic, or does not: the cluster under an explored coordinator.

It stands in for ``World`` below the shell of ``CoordinatorWorld``. Replication is left to the caller: batches
that were appended become committed one by one, in their order; a coordinator that ends leaves the committed batches
and as much of the rest as the caller says. Nothing is decided here, and time passes when the caller says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import BatchHeader
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import ProduceRequest, ProduceResult
from tidegauge_proof.simulator.memory_broker import AT
from tidegauge_proof.simulator.memory_log import RecordName, header_of, patched

BROKER = 1
_NO_LEADER = -1


class Batch(NamedTuple):
    """A batch of the log."""

    header: BatchHeader
    data: bytes


@dataclass(slots=True)
class SmallLog:
    """The partition's log."""

    batches: list[Batch] = field(default_factory=list[Batch])

    @property
    def log_end_offset(self) -> int:
        """Where the next batch begins."""
        return self.batches[-1].header.next_offset if self.batches else 0

    def read(self, from_offset: int, to_offset: int, max_bytes: int) -> bytes:
        """Return whole batches, one at least if there is one."""
        data = b""
        for header, batch in self.batches:
            if header.base_offset < from_offset or header.next_offset > to_offset:
                continue
            if data and len(data) + len(batch) > max_bytes:
                break
            data += batch
        return data


@dataclass(frozen=True, slots=True)
class Role:
    """The replica's view of its leadership."""

    leader_epoch: int
    partition: SmallPartition = field(compare=False, repr=False)
    leader_role: bool = True

    @property
    def high_watermark(self) -> int:
        """Where the committed batches end."""
        batches = self.partition.brokers[BROKER].log.batches[: self.partition.batches]
        return batches[-1].header.next_offset if batches else 0


class State(NamedTuple):
    """The partition's state in ZooKeeper."""

    leader: int
    leader_epoch: int


@dataclass(slots=True, eq=False)
class SmallReplica:
    """The broker's replica; ``partition`` is None while it does not lead."""

    log: SmallLog
    partition: Role | None = None


@dataclass(slots=True, eq=False)
class SmallPartition:
    """The partition and its checker in one: it knows the committed batches.

    Attributes:
        batches: how many batches are committed.
        committed: their records.
    """

    world: Any
    brokers: dict[int, SmallReplica]
    state_now: State = field(default_factory=lambda: State(_NO_LEADER, 0))
    at: Any = AT
    batches: int = 0
    committed: list[RecordName] = field(default_factory=list[RecordName])


@dataclass(slots=True, eq=False)
class SmallBroker:
    """The broker: it takes appends, and keeps the tokens of those in flight.

    Attributes:
        waiting: whose append it is, by the base offset of the batch.
        refuses: whether the next append is refused (NOT_ENOUGH_REPLICAS).
    """

    world: SmallWorld
    log: SmallLog
    broker_id: int = BROKER
    incarnation: int = 1
    is_running: bool = True
    waiting: dict[int, object] = field(default_factory=dict[int, object])
    refuses: bool = False

    @property
    def core(self) -> SmallBroker:
        """The part that takes produces."""
        return self

    def produce(self, request: ProduceRequest, token: object, now_ms: int) -> tuple[object, ...]:
        """Append a batch of a coordinator."""
        del now_ms
        world, (item,) = self.world, request.partitions
        role = world.replica.partition
        error = ErrorCode.NONE if role is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.refuses:
            self.refuses, error = False, ErrorCode.NOT_ENOUGH_REPLICAS
        if error is not ErrorCode.NONE or role is None:
            world.produced(token, error)
            return ()
        header = header_of(bytes(item.records)).at(self.log.log_end_offset, role.leader_epoch)
        self.log.batches.append(Batch(header, patched(bytes(item.records), header)))
        if request.acks:
            self.waiting[header.base_offset] = token
        return ()

    def execute(self, effects: Sequence[object]) -> None:
        """Carry out nothing: there is nothing left to do."""


class SmallWorld:
    """The cluster; ``coordinators`` is set by the shell that runs on it."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.paused: set[int] = set()
        self.coordinators: Any = None
        log = SmallLog()
        self.replica = SmallReplica(log)
        self.partition = SmallPartition(self, {BROKER: self.replica})
        self.partition.world = self.partition
        self.partitions = [self.partition]
        self.broker = SmallBroker(self, log)
        self.brokers = {BROKER: self.broker}

    def is_up(self, broker_id: int) -> bool:
        """Return whether the broker's process runs."""
        return self.brokers[broker_id].is_running

    def produced(self, token: object, error: ErrorCode, base_offset: int = -1) -> None:
        """Report what became of an append."""
        result = ProduceResult(self.partition.at, error, base_offset=base_offset)
        self.coordinators.produced(self.broker, token, [result])

    # Events of the partition

    @property
    def state_now(self) -> State:
        """The state in ZooKeeper."""
        return self.partition.state_now

    @property
    def leads(self) -> bool:
        """Whether the broker leads."""
        return self.broker.is_running and self.replica.partition is not None

    @property
    def uncommitted(self) -> int:
        """How many batches are not committed yet."""
        return len(self.replica.log.batches) - self.partition.batches

    def commit(self) -> None:
        """Commit the next batch."""
        header = self.replica.log.batches[self.partition.batches].header
        self.partition.batches += 1
        self.partition.committed += [
            RecordName(header.leader_epoch, header.crc, place) for place in range(header.record_count)
        ]
        token = self.broker.waiting.pop(header.base_offset, None)
        if token is not None:
            self.produced(token, ErrorCode.NONE, header.base_offset)

    def time_out(self) -> None:
        """Let the oldest append that is waited for time out; its batch stays in the log."""
        base_offset = min(self.broker.waiting)
        self.produced(self.broker.waiting.pop(base_offset), ErrorCode.REQUEST_TIMED_OUT)

    def die(self, kept: int) -> None:
        """End the process; ``kept`` uncommitted batches have reached the next leader."""
        self.broker.is_running = self.broker.refuses = False
        self.broker.waiting.clear()
        self._lose_leadership(kept)

    def resign(self, kept: int) -> None:
        """Let another broker lead, while the process lives on."""
        waiting, self.broker.waiting = self.broker.waiting, {}
        self.broker.refuses = False
        self._lose_leadership(kept)
        for token in waiting.values():
            self.produced(token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.coordinators.leadership_changed(
            self.broker,
            LeadershipChanged(self.partition.at, leads=False, leader_epoch=self.partition.state_now.leader_epoch),
        )

    def _lose_leadership(self, kept: int) -> None:
        del self.replica.log.batches[self.partition.batches + kept :]
        self.replica.partition = None
        self.partition.state_now = State(_NO_LEADER, self.partition.state_now.leader_epoch + 1)

    def refuse(self) -> None:
        """Have the next append refused."""
        self.broker.refuses = True

    def elect(self) -> None:
        """Let the broker lead in a new epoch; a process that has ended begins again."""
        if not self.broker.is_running:
            self.broker.is_running = True
            self.broker.incarnation += 1
        epoch = self.partition.state_now.leader_epoch + 1
        self.replica.partition = Role(epoch, self.partition)
        self.partition.state_now = State(BROKER, epoch)
        self.coordinators.leadership_changed(
            self.broker, LeadershipChanged(self.partition.at, leads=True, leader_epoch=epoch)
        )


EVENTS: dict[str, Callable[..., None]] = {
    "commit": SmallWorld.commit,
    "die": SmallWorld.die,
    "elect": SmallWorld.elect,
    "refuse": SmallWorld.refuse,
    "resign": SmallWorld.resign,
    "time out": SmallWorld.time_out,
}
"""Events of the world, by name."""
