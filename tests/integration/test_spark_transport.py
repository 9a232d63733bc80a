"""The Spark source's transport against gRPC servers of this process that fail in every way a broker can.

Each server is a broker with its own view of the leaders. Tested here: leader changes, dead, paused and freshly
started brokers and old leaders are ridden out; what can't be ridden out ends in one sentence.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import patch, read_header
from tidegauge.v1 import broker_service_pb2_grpc, common_pb2, fetch_pb2, metadata_pb2, offsets_pb2
from tidegauge_spark.cluster_metadata import PartitionLeader
from tidegauge_spark.decode import ArrowDecoder
from tidegauge_spark.offsets import EARLIEST, LATEST
from tidegauge_spark.options import ConnectionOptions, Options, Subscription, parse_options
from tidegauge_spark.planner import OffsetRange
from tidegauge_spark.source import (
    GroupPartition,
    RangePartition,
    TidegaugeDataSource,
    TidegaugeStreamReader,
)
from tidegauge_spark.transport import ClusterClient

pytestmark = pytest.mark.integration

ZERO = TopicPartition("orders", 0)
TOPIC_ID = "A" * 22


def batch(base_offset: int, count: int, leader_epoch: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for index in range(count):
        assert builder.append(index, 1_700_000_000_000, b"k", b"v%d" % (base_offset + index), []) is not None
    buffer = bytearray(builder.build())
    patch(buffer, 0, base_offset, leader_epoch)
    return bytes(buffer)


class Broker(broker_service_pb2_grpc.BrokerServiceServicer):
    """One broker: a log of batches, a high watermark, a view of the leader, and ways to misbehave."""

    def __init__(self, broker_id: int, cluster: Cluster) -> None:
        self.id = broker_id
        self.cluster = cluster
        self.leader_id: int | None = 0
        self.leader_epoch = 0
        self.topic_id = TOPIC_ID
        self.knows_topic = True
        self.log: list[bytes] = []
        self.high_watermark = 0
        self.log_start = 0
        self.calls: list[str] = []
        self.before_fetch: Callable[[int], None] = lambda _: None
        self._executor = ThreadPoolExecutor(4)
        self._server: grpc.Server | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        self._server = grpc.server(self._executor, options=[("grpc.so_reuseport", 0)])
        broker_service_pb2_grpc.add_BrokerServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.stop(None).wait()

    def close(self) -> None:
        self.stop()
        self._executor.shutdown(wait=True)

    def append(self, count: int) -> None:
        end = self.end
        self.log.append(batch(end, count, self.leader_epoch))
        self.high_watermark = end + count

    @property
    def end(self) -> int:
        return read_header(self.log[-1]).next_offset if self.log else 0

    def Metadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls.append("metadata")
        response = metadata_pb2.MetadataResponse(
            brokers=[
                common_pb2.BrokerEndpoint(broker_id=broker.id, host="127.0.0.1", port=broker.port)
                for broker in self.cluster.brokers
            ]
        )
        if self.knows_topic and (request.all_topics or "orders" in request.topics):
            partition = metadata_pb2.PartitionMetadata(
                partition=0, leader_id=self.leader_id, leader_epoch=self.leader_epoch
            )
            topic = metadata_pb2.TopicMetadata(name="orders", topic_id=self.topic_id, partitions=[partition])
            response.topics.append(topic)
        for name in set(request.topics) - ({"orders"} if self.knows_topic else set()):
            response.topics.append(metadata_pb2.TopicMetadata(error=3, name=name))  # type: ignore[arg-type]
        return response

    def _refusal(self, epoch: int) -> int:
        if not self.knows_topic:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if epoch > self.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE if self.leader_id == self.id else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def ListOffsets(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls.append("list_offsets")
        (asked,) = request.partitions
        result = offsets_pb2.ListOffsetsResult(topic="orders", partition=0)
        result.error = self._refusal(asked.current_leader_epoch)  # type: ignore[assignment]
        if not result.error:
            result.offset = self.log_start if asked.timestamp_ms == EARLIEST else self.high_watermark
        return offsets_pb2.ListOffsetsResponse(partitions=[result])

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Largest epoch of the log not above the one asked for, and its end (LeaderEpochFileCache.endOffsetFor)."""
        headers = [read_header(one) for one in self.log]
        epochs = [header.leader_epoch for header in headers if header.leader_epoch <= epoch]
        later = [header.base_offset for header in headers if header.leader_epoch > epoch]
        return max(epochs, default=epoch), min(later, default=self.end)

    def OffsetsForLeaderEpoch(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls.append("offsets_for_leader_epoch")
        (asked,) = request.partitions
        result = offsets_pb2.OffsetForLeaderEpochResult(topic="orders", partition=0)
        result.error = self._refusal(asked.current_leader_epoch)  # type: ignore[assignment]
        if not result.error:
            result.end.leader_epoch, result.end.end_offset = self.epoch_end(asked.leader_epoch)
        return offsets_pb2.OffsetsForLeaderEpochResponse(partitions=[result])

    def Fetch(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls.append("fetch")
        (asked,) = request.partitions
        self.before_fetch(asked.fetch_offset)
        result = fetch_pb2.FetchPartitionResult(topic="orders", partition=0)
        result.error = self._refusal(asked.current_leader_epoch)  # type: ignore[assignment]
        if not result.error and not self.log_start <= asked.fetch_offset <= self.end:
            result.error = ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[assignment]
        if not result.error and asked.HasField("last_fetched_epoch"):
            epoch, end = self.epoch_end(asked.last_fetched_epoch)
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                result.diverging_epoch.leader_epoch, result.diverging_epoch.end_offset = epoch, end
                return fetch_pb2.FetchResponse(partitions=[result])
        if not result.error:
            result.high_watermark = self.high_watermark
            for one in self.log:
                header = read_header(one)
                if asked.fetch_offset < header.next_offset <= self.high_watermark:
                    result.records = one
                    break
        return fetch_pb2.FetchResponse(partitions=[result])


class Cluster:
    """Brokers 0, 1, 2 of one partition; at first broker 0 leads with epoch 0."""

    def __init__(self) -> None:
        self.brokers: list[Broker] = []
        for broker_id in range(3):
            self.brokers.append(Broker(broker_id, self))
        self.clients: list[ClusterClient] = []

    def append(self, count: int) -> None:
        for broker in self.brokers:
            broker.append(count)

    def elect(self, leader_id: int | None, *, except_for: tuple[int, ...] = ()) -> None:
        epoch = max(broker.leader_epoch for broker in self.brokers) + 1
        for broker in self.brokers:
            if broker.id not in except_for:
                broker.leader_id, broker.leader_epoch = leader_id, epoch

    def options(self, *, timeout_ms: int = 20_000, **more: str) -> Options:
        given = {
            "kafka.bootstrap.servers": ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers),
            "subscribe": "orders",
            "kafka.request.timeout.ms": "2000",
            "kafka.retry.backoff.ms": "10",
            "kafka.default.api.timeout.ms": str(timeout_ms),
            "kafkaConsumer.pollTimeoutMs": str(timeout_ms),
        }
        return parse_options(given | more, streaming=True)

    def client(self, options: ConnectionOptions | None = None) -> ClusterClient:
        self.clients.append(ClusterClient(options or self.options().connection))
        return self.clients[-1]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for broker in self.brokers:
            broker.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    one = Cluster()
    yield one
    one.close()


def read(cluster: Cluster, from_offset: int, until_offset: int, options: Options | None = None) -> list[int]:
    """The offsets that a task gives for a range that was planned while all was well."""
    options = options or cluster.options()
    partition = RangePartition(OffsetRange(ZERO, from_offset, until_offset), 0, 0, TOPIC_ID)
    client = cluster.client(options.connection)
    return [row for arrow in partition.read(options, client) for row in arrow.column("offset").to_pylist()]


def test_partitions_and_offsets(cluster: Cluster) -> None:
    cluster.append(7)
    client = cluster.client()
    assert client.partitions(Subscription(topics=("orders",))) == {ZERO: PartitionLeader(0, 0, TOPIC_ID)}
    assert client.partitions(Subscription(pattern="ord.*")).keys() == {ZERO}
    assert client.partitions(Subscription(pattern="rder")).keys() == {ZERO}, "found anywhere, as Regex.findFirstIn does"
    assert client.partitions(Subscription(pattern="^rder")) == {}
    assert client.partitions(Subscription(assigned=(ZERO,))).keys() == {ZERO}
    assert client.offsets({ZERO: EARLIEST}) == {ZERO: 0}
    assert client.offsets({ZERO: LATEST}) == {ZERO: 7}


def test_a_dead_leader_is_followed_by_its_successor(cluster: Cluster) -> None:
    """Killed in mid-read: the rest comes from the new leader, each record once."""
    for _ in range(4):
        cluster.append(5)

    def die(offset: int) -> None:
        if offset == 10:
            cluster.elect(1)

    cluster.brokers[0].before_fetch = die
    assert read(cluster, 2, 18) == list(range(2, 18))
    assert "fetch" in cluster.brokers[1].calls


def test_a_refused_connection_leads_to_another_broker(cluster: Cluster) -> None:
    cluster.append(5)
    options = cluster.options()
    cluster.brokers[0].stop()
    cluster.elect(2)
    assert read(cluster, 0, 5, options) == list(range(5))
    client = cluster.client(options.connection)
    assert client.offsets({ZERO: LATEST}) == {ZERO: 5}


def test_a_frozen_leader_costs_a_deadline(cluster: Cluster) -> None:
    """A SIGSTOPped process accepts (its kernel does) and never responds."""
    cluster.append(5)
    frozen = cluster.brokers[0]
    frozen.stop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        frozen.port = silent.getsockname()[1]
        options = cluster.options()
        cluster.elect(1, except_for=(0,))
        assert read(cluster, 0, 5, options) == list(range(5))
        client = cluster.client(options.connection)
        assert client.offsets({ZERO: LATEST}) == {ZERO: 5}


def test_no_leader_for_a_while(cluster: Cluster) -> None:
    cluster.append(5)
    cluster.elect(None)
    asked: list[str] = []

    class Counting(list[str]):
        def append(self, call: str) -> None:
            asked.append(call)
            if len(asked) == 6:
                cluster.elect(2)

    for broker in cluster.brokers:
        broker.calls = Counting()
    assert read(cluster, 0, 5) == list(range(5))


def test_an_old_leaders_view_does_not_count(cluster: Cluster) -> None:
    """KIP-320: broker 0 is partitioned, considers itself leader and has less; it is fenced by the known epoch."""
    cluster.append(5)
    cluster.elect(1, except_for=(0,))
    for broker in cluster.brokers[1:]:
        broker.append(5)
    client = cluster.client()
    client.partitions(Subscription(topics=("orders",)))
    client.partitions(Subscription(topics=("orders",)))
    for _ in range(4):
        client.partitions(Subscription(topics=("orders",)))
        assert client.leader(ZERO) == PartitionLeader(1, 1, TOPIC_ID)
        assert client.offsets({ZERO: LATEST}) == {ZERO: 10}
    assert cluster.brokers[0].calls.count("metadata") >= 2


def test_a_high_watermark_that_lags_after_an_election_is_waited_for(cluster: Cluster) -> None:
    """The new leader has the records, but learns of the high watermark only later."""
    cluster.append(5)
    cluster.append(5)
    heir = cluster.brokers[1]
    heir.high_watermark = 5
    cluster.elect(1)
    fetches: list[int] = []

    def rise(offset: int) -> None:
        fetches.append(offset)
        if fetches.count(5) == 3:
            heir.high_watermark = 10

    heir.before_fetch = rise
    assert read(cluster, 0, 10) == list(range(10))


def test_a_task_reads_several_small_ranges_in_turn(cluster: Cluster, make_reader: MakeReader) -> None:
    cluster.append(5)
    cluster.append(5)
    pieces = [RangePartition(OffsetRange(ZERO, *ends), 0, 0, TOPIC_ID) for ends in ((0, 3), (4, 9))]
    batches = make_reader().read(GroupPartition(pieces))
    assert [row for arrow in batches for row in arrow.column("offset").to_pylist()] == [0, 1, 2, 4, 5, 6, 7, 8]


def test_nothing_at_or_above_the_end_is_given(cluster: Cluster) -> None:
    cluster.append(10)
    assert read(cluster, 3, 7) == [3, 4, 5, 6]


def test_a_broker_that_has_just_started_knows_no_topic(cluster: Cluster) -> None:
    cluster.append(5)
    cluster.brokers[0].knows_topic = False
    cluster.elect(1)
    client = cluster.client()
    for _ in range(3):
        assert client.partitions(Subscription(topics=("orders",))).keys() == {ZERO}


def test_an_unknown_topic_is_said_so(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge_spark.transport.UNKNOWN_TOPIC_PATIENCE_S", 0.1)
    with pytest.raises(TidegaugeError, match="does not host nosuch: no broker knows it") as caught:
        cluster.client().partitions(Subscription(topics=("nosuch",)))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(TidegaugeError, match="orders-5"):
        cluster.client().partitions(Subscription(assigned=(TopicPartition("orders", 5),)))


@pytest.mark.long
def test_time_over_is_said_with_the_last_reason(cluster: Cluster) -> None:
    cluster.append(5)
    options = cluster.options(timeout_ms=3_000)
    cluster.elect(None)
    with pytest.raises(
        TidegaugeError,
        match=r"Could not read orders-0 within 3000 ms; at last: orders-0 has no leader.*Start the query",
    ):
        read(cluster, 0, 5, options)
    cluster.elect(0)
    frozen = threading.Event()
    cluster.brokers[0].before_fetch = lambda _: frozen.wait(20) and None
    slow = options._replace(connection=options.connection._replace(request_timeout_ms=700))
    with pytest.raises(TidegaugeError, match=r"did not respond in time \(kafka.request.timeout.ms is 700\)"):
        read(cluster, 0, 5, slow)
    frozen.set()
    for broker in cluster.brokers:
        broker.stop()
    with pytest.raises(TidegaugeError, match=r"no broker responded at 127\.0\.0\.1:"):
        cluster.client(options.connection).partitions(Subscription(topics=("orders",)))


def test_lost_records_fail_the_task_or_are_skipped(cluster: Cluster) -> None:
    """failOnDataLoss: true names the loss; false goes on at the log start, or ends where the log ends."""
    cluster.append(5)
    cluster.append(5)
    broker = cluster.brokers[0]
    broker.log_start = 5
    with pytest.raises(TidegaugeError, match=r"Cannot read orders-0 at offset 0 of 10.*failOnDataLoss"):
        read(cluster, 0, 10)
    lenient = cluster.options(failOnDataLoss="false")
    assert read(cluster, 0, 10, lenient) == [5, 6, 7, 8, 9]
    assert read(cluster, 11, 20, lenient) == []


def test_a_topic_created_again_is_not_mistaken_for_the_old_one(cluster: Cluster) -> None:
    cluster.append(5)
    for broker in cluster.brokers:
        broker.topic_id = "B" * 22
    with pytest.raises(TidegaugeError, match="deleted and created again"):
        read(cluster, 0, 5)


def test_the_next_offset_moves_by_what_was_decoded(cluster: Cluster) -> None:
    cluster.append(3)
    cluster.append(3)
    decoder = ArrowDecoder(ZERO, 0, 6)
    positions = []
    for fetched in cluster.client().fetch(ZERO, PartitionLeader(0, 0, TOPIC_ID), lambda: decoder.next_offset):
        list(decoder.decode(fetched.records))
        positions.append(decoder.next_offset)
        if decoder.done:
            break
    assert positions == [3, 6]


def elect_uncleanly(cluster: Cluster, leader_id: int, *, kept: int, new: int) -> None:
    """A broker that has only the first batches leads, and takes batches of five records."""
    cluster.elect(leader_id)
    heir = cluster.brokers[leader_id]
    heir.log = heir.log[:kept]
    for _ in range(new):
        heir.append(5)
    heir.high_watermark = heir.end


def test_an_unclean_election_in_mid_read_is_found_by_epoch(cluster: Cluster) -> None:
    """KIP-320: the new leader has offset 10 too, but 5..9 are not the records that were read."""
    for _ in range(4):
        cluster.append(5)
    once = [True]

    def die(offset: int) -> None:
        if offset == 10 and once.pop():
            elect_uncleanly(cluster, 1, kept=1, new=4)

    cluster.brokers[0].before_fetch = die
    with pytest.raises(TidegaugeError, match=r"Log truncation detected for partition orders-0 at offset 10.*offset 5"):
        read(cluster, 0, 20)


def test_an_unclean_election_in_mid_read_may_be_ignored(cluster: Cluster) -> None:
    """failOnDataLoss=false: reading goes on at the same offset."""
    for _ in range(4):
        cluster.append(5)
    cluster.brokers[0].before_fetch = lambda offset: (
        elect_uncleanly(cluster, 1, kept=1, new=4) if offset == 10 and cluster.brokers[0].leader_epoch == 0 else None
    )
    assert read(cluster, 0, 20, cluster.options(failOnDataLoss="false")) == list(range(20))


@pytest.fixture
def make_reader(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TidegaugeStreamReader]:
    """Stream readers whose planner runs in this process, as after a start of the query."""

    def make(**more: str) -> TidegaugeStreamReader:
        options = cluster.options(**{"fetchOffset.retryIntervalMs": "1", **more})
        client = cluster.client(options.connection)
        monkeypatch.setattr("tidegauge_spark.source._client", lambda _: client)
        return TidegaugeStreamReader(options)

    return make


MakeReader = Callable[..., TidegaugeStreamReader]
ALL = ReadAllAvailable()
START = {"orders": {"0": 0}}
ID = {"orders": TOPIC_ID}
OTHER_ID = "B" * 22


def test_a_query_stores_the_epoch_of_its_last_record(cluster: Cluster, make_reader: MakeReader) -> None:
    cluster.append(5)
    reader = make_reader(startingOffsets="earliest")
    assert reader.initialOffset() == START | {"__topic_ids": ID}
    first = reader.latestOffset(START, ALL)
    assert first == {"orders": {"0": 5}, "__epochs": {"orders": {"0": 0}}, "__topic_ids": ID}
    cluster.elect(2)
    assert reader.latestOffset(first, ALL) == first, "a change of leader alone begins no batch"
    cluster.append(3)
    assert reader.latestOffset(first, ALL) == {
        "orders": {"0": 8},
        "__epochs": {"orders": {"0": 1}},
        "__topic_ids": ID,
    }
    (task,) = reader.partitions(first, reader.latestOffset(first, ALL))
    assert (task.offsets, task.last_epoch) == (OffsetRange(ZERO, 5, 8), 0)


def test_truncation_behind_a_restarted_query_is_found_by_epoch(cluster: Cluster, make_reader: MakeReader) -> None:
    """Kafka's own source sees nothing: the new log is longer than the part read."""
    cluster.append(5)
    cluster.append(5)
    stored = make_reader().latestOffset(START, ALL)
    elect_uncleanly(cluster, 1, kept=1, new=5)
    with pytest.raises(TidegaugeError, match=r"Log truncation detected .*up to offset 10.*differs from offset 5 on"):
        make_reader().latestOffset(stored, ALL)
    with pytest.raises(TidegaugeError, match="Log truncation detected"):
        make_reader().partitions(START, stored)
    lenient = make_reader(failOnDataLoss="false")
    assert lenient.latestOffset(stored, ALL)["orders"] == {"0": 30}


def make_again(cluster: Cluster, *brokers: int, batches: int = 1) -> None:
    """The topic is deleted and created again; its log begins at 0, under the same leader epoch."""
    for index in brokers or range(3):
        broker = cluster.brokers[index]
        broker.topic_id, broker.log, broker.high_watermark = OTHER_ID, [], 0
        for _ in range(batches):
            broker.append(5)


@pytest.mark.parametrize("restarted", [True, False])
def test_a_topic_created_again_behind_the_reader_is_data_loss(
    cluster: Cluster, make_reader: MakeReader, restarted: bool
) -> None:
    """Neither offsets nor epochs tell: the new log is longer, its epoch the same."""
    cluster.append(5)
    reader = make_reader()
    stored = reader.latestOffset(START, ALL)
    reader.latestOffset(stored, ALL)
    make_again(cluster, batches=2)
    with pytest.raises(
        TidegaugeError, match=r"Topic orders was deleted and created again since .* offset 5 of orders-0"
    ):
        (make_reader() if restarted else reader).latestOffset(stored, ALL)
    lenient = make_reader(failOnDataLoss="false", maxOffsetsPerTrigger="7", minOffsetsPerTrigger="7")
    end = lenient.latestOffset(stored, lenient.getDefaultReadLimit())
    assert end == {"orders": {"0": 7}, "__epochs": {"orders": {"0": 0}}, "__topic_ids": {"orders": OTHER_ID}}
    (task,) = lenient.partitions(stored, end)
    assert (task.offsets, task.topic_id, task.last_epoch) == (OffsetRange(ZERO, 0, 7), OTHER_ID, -1)
    assert lenient.latestOffset(end, ALL)["orders"] == {"0": 10}


def test_available_now_ends_where_the_new_topic_ends(cluster: Cluster, make_reader: MakeReader) -> None:
    cluster.append(5)
    cluster.append(5)
    reader = make_reader(failOnDataLoss="false")
    stored = reader.latestOffset(START, ALL)
    reader.prepareForTriggerAvailableNow()
    make_again(cluster)
    assert reader.latestOffset(stored, ALL)["orders"] == {"0": 5}


def test_no_reader_waits_for_more_records_once_a_topic_is_created_again(
    cluster: Cluster, make_reader: MakeReader
) -> None:
    """The loss is reported once, with the batch that begins the new topic, whatever minOffsetsPerTrigger says."""
    cluster.append(5)
    reader = make_reader(failOnDataLoss="false", minOffsetsPerTrigger="99")
    limit = reader.getDefaultReadLimit()
    stored = reader.latestOffset(START, limit)
    cluster.append(5)
    assert reader.latestOffset(stored, limit) == stored
    make_again(cluster)
    assert reader.latestOffset(stored, limit)["__topic_ids"] == {"orders": OTHER_ID}


def test_a_planned_batch_of_a_topic_that_was_created_again_is_empty(cluster: Cluster, make_reader: MakeReader) -> None:
    """A restarted query runs its last batch again; of the old topic nothing is left, of the new one nothing is its."""
    cluster.append(5)
    stored = make_reader().latestOffset(START, ALL)
    make_again(cluster)
    with pytest.raises(TidegaugeError, match="created again since it was read up to offset 5"):
        make_reader().partitions(START, stored)
    assert make_reader(failOnDataLoss="false").partitions(START, stored) == []


def test_one_broker_that_knows_an_older_topic_is_outvoted(cluster: Cluster, make_reader: MakeReader) -> None:
    """A formerly partitioned broker serves old metadata for a while: that makes no query read everything again."""
    cluster.append(5)
    make_again(cluster, 1, 2)
    cluster.elect(1)
    reader = make_reader()
    stored = {"orders": {"0": 5}, "__epochs": {"orders": {"0": 0}}, "__topic_ids": {"orders": OTHER_ID}}
    for _ in range(4):
        assert reader.latestOffset(stored, ALL) == stored
        assert reader.partitions(stored, stored) == []


def test_a_checkpoint_without_topic_ids_begins_no_batch(cluster: Cluster, make_reader: MakeReader) -> None:
    """Old checkpoints have no topic ids: the next records bring them."""
    cluster.append(5)
    stored = {"orders": {"0": 5}, "__epochs": {"orders": {"0": 0}}}
    assert make_reader().latestOffset(stored, ALL) == stored
    cluster.append(2)
    assert make_reader().latestOffset(stored, ALL)["__topic_ids"] == ID


def test_a_shorter_log_is_data_loss(cluster: Cluster, make_reader: MakeReader) -> None:
    cluster.append(5)
    cluster.append(5)
    stored = make_reader().latestOffset(START, ALL)
    elect_uncleanly(cluster, 1, kept=1, new=0)
    with pytest.raises(TidegaugeError, match="Log truncation detected"):
        make_reader().latestOffset(stored, ALL)
    (task,) = make_reader(failOnDataLoss="false").partitions(START, stored)
    assert task.offsets == OffsetRange(ZERO, 0, 5), "nobody waits for what will never come"


@pytest.mark.parametrize("with_epochs", [True, False])
def test_a_new_leaders_lagging_high_watermark_is_waited_for(
    cluster: Cluster, make_reader: MakeReader, with_epochs: bool
) -> None:
    """The new leader's high watermark is below the old one's for a moment; no data loss, no batch."""
    cluster.append(5)
    cluster.append(5)
    reader = make_reader()
    stored = reader.latestOffset(START, ALL)
    if not with_epochs:
        stored.pop("__epochs")
    cluster.elect(1)
    cluster.brokers[1].high_watermark = 5
    assert reader.latestOffset(stored, ALL) == stored
    frozen = make_reader()
    frozen.prepareForTriggerAvailableNow()
    assert frozen.latestOffset(stored, ALL) == stored


def test_wrong_options_are_reported_in_load() -> None:
    """As early as Spark's own source tells them; what only a batch, or only a stream, may have is no mistake there."""
    fine = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
    for more in ({}, {"startingOffsets": "latest"}, {"endingOffsets": "latest"}):
        assert "headers" not in TidegaugeDataSource(fine | more).schema().names
    assert TidegaugeDataSource(fine | {"includeHeaders": "TRUE"}).schema().names[-1] == "headers"
    with pytest.raises(TidegaugeError, match="One of the following options must be specified for Kafka source"):
        TidegaugeDataSource({"kafka.bootstrap.servers": "127.0.0.1:1"}).schema()
    with pytest.raises(TidegaugeError, match="starting offset can't be latest for batch queries"):
        TidegaugeDataSource(fine | {"startingOffsets": "latest", "endingOffsets": "latest"}).schema()


def test_limits_of_a_trigger(cluster: Cluster, make_reader: MakeReader) -> None:
    """Both limits at once; Trigger.Once (ReadAllAvailable) knows none."""
    for _ in range(4):
        cluster.append(5)
    reader = make_reader(maxOffsetsPerTrigger="8", minOffsetsPerTrigger="7", maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(START, limit)
    assert first["orders"] == {"0": 8}
    second = reader.latestOffset(first, limit)
    assert second["orders"] == {"0": 16}
    assert reader.latestOffset(second, limit) == second, "four records are too few"
    assert reader.latestOffset(second, ALL)["orders"] == {"0": 20}
    assert reader.reportLatestOffset() == {"orders": {"0": 20}}
    assert isinstance(make_reader(minOffsetsPerTrigger="7").getDefaultReadLimit(), ReadMinRows)
