"""What a broker's group coordinator is notified of, in the order in which it happens.

``GroupCoordinator.handle(event, now_ms)`` takes one event at a time and returns effects, which the shell carries out in
their order before the next event. Partitions are those of __consumer_offsets; times are ms of a clock that never goes
back.

The events of a partition: ``Elected``; the effect ``ReadLog``; any number of ``RecordsRead``, in log order;
``LoadCompleted``; requests; ``Resigned``. Loads and unloads run one after the other in the order of their events, as on
the one thread of Kafka's GroupMetadataManager: an election or resignation that arrives during another partition's load
waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupRequest
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import Buffer


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker became the leader of a partition that it did not lead before (GroupCoordinator.onElection).

    A rise of the leader epoch under the same leader is no election: nothing is loaded again.
    """

    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """This broker leads the partition no longer (GroupCoordinator.onResignation).

    Attributes:
        leader_epoch: of the request that made it a follower; None where a StopReplica that deletes carries none.
    """

    partition: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """The next part of a partition's log, asked for with ``ReadLog``: whole batches, in log order."""

    partition: int
    leader_epoch: int
    batches: Buffer


@dataclass(frozen=True, slots=True)
class LoadCompleted:
    """The log was read to its end, or could not be read further: the partition is served with what was read.

    Attributes:
        problem: why the log could not be read to its end; it is logged.
    """

    partition: int
    leader_epoch: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of an ``Append``: its batch is committed, or its append failed or timed out.

    Attributes:
        append_id: that of the effect.
        error: as in the response to a produce of the batch; NONE where the batch is committed.
        base_offset: of the batch in the log; -1 where it was not appended.
    """

    append_id: int
    error: ErrorCode
    base_offset: int


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A client's request. Its response is the effect ``Respond`` with the same token, now or later.

    A parked JoinGroup or SyncGroup that its member repeats never gets a response: the repeat takes its place.

    Attributes:
        token: anything hashable; unique among requests in flight.
        member_uuid: of a JoinGroup: a random UUID in Kafka's form, for the member id that may be made of it.
    """

    token: object
    request: GroupRequest
    member_uuid: str = ""


@dataclass(frozen=True, slots=True)
class PartitionsDeleted:
    """UpdateMetadata reported partitions of user topics as deleted: their offsets go, in every group."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The broker shuts down: from now on every request gets COORDINATOR_NOT_AVAILABLE."""


Event = Elected | Resigned | RecordsRead | LoadCompleted | Appended | RequestArrived | PartitionsDeleted | ShutDown
