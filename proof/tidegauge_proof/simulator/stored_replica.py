"""One replica on a broker's disk, with its faults there.

A replica outlives the broker's process. Three things can go wrong with it: its log directory fails (every write in the
directory does, from then on), one batch becomes unreadable, or the code that writes its log meets a defect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import EpochEntry
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.roles import Role
from tidegauge_proof.simulator.memory_log import MemoryLog

if TYPE_CHECKING:
    from tidegauge_proof.simulator.memory_broker import MemoryBroker

_OFFLINE = Role.OFFLINE  # a member of an enumeration takes long to look up, and this is asked after every event


class StoredReplica:
    """One replica on one broker.

    Attributes:
        directory: the number of the broker's log directory that holds it.
        log: its log.
        checkpoint: the high watermark that a new process finds.
        flushed: the end offset of the flushed part, which survives a power loss.
        flushed_epochs: the leader epochs that are.
        reported: the end offset that it has reported to its leaders by its requests.
        given: the end offset of what it has given to others as a leader.
        former_epoch: the newest leader epoch that the files knew when the last process ended without a clean shutdown.
        damaged: the offset of the batch that no read gets past; None where all can be read.
        writes_left: writes before a defect strikes; None without a defect.
        is_struck: whether one has struck in this process.
        led_epoch: the epoch of the leadership that this process's coordinators were notified of; None if they know
            of none.
    """

    __slots__ = (
        "at",
        "broker",
        "broker_id",
        "checkpoint",
        "damaged",
        "directory",
        "flushed",
        "flushed_epochs",
        "former_epoch",
        "given",
        "is_struck",
        "led_epoch",
        "log",
        "reported",
        "writes_left",
    )

    def __init__(self, broker: MemoryBroker, at: TopicPartition, directory: int) -> None:
        self.broker = broker
        self.broker_id = broker.broker_id
        self.at = at
        self.directory = directory
        self.log = MemoryLog()
        self.checkpoint = 0
        self.flushed = 0
        self.flushed_epochs: list[EpochEntry] = []
        self.reported = 0
        self.given = 0
        self.former_epoch = -1
        self.damaged: int | None = None
        self.writes_left: int | None = None
        self.is_struck = False
        self.led_epoch: int | None = None

    @property
    def incarnation(self) -> int:
        """The number of the broker's process."""
        return self.broker.incarnation

    @property
    def core(self) -> Any:
        """The broker's core."""
        return self.broker.core

    @property
    def partition(self) -> Partition | None:
        """The core's replica; None if there is none, or it is offline."""
        broker = self.broker
        if not broker.is_running:
            return None
        partition = broker.core.hosted.by_name.get(self.at)
        return None if partition is None or partition.role is _OFFLINE else partition

    @property
    def leads(self) -> bool:
        """Whether the core leads the partition, as far as it knows."""
        broker = self.broker
        if not broker.is_running:
            return False
        partition = broker.core.hosted.by_name.get(self.at)
        return partition is not None and partition.leader_role is not None

    @property
    def is_offline(self) -> bool:
        """Whether its directory has failed, or it has, so that this process does not serve it any more."""
        broker = self.broker
        return self.directory in broker.offline_directories or self.at in broker.executor.failed

    def recover(self) -> None:
        """Do what a new process does: keep whole batches, and lower a checkpoint above the log's end.

        Epochs are written before the batches in which they begin, so an append that failed leaves some beyond the end,
        which a new process drops. If nothing failed they stay: a truncation that leaves them is to be found.
        """
        has_failed = self.is_offline
        self.is_struck = False
        self.led_epoch = None
        self.log.recover()
        if has_failed:
            self.log.epochs = [entry for entry in self.log.epochs if entry.start_offset < self.log.log_end_offset]
        self.checkpoint = min(self.checkpoint, self.log.log_end_offset)

    def flush(self) -> None:
        """Put everything on disk for good."""
        self.flushed = self.log.log_end_offset
        self.flushed_epochs = self.log.epochs

    def delete(self) -> None:
        """Delete the log and all that is known of it: the broker has no such replica any more."""
        self.log = MemoryLog()
        self.checkpoint = self.flushed = self.reported = self.given = 0
        self.flushed_epochs = []
        self.former_epoch = -1

    def truncate_to(self, to_offset: int) -> None:
        """Truncate the log, and lower all that is known of its end."""
        self.checkpoint = min(self.checkpoint, to_offset)
        self.log.truncate_to(to_offset)
        self.flushed = min(self.flushed, to_offset)
        self._lower(to_offset)

    def lose_beyond(self, to_offset: int, torn: int = 0) -> None:
        """Lose the records from an offset on and the unflushed epochs, as a power loss does.

        Of the batch at the offset ``torn`` bytes may be left. A new process truncates them, trims epochs that begin at
        or beyond the log's end, and a high watermark beyond it.
        """
        if to_offset < self.log.log_end_offset:
            self.log.lose_beyond(to_offset, torn)
        self._lower(to_offset)
        self.log.epochs = [entry for entry in self.flushed_epochs if entry.start_offset < self.log.log_end_offset]
        self.flush()

    def _lower(self, to_offset: int) -> None:
        self.reported = min(self.reported, to_offset)
        self.given = min(self.given, to_offset)
        if self.damaged is not None and self.damaged >= to_offset:
            self.damaged = None
