"""Requests of transactional producers and consumers, made by hand, for ``transaction_script``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.wire_responses.batches import TRANSACTIONAL, batch
from tests.wire_responses.groups import TRANSACTION_KEY, coordinator
from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import fetch, produce

TOPIC, OTHER_TOPIC = "orders", "copies"
ASSIGNMENT = ([0, 1, 2], [1, 2, 0])
"""The replicas of both topics' partitions: broker 0 leads the first, broker 1 the second."""
LEADER, FOLLOWER = 0, 1
"""Of the first partition."""
CONCURRENT_TRANSACTIONS = 51
NOT_YET = (14, 15, 16, CONCURRENT_TRANSACTIONS)
"""Errors of a coordinator that is being elected, or loads, or completes a transaction."""
READ_COMMITTED = 1


def create(probe: Probe) -> None:
    """Create the topics."""
    for name in (TOPIC, OTHER_TOPIC):
        replicas = [{"partition_index": at, "broker_ids": ids} for at, ids in enumerate(ASSIGNMENT)]
        wanted = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": replicas, "configs": []}
        probe.ask(probe.controller, 7, message("CreateTopics", timeout_ms=30_000, topics=[wanted]))
        probe.topic(name)


class Transactional:
    """A transactional id, with the producer id and epoch that it has got.

    Args:
        probe: asks the brokers.
        transactional_id: by which the coordinator is found.
    """

    def __init__(self, probe: Probe, transactional_id: str) -> None:
        self.probe = probe
        self.id = transactional_id
        self.coordinator = coordinator(probe, transactional_id, TRANSACTION_KEY)
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def begin(self, **more: Any) -> None:
        """Get a producer id and an epoch, once the coordinator is there."""
        found = self.probe.again(lambda: self.probe.ask(self.coordinator, 4, self.init(**more)), *NOT_YET)
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch
        self.sequences.clear()

    def init(self, **more: Any) -> Any:
        """Return an InitProducerId request that expects nothing."""
        return message("InitProducerId", **{"transactional_id": self.id, "transaction_timeout_ms": 60_000} | more)

    def expecting(self, producer_id: int | None = None, epoch: int | None = None, **more: Any) -> Any:
        """Return an InitProducerId request with a producer id and an epoch (KIP-360)."""
        mine = self._producer(producer_id, epoch)
        return self.init(producer_id=mine["producer_id"], producer_epoch=mine["producer_epoch"], **more)

    def _producer(self, producer_id: int | None, epoch: int | None) -> dict[str, int]:
        return {
            "producer_id": self.producer_id if producer_id is None else producer_id,
            "producer_epoch": self.epoch if epoch is None else epoch,
        }

    def add(
        self,
        *partitions: tuple[str, int],
        producer_id: int | None = None,
        epoch: int | None = None,
        transactional_id: str | None = None,
    ) -> Any:
        """Return an AddPartitionsToTxn request of a client."""
        mine = self._producer(producer_id, epoch)
        return message(
            "AddPartitionsToTxn",
            v3_and_below_transactional_id=self.id if transactional_id is None else transactional_id,
            v3_and_below_producer_id=mine["producer_id"],
            v3_and_below_producer_epoch=mine["producer_epoch"],
            v3_and_below_topics=_by_topic(partitions),
        )

    def among_brokers(
        self,
        *partitions: tuple[str, int],
        verify_only: bool = True,
        producer_id: int | None = None,
        epoch: int | None = None,
        transactional_id: str | None = None,
    ) -> dict[str, Any]:
        """Return a transaction of an AddPartitionsToTxn request of version 4 or later."""
        name = self.id if transactional_id is None else transactional_id
        more = {"transactional_id": name, "verify_only": verify_only, "topics": _by_topic(partitions)}
        return self._producer(producer_id, epoch) | more

    def add_offsets(self, group: str, producer_id: int | None = None, epoch: int | None = None, **more: Any) -> Any:
        """Return an AddOffsetsToTxn request."""
        fields = {"transactional_id": self.id, "group_id": group} | self._producer(producer_id, epoch) | more
        return message("AddOffsetsToTxn", **fields)

    def commit_offset(self, group: str, offset: int = 3, **more: Any) -> Any:
        """Return a TxnOffsetCommit request for the first partition of a topic."""
        item = {
            "partition_index": more.pop("partition", 0),
            "committed_offset": offset,
            "committed_metadata": more.pop("committed_metadata", ""),
        }
        topics = [{"name": more.pop("topic", TOPIC), "partitions": [item]}]
        mine = self._producer(more.pop("producer_id", None), more.pop("epoch", None))
        fields = {"transactional_id": self.id, "group_id": group, "topics": topics} | mine | more
        return message("TxnOffsetCommit", **fields)

    def end(self, *, commit: bool = True, **more: Any) -> Any:
        """Return an EndTxn request."""
        mine = self._producer(more.pop("producer_id", None), more.pop("epoch", None))
        return message("EndTxn", **{"transactional_id": self.id, "committed": commit} | mine | more)

    def records(self, count: int = 1, sequence: int | None = None, **more: Any) -> bytes:
        """Return a transactional batch."""
        mine = {"producer_id": self.producer_id, "epoch": self.epoch, "attributes": TRANSACTIONAL}
        return batch([b"v"] * count, sequence=sequence or 0, **mine | more)

    def write(self, count: int = 1, at: tuple[str, int] = (TOPIC, 0), sequence: int | None = None, **more: Any) -> Any:
        """Return a Produce request with a batch, by default of the next sequence."""
        if sequence is None:
            sequence = self.sequences.get(at, 0)
            self.sequences[at] = sequence + count
        name = more.pop("transactional_id", self.id)
        return produce(self.records(count, sequence, **more), topic=at[0], partition=at[1], transactional_id=name)

    # Whole steps, each until it has its effect

    def added(self, *partitions: tuple[str, int]) -> None:
        """Add partitions."""
        self._done(3, self.add(*partitions))

    def written(self, count: int = 1, at: tuple[str, int] = (TOPIC, 0)) -> None:
        """Write a batch."""
        leader = ASSIGNMENT[at[1]][0]
        [one] = self.probe.ask(leader, 9, self.write(count, at)).responses[0].partition_responses
        if one.error_code:
            raise RuntimeError(f"{self.id} could not write: {one.error_code}")

    def ended(self, *, commit: bool = True) -> None:
        """End the transaction, and wait until its markers are written."""
        self._done(3, self.end(commit=commit))
        self.completed()

    def completed(self) -> None:
        """Wait until the transaction that has been decided has all its markers."""
        request = message("DescribeTransactions", transactional_ids=[self.id])

        def is_complete() -> bool:
            [found] = self.probe.ask(self.coordinator, 0, request).transaction_states
            return found.transaction_state in {"Empty", "CompleteCommit", "CompleteAbort"}

        self.probe.wait_for(is_complete, f"{self.id} is complete")

    def _done(self, version: int, request: Any) -> None:
        found = self.probe.ask(self.coordinator, version, request)
        if getattr(found, "error_code", 0):
            raise RuntimeError(f"{type(request).__name__} of {self.id}: {found.error_code}")


def _by_topic(partitions: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    names = dict.fromkeys(topic for topic, _ in partitions)
    return [{"name": name, "partitions": [at for topic, at in partitions if topic == name]} for name in names]


def marker(transactional: Transactional, *partitions: tuple[str, int], **more: Any) -> dict[str, Any]:
    """Return a marker of WriteTxnMarkers: a commit by coordinator epoch 0."""
    mine = {"producer_id": transactional.producer_id, "producer_epoch": transactional.epoch}
    topics = [{"name": one["name"], "partition_indexes": one["partitions"]} for one in _by_topic(partitions)]
    return mine | {"transaction_result": True, "topics": topics, "coordinator_epoch": 0} | more


def read(offset: int = 0, level: int = READ_COMMITTED, at: tuple[str, int] = (TOPIC, 0), **more: Any) -> Any:
    """Return a Fetch request of an isolation level."""
    return fetch((at[1],), topic=at[0], offset=offset, isolation_level=level, **more)


def seen(response: Any) -> Any:
    """Return a Fetch response's partitions: offsets, size, aborted transactions."""
    return [
        (
            item.error_code,
            (item.high_watermark, item.last_stable_offset, item.log_start_offset),
            "null" if item.records is None else len(item.records),
            "null" if item.aborted_transactions is None else [one.first_offset for one in item.aborted_transactions],
        )
        for topic in response.responses
        for item in topic.partitions
    ]
