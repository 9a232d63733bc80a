"""Synchronous calls to the cluster that survive leader changes, dead and paused brokers.

Contract: ``ClusterClient`` resolves three questions (which partitions, which offsets, which batches) or raises
``TidegaugeError`` after its timeout. In between it asks the next broker, refreshes metadata and backs off.

- Every call has a deadline: a paused broker (SIGSTOP) neither responds nor breaks its connections.
- ``cluster_metadata`` is what is known of leaders, ``broker_channels`` are the connections to them. Fetches and offset
  requests carry the leader epoch, so that a partitioned former leader fences itself (KIP-320).
- A topic is unknown only if every broker that responds says so, for a while: one that has just started knows none.
- A client belongs to the process that made it: gRPC and fork do not mix. Spark forks its Python workers; each makes its
  own client in its first task (``client_for``).

Source: retry rules of ``KafkaConsumer`` and ``OffsetFetcher``; ``tidegauge.errors`` says what is retriable.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import grpc

from tidegauge.errors import ERROR_TABLE, ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge.v1 import fetch_pb2, metadata_pb2, offsets_pb2
from tidegauge_client.metadata import from_response, that_count
from tidegauge_spark.broker_channels import BrokerChannels
from tidegauge_spark.cluster_metadata import ClusterMetadata, PartitionLeader
from tidegauge_spark.epochs import EpochEnd
from tidegauge_spark.options import ConnectionOptions, Subscription
from tidegauge_spark.views import Settled, TopicView, View, settle

METADATA_TIMEOUT_S = 1.0
"""A dead or paused broker costs at most this while another one can respond."""
DEPRIORITISED_S = 5.0
"""How long an unresponsive broker is deprioritised."""
UNKNOWN_TOPIC_PATIENCE_S = 5.0
SETTLE_PATIENCE_S = 5.0
"""How long brokers that do not respond are asked again before those that do respond count alone."""
FETCH_MAX_WAIT_MS = 500
MAX_BACKOFF_S = 1.0

Result = TypeVar("Result")


class LeaderResult(NamedTuple, Generic[Result]):
    """A leader's result for one partition; ``result`` is valid with ``ErrorCode.NONE`` only."""

    topic_partition: TopicPartition
    code: ErrorCode
    message: str
    result: Result


Question = Callable[[int, Mapping[TopicPartition, int]], Iterable[LeaderResult[Result]]]
"""One call to one leader about some partitions."""


class Fetched(NamedTuple):
    """One response; ``records`` (complete batches) is empty if the broker's wait ended without data.

    Attributes:
        bound: the end of what may be read: the high watermark, or with read_committed the last stable offset.
        aborted: first offset and producer id of the aborted transactions that overlap the records; with read_committed
            only.
    """

    records: bytes
    high_watermark: int
    bound: int
    aborted: tuple[tuple[int, int], ...] = ()


class Asked(NamedTuple):
    """A fetch in flight; ``call`` is gRPC's future."""

    offset: int
    last_epoch: int
    leader_id: int
    address: str
    call: Any


class LogTruncatedError(TidegaugeError):
    """The leader's log diverges from what was read: the records before the position are not those that were read."""

    def __init__(self, topic_partition: TopicPartition, offset: int, diverges_at: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Log truncation detected for partition {topic_partition} at offset {offset}: from offset {diverges_at} on "
            "the leader's log differs from what was read (an unclean election, or the topic was created again)",
        )


def _give_up(asked: Asked | str | None) -> None:
    """Cancel a fetch that is no longer needed."""
    if isinstance(asked, Asked):
        asked.call.cancel()


def _end_of(records: bytes) -> tuple[int, int]:
    """Return the offset behind some batches and the leader epoch of the last one; -1 if none can be read."""
    end = (-1, -1)
    with contextlib.suppress(TidegaugeError):  # the decoder reports what is wrong
        for header in iterate_headers(records):
            end = (header.next_offset, header.leader_epoch)
    return end


def _view(response: metadata_pb2.MetadataResponse) -> View:
    return {
        topic.name: TopicView(topic.topic_id, frozenset(one.partition for one in topic.partitions))
        for topic in response.topics
        if ErrorCode.of(topic.error) is ErrorCode.NONE
    }


def _without_other_ids(
    response: metadata_pb2.MetadataResponse, topic_ids: Mapping[str, str]
) -> metadata_pb2.MetadataResponse:
    """Return a response without the topics that have other ids than these: they are deleted."""
    kept = metadata_pb2.MetadataResponse()
    kept.CopyFrom(response)
    del kept.topics[:]
    kept.topics.extend(
        topic
        for topic in response.topics
        if ErrorCode.of(topic.error) is not ErrorCode.NONE or topic.topic_id == topic_ids.get(topic.name)
    )
    return kept


class Patience:
    """How long one request may go on failing, and the back-off in between."""

    def __init__(self, client: ClusterClient, timeout_ms: int, what: str) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._what = what
        self.renew()

    def renew(self) -> None:
        """Start the timeout again after a success."""
        self._started = self._client.monotonic()
        self._pause_s = self._client.options.retry_backoff_ms / 1000

    @property
    def spent_s(self) -> float:
        """Return the time since it began."""
        return self._client.monotonic() - self._started

    def failed(self, reason: str) -> None:
        """Wait after a failure.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, the timeout has passed.
        """
        if self.spent_s >= self._timeout_ms / 1000:
            raise TidegaugeError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Could not {self._what} within {self._timeout_ms} ms; at last: {reason}. Start the query "
                "again once brokers lead and respond (status, describe-topic --unavailable-partitions); a stream "
                "continues from its checkpoint",
            )
        self._client.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, MAX_BACKOFF_S)


class ClusterClient:
    """A client of one process; not to be shared between threads or over a fork."""

    def __init__(
        self,
        options: ConnectionOptions,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self.monotonic = monotonic
        self.sleep = sleep
        self._channels = BrokerChannels(options, monotonic)
        self._metadata = ClusterMetadata()
        self._asked_last = ""

    def close(self) -> None:
        """Close all channels; the client may be used again."""
        self._channels.close()

    # --- which partitions ---

    def partitions(
        self, subscription: Subscription, *, asks_all: bool = False
    ) -> dict[TopicPartition, PartitionLeader]:
        """Return the partitions of a subscription now.

        Args:
            subscription: what is read.
            asks_all: True: all brokers are asked, and the views that count decide (``settle_topics``). False: the
                view of the first broker that knows all topics counts, at the cost of one request. It may be old.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, a topic or an assigned partition does not exist;
                INVALID_TOPIC_EXCEPTION; REQUEST_TIMED_OUT, no broker responded.
        """
        wanted = None if subscription.pattern else {*subscription.topics, *(one.topic for one in subscription.assigned)}
        patience = Patience(self, self.options.api_timeout_ms, f"find the partitions of {subscription}")
        unknown_to = "no broker knows"
        while True:
            known = self._refresh(wanted)
            if known is None:
                patience.failed(
                    f"no broker responded at {', '.join(self.options.bootstrap_servers)}, or none has metadata yet. "
                    "Check that they run, and kafka.bootstrap.servers as Spark's machines see it"
                )
                continue
            if asks_all:
                settled = self.settle_topics(wanted)
                unknown_to = settled.unknown_to
                found = {one: self._metadata.leader(one) for one in settled.partitions}
                known = {one.topic for one in found}
            else:
                found = {one: leader for one, leader in self._metadata.leaders.items() if one.topic in known}
            if subscription.pattern:
                return {one: leader for one, leader in found.items() if subscription.covers(one)}
            missing = [topic for topic in subscription.topics if topic not in known]
            missing += [str(one) for one in subscription.assigned if one not in found]
            if not missing:
                only = subscription.assigned or tuple(found)
                return {one: found[one] for one in only}
            if patience.spent_s >= UNKNOWN_TOPIC_PATIENCE_S:
                raise TidegaugeError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"This server does not host {', '.join(missing)}: {unknown_to} it. Create it first or check "
                    "the name; list-topics shows what there is",
                )
            patience.failed(f"{unknown_to} {', '.join(missing)}")

    def settle_topics(self, topics: Iterable[str] | None) -> Settled:
        """Ask all brokers for topics (None: all there are); accept what the views that count show (``views``).

        While half of the brokers or more do not respond, they are asked again, for ``SETTLE_PATIENCE_S``: those that
        do respond may be the ones with old metadata, a controller of before among them.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no broker that has metadata responded.
        """
        request = metadata_pb2.MetadataRequest(topics=sorted(topics or ()), all_topics=topics is None)
        patience = Patience(self, self.options.api_timeout_ms, "learn from all brokers which partitions there are")
        responses: dict[int, metadata_pb2.MetadataResponse] = {}
        limit_s = min(SETTLE_PATIENCE_S, self.options.api_timeout_ms / 1000)
        while True:
            silent = self._ask_each(request, responses)
            informed = {broker_id: response for broker_id, response in responses.items() if response.brokers}
            if informed and (len(silent) < len(responses) or patience.spent_s >= limit_s):
                break
            patience.failed(
                f"brokers {', '.join(map(str, sorted(silent))) or 'none'} did not respond, and those without metadata "
                f"yet are {', '.join(map(str, sorted(responses.keys() - informed))) or 'none'}"
            )
            responses = informed  # a broker without metadata is asked again
        views = {broker_id: _view(response) for broker_id, response in informed.items()}
        infos = {broker_id: from_response(response) for broker_id, response in informed.items()}
        counted = that_count(infos)
        by_controller = [infos[broker_id].controller_id for broker_id in counted] == counted
        settled = settle([views[broker_id] for broker_id in counted], by_controller=by_controller)
        # Broker addresses are those of the last one: the best informed of those that count.
        for broker_id in sorted(views, key=lambda one: (one in counted, settled.agreement(views[one]))):
            self._metadata.learn(_without_other_ids(informed[broker_id], settled.topic_ids))
        return settled

    def _ask_each(
        self, request: metadata_pb2.MetadataRequest, responses: dict[int, metadata_pb2.MetadataResponse]
    ) -> set[int]:
        """Ask all brokers, those too that others list, that have not responded; return who stays silent."""
        silent: set[int] = set()
        addresses = dict(self._metadata.addresses)
        while waiting := addresses.keys() - responses.keys() - silent:
            broker_id = min(waiting)
            try:
                response = self._channels.stub(addresses[broker_id]).Metadata(request, timeout=METADATA_TIMEOUT_S)
            except grpc.RpcError as error:
                self._channels.call_failed(addresses[broker_id], error)
                silent.add(broker_id)
                continue
            responses[broker_id] = response
            for one in response.brokers:
                addresses.setdefault(one.broker_id, address_of(one.host, one.port))
        return silent

    def leader(self, topic_partition: TopicPartition) -> PartitionLeader:
        """Return what is known of a partition without a request."""
        return self._metadata.leader(topic_partition)

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch that is known without a request; -1 unknown."""
        return self.leader(topic_partition).leader_epoch

    # --- which offsets ---

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return offsets by time: -2 earliest, -1 latest, else the first record at or after (or None).

        Latest is the high watermark, or with read_committed the last stable offset, above which nothing is found.
        """
        return self._ask_leaders(asked, self._list_offsets, "get the offsets of all partitions")

    def epoch_ends(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd | None]:
        """Return where leader epochs end in the leaders' logs; None if a leader can't say.

        Raises:
            TidegaugeError: as ``offsets``.
        """
        return self._ask_leaders(asked, self._epoch_ends, "ask for the ends of leader epochs")

    def _ask_leaders(
        self,
        asked: Mapping[TopicPartition, int],
        question: Question[Result],
        what: str,
    ) -> dict[TopicPartition, Result]:
        """Ask each partition's leader until all have responded."""
        responses: dict[TopicPartition, Result] = {}
        patience = Patience(self, self.options.api_timeout_ms, what)
        if any(one not in self._metadata.leaders for one in asked):
            self._refresh({one.topic for one in asked})
        while True:
            problems = []
            for leader_id, partitions in self._metadata.by_leader(asked.keys() - responses.keys()).items():
                if leader_id is None or leader_id not in self._metadata.addresses:
                    problems.append(f"{', '.join(map(str, partitions))} {self._metadata.why_no_leader(leader_id)}")
                    continue
                problem = self._ask_leader(leader_id, {one: asked[one] for one in partitions}, question, responses)
                if problem:
                    problems.append(f"{', '.join(map(str, partitions))}: broker {leader_id} {problem}")
            if len(responses) == len(asked):
                return responses
            patience.failed("; ".join(problems))
            self._refresh({one.topic for one in asked})

    def _ask_leader(
        self,
        leader_id: int,
        asked: Mapping[TopicPartition, int],
        question: Question[Result],
        responses: dict[TopicPartition, Result],
    ) -> str:
        """Ask one leader; fill in the results and return what is missing, empty if nothing is."""
        try:
            given = list(question(leader_id, asked))
        except grpc.RpcError as error:
            return self._channels.call_failed(self._metadata.addresses[leader_id], error)
        problems = []
        for response in given:
            if response.code is ErrorCode.NONE:
                responses[response.topic_partition] = response.result
            elif ERROR_TABLE[response.code].retriable:
                problems.append(f"said {response.code.name}: {response.message}")
            else:
                raise TidegaugeError(response.code, response.message)
        return "; ".join(problems)

    def _list_offsets(self, leader_id: int, asked: Mapping[TopicPartition, int]) -> Iterator[LeaderResult[int | None]]:
        request = offsets_pb2.ListOffsetsRequest(
            reads_committed=self.options.reads_committed,
            partitions=[
                offsets_pb2.ListOffsetsPartition(
                    topic=one.topic,
                    partition=one.partition,
                    current_leader_epoch=self._metadata.leaders[one].leader_epoch,
                    timestamp_ms=timestamp,
                )
                for one, timestamp in asked.items()
            ],
        )
        stub = self._channels.stub(self._metadata.addresses[leader_id])
        response = stub.ListOffsets(request, timeout=self.options.request_timeout_ms / 1000)
        for one in response.partitions:
            offset = one.offset if one.HasField("offset") else None
            yield LeaderResult(
                TopicPartition(one.topic, one.partition), ErrorCode.of(one.error), one.error_message, offset
            )

    def _epoch_ends(
        self, leader_id: int, asked: Mapping[TopicPartition, int]
    ) -> Iterator[LeaderResult[EpochEnd | None]]:
        request = offsets_pb2.OffsetsForLeaderEpochRequest(
            partitions=[
                offsets_pb2.OffsetForLeaderEpochPartition(
                    topic=one.topic,
                    partition=one.partition,
                    current_leader_epoch=self._metadata.leaders[one].leader_epoch,
                    leader_epoch=epoch,
                )
                for one, epoch in asked.items()
            ]
        )
        stub = self._channels.stub(self._metadata.addresses[leader_id])
        response = stub.OffsetsForLeaderEpoch(request, timeout=self.options.request_timeout_ms / 1000)
        for one in response.partitions:
            is_known = one.HasField("end") and one.end.HasField("leader_epoch") and one.end.HasField("end_offset")
            end = EpochEnd(one.end.leader_epoch, one.end.end_offset) if is_known else None
            yield LeaderResult(
                TopicPartition(one.topic, one.partition), ErrorCode.of(one.error), one.error_message, end
            )

    # --- which batches ---

    def fetch(
        self,
        topic_partition: TopicPartition,
        planned: PartitionLeader,
        position: Callable[[], int],
        last_epoch: Callable[[], int] = lambda: -1,
        until_offset: int = 0,
    ) -> Iterator[Fetched]:
        """Yield batches from ``position()`` on, below the high watermark, for as long as the caller takes them.

        While the caller works on a response, the next fetch is in flight, as in a Kafka consumer.
        ``kafkaConsumer.pollTimeoutMs`` starts again whenever the position has moved.

        Args:
            topic_partition: what to read.
            planned: the planner's knowledge: an older leader epoch or another topic id is ignored.
            position: returns the next offset to fetch; the caller moves it while it takes what is yielded.
            last_epoch: leader epoch of the record before the position; -1 unknown, then truncation is not looked for.
            until_offset: the end of what is fetched ahead (exclusive).

        Raises:
            LogTruncatedError: the records before the position are not in the leader's log.
            TidegaugeError: OFFSET_OUT_OF_RANGE, the leader has no such offset; INCONSISTENT_TOPIC_ID, another topic has
                the name now; REQUEST_TIMED_OUT, no progress.
        """
        self._metadata.accept(topic_partition, planned)
        if not self._metadata.addresses:
            self._refresh({topic_partition.topic})
        patience = Patience(self, self.options.poll_timeout_ms, f"read {topic_partition}")
        ahead: Asked | str | None = None
        try:
            while True:
                before, epoch = position(), last_epoch()
                if isinstance(ahead, Asked) and ahead[:2] == (before, epoch):
                    asked: Asked | str = ahead
                else:
                    _give_up(ahead)
                    asked = self._ask_fetch(topic_partition, planned, before, epoch)
                ahead = None
                fetched = asked if isinstance(asked, str) else self._fetched(topic_partition, planned, asked)
                if isinstance(fetched, Fetched):
                    end, end_epoch = _end_of(fetched.records)
                    if before < end < until_offset:
                        ahead = self._ask_fetch(topic_partition, planned, end, end_epoch)
                    yield fetched
                    if position() != before:
                        patience.renew()
                        continue
                    name = "last stable offset" if self.options.reads_committed else "high watermark"
                    fetched = f"offset {before} is wanted and the {name} stays at {fetched.bound}"
                patience.failed(fetched)
                self._refresh({topic_partition.topic})
        finally:
            _give_up(ahead)

    def _ask_fetch(
        self, topic_partition: TopicPartition, planned: PartitionLeader, offset: int, last_epoch: int
    ) -> Asked | str:
        """Send one fetch, or return why there is no broker to send it to."""
        leader = self._metadata.leaders.get(topic_partition)
        if leader is not None and planned.topic_id and leader.topic_id != planned.topic_id:
            raise TidegaugeError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"Topic {topic_partition.topic} was deleted and created again while it was read; offsets begin again",
            )
        if leader is None or leader.leader_id is None or leader.leader_id not in self._metadata.addresses:
            return f"{topic_partition} {self._metadata.why_no_leader(None if leader is None else leader.leader_id)}"
        wanted = fetch_pb2.FetchPartition(
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch if last_epoch >= 0 else None,
            partition_max_bytes=self.options.fetch_max_bytes,
        )
        request = fetch_pb2.FetchRequest(
            max_wait_ms=FETCH_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self.options.fetch_max_bytes,
            partitions=[wanted],
            reads_committed=self.options.reads_committed,
        )
        address = self._metadata.addresses[leader.leader_id]
        timeout_s = (self.options.request_timeout_ms + FETCH_MAX_WAIT_MS) / 1000
        call = self._channels.stub(address).Fetch.future(request, timeout=timeout_s)
        return Asked(offset, last_epoch, leader.leader_id, address, call)

    def _fetched(self, topic_partition: TopicPartition, planned: PartitionLeader, asked: Asked) -> Fetched | str:
        """Wait for a fetch: return its response, or why there is none."""
        try:
            result = asked.call.result().partitions[0]
        except grpc.FutureCancelledError:
            return f"broker {asked.leader_id} at {asked.address}: the channel was closed"
        except grpc.RpcError as error:
            return f"broker {asked.leader_id} {self._channels.call_failed(asked.address, error)}"
        code = ErrorCode.of(result.error)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and asked.last_epoch >= 0:
            # Also the response of a leader that knows no epochs: the offset alone decides then.
            again = self._ask_fetch(topic_partition, planned, asked.offset, -1)
            return again if isinstance(again, str) else self._fetched(topic_partition, planned, again)
        if code is ErrorCode.NONE and result.HasField("diverging_epoch"):
            raise LogTruncatedError(topic_partition, asked.offset, min(asked.offset, result.diverging_epoch.end_offset))
        if code is ErrorCode.NONE:
            stable = result.last_stable_offset if result.HasField("last_stable_offset") else result.high_watermark
            bound = stable if self.options.reads_committed else result.high_watermark
            aborted = tuple((one.first_offset, one.producer_id) for one in result.aborted_transactions)
            return Fetched(result.records, result.high_watermark, bound, aborted)
        if ERROR_TABLE[code].retriable:
            return f"broker {asked.leader_id} said {code.name}: {result.error_message}"
        raise TidegaugeError(code, result.error_message)

    # --- metadata ---

    def _refresh(self, topics: set[str] | None) -> set[str] | None:
        """Ask brokers in turn until one knows all the topics (None: all there are).

        The last one that responded is asked late, so that no single broker's old view persists; one that failed
        recently is asked last.

        Returns:
            The topics that any broker knows; None if none that has metadata responded.
        """
        request = metadata_pb2.MetadataRequest(topics=sorted(topics or ()), all_topics=topics is None)
        recently = self.monotonic() - DEPRIORITISED_S
        addresses = sorted(
            dict.fromkeys([*self._metadata.addresses.values(), *self.options.bootstrap_servers]),
            key=lambda address: (self._channels.has_failed_since(address, recently), address == self._asked_last),
        )
        known: set[str] | None = None
        for address in addresses:
            try:
                response = self._channels.stub(address).Metadata(request, timeout=METADATA_TIMEOUT_S)
            except grpc.RpcError as error:
                self._channels.call_failed(address, error)
                continue
            self._asked_last = address
            if not response.brokers:
                continue  # no controller has sent it metadata since its start; it does not know which topics there are
            known = (known or set()) | self._metadata.learn(response)
            if topics is None or known >= topics:
                break
        return known


_clients: dict[tuple[int, ConnectionOptions], ClusterClient] = {}


def client_for(options: ConnectionOptions) -> ClusterClient:
    """Return this process's client for these options; a forked child never uses its parent's."""
    key = (os.getpid(), options)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = ClusterClient(options)
    return client
