"""A broker's log directory as served over Kafka's protocol, byte for byte: records, offsets, transactions.

The same requests go to a broker of either kind, so that what a Tidegauge broker serves of files that an Apache Kafka
broker wrote can be held against the files, or against what Kafka served of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any, NamedTuple

from tests.waiting import until
from tests.wire_responses.probe import Peer, message

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers

FETCH_BYTES = 1 << 20
READ_COMMITTED = 1
_FETCH_VERSION = 12
_IN_PROGRESS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Errors of a broker that has just started."""


class ServedLog(NamedTuple):
    """The result of Fetch for a partition from its log start to its high watermark.

    Attributes:
        records: the bytes of all responses, joined.
        aborted: producer id and first offset of each aborted transaction, as read_committed names them.
        ends: high watermark, last stable offset, log start offset.
    """

    records: bytes
    aborted: list[tuple[int, int]]
    ends: tuple[int, int, int]


class ServingBroker:
    """Asks the broker that listens at a port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, version: int, name: str, **fields: Any) -> Any:
        """Return the response to a request, on a connection of its own."""
        with closing(Peer("127.0.0.1", self._port)) as peer:
            found = peer.ask(version, message(name, **fields))
        assert not isinstance(found, str), f"{name}: {found}"
        return found

    def wait_known(self) -> None:
        """Wait until metadata has the broker and a controller: librdkafka never asks again if there is none."""

        def is_known() -> bool:
            found = self.ask(12, "Metadata", topics=[])
            return bool(found.brokers) and found.controller_id >= 0

        until(is_known, what="the broker's metadata has a broker and a controller")

    def fetch(self, at: TopicPartition, offset: int, *, isolation: int = 0, max_bytes: int = FETCH_BYTES) -> Any:
        """Return what a Fetch says of a partition."""
        partition = {
            "partition": at.partition,
            "fetch_offset": offset,
            "partition_max_bytes": max_bytes,
        }
        response = self.ask(
            _FETCH_VERSION,
            "Fetch",
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=[{"topic": at.topic, "partitions": [partition]}],
        )
        return response.responses[0].partitions[0]

    def log(self, at: TopicPartition, *, isolation: int = 0, max_bytes: int = FETCH_BYTES) -> ServedLog:
        """Return everything that Fetch returns of a partition, response by response."""
        records, aborted, offset = b"", set[tuple[int, int]](), self.offset(at, -2)
        while True:
            found = self.fetch(at, offset, isolation=isolation, max_bytes=max_bytes)
            assert found.error_code == 0, (at, offset, ErrorCode.of(found.error_code))
            aborted |= {(one.producer_id, one.first_offset) for one in found.aborted_transactions or ()}
            part = bytes(found.records or b"")
            if not part:
                ends = (found.high_watermark, found.last_stable_offset, found.log_start_offset)
                return ServedLog(records, sorted(aborted), ends)
            records += part
            offset = [header.next_offset for header in iterate_headers(part)][-1]

    def offset(self, at: TopicPartition, timestamp: int, *, isolation: int = 0) -> int:
        """Return an offset by time: -1 end, -2 log start, -3 largest timestamp."""
        topics = [{"name": at.topic, "partitions": [{"partition_index": at.partition, "timestamp": timestamp}]}]
        response = self.ask(8, "ListOffsets", replica_id=-1, isolation_level=isolation, topics=topics)
        found = response.topics[0].partitions[0]
        assert found.error_code == 0, (at, timestamp, ErrorCode.of(found.error_code))
        return int(found.offset)

    # Responses of its coordinators

    def groups(self) -> list[tuple[str, str, str]]:
        """Return id, protocol type and state of all groups, sorted."""
        response = self._loaded(4, "ListGroups")
        return sorted((one.group_id, one.protocol_type, one.group_state) for one in response.groups)

    def group(self, group_id: str) -> Any:
        """Return a group as DescribeGroups does."""
        return self._loaded(5, "DescribeGroups", groups=[group_id]).groups[0]

    def committed(self, group_id: str, *, stable: bool = False) -> dict[TopicPartition, tuple[int, int, str, int]]:
        """Return offset, leader epoch, metadata and error of all partitions of a group."""
        response = self._loaded(
            8, "OffsetFetch", groups=[{"group_id": group_id, "topics": None}], require_stable=stable
        )
        return {
            TopicPartition(topic.name, one.partition_index): (
                one.committed_offset,
                one.committed_leader_epoch,
                one.metadata,
                one.error_code,
            )
            for topic in response.groups[0].topics
            for one in topic.partitions
        }

    def transactions(self) -> list[tuple[str, int, str]]:
        """Return transactional id, producer id and state of all transactions, sorted."""
        response = self._loaded(0, "ListTransactions")
        return sorted(
            (one.transactional_id, one.producer_id, one.transaction_state) for one in response.transaction_states
        )

    def transaction(self, transactional_id: str) -> Any:
        """Return a transaction as DescribeTransactions does."""
        return self._loaded(0, "DescribeTransactions", transactional_ids=[transactional_id]).transaction_states[0]

    def producers(self, at: TopicPartition) -> list[Any]:
        """Return a partition's producers as DescribeProducers does, by producer id."""
        response = self.ask(0, "DescribeProducers", topics=[{"name": at.topic, "partition_indexes": [at.partition]}])
        found = response.topics[0].partitions[0]
        assert found.error_code == 0, ErrorCode.of(found.error_code)
        return sorted(found.active_producers, key=lambda one: one.producer_id)

    def _loaded(self, version: int, name: str, **fields: Any) -> Any:
        """Ask until the coordinator has loaded its partition."""
        found: list[Any] = []

        def is_loaded() -> bool:
            found[:] = [self.ask(version, name, **fields)]
            return _IN_PROGRESS.isdisjoint(map(ErrorCode.of, _errors_of(found[0])))

        until(is_loaded, what=f"{name} of a coordinator that has loaded")
        return found[0]


def _errors_of(response: Any) -> Iterable[int]:
    """Yield the errors of a response and of its items."""
    yield getattr(response, "error_code", 0)
    for name in ("groups", "transaction_states"):
        for one in getattr(response, name, ()):
            yield getattr(one, "error_code", 0)
