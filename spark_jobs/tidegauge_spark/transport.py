"""Synchronous calls to the cluster that ride out leader changes, dead and frozen brokers.

Contract: ``ClusterClient`` answers three questions (which partitions, which offsets, which batches) or raises
``TidegaugeError`` once its time is over. In between it asks the next broker, refreshes metadata and backs off.

- Every call has a deadline: a frozen broker (SIGSTOP) answers nothing and breaks nothing.
- A channel that failed is closed and made anew, so that no reconnect back-off outlives the broker's return.
- Metadata older than what was seen once (a lower leader epoch) is not believed: an isolated former leader still serves it.
  Fetches and offset questions carry the leader epoch, so such a leader fences itself (KIP-320).
- A topic is unknown only when every broker that answers says so, for a while: a broker that has just started knows none.
- No channel exists before the first call, and none is used by a process that did not make it: gRPC and fork do not mix.
  Spark forks its Python workers; each makes its own client in its first task (``client_for``).

Source: ``KafkaConsumer``/``OffsetFetcher`` retry rules; ``tidegauge.errors`` says which errors are retriable.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, NoReturn

import grpc

from tidegauge.errors import ERROR_TABLE, ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import broker_service_pb2_grpc, fetch_pb2, metadata_pb2, offsets_pb2
from tidegauge_spark.options import Options, Subscription

METADATA_TIMEOUT_S = 1.0
"""A dead or frozen broker costs at most this when another one can answer."""
UNKNOWN_TOPIC_PATIENCE_S = 5.0
FETCH_MAX_WAIT_MS = 500
MAX_BACKOFF_S = 1.0

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
)


class PartitionLeader(NamedTuple):
    """Who leads a partition; ``leader_id`` is None while there is none."""

    leader_id: int | None
    leader_epoch: int
    topic_id: str


class Fetched(NamedTuple):
    """One answer with batches; ``records`` is empty when the answer waited in vain."""

    records: bytes
    high_watermark: int


class _Failed(Exception):
    """A try that may succeed later; the text says what happened."""


def _rpc_problem(error: grpc.RpcError) -> str:
    code = error.code() if isinstance(error, grpc.Call) else None
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time"
    return f"{code.name if code else 'failed'}: {error.details() if isinstance(error, grpc.Call) else error}"


class ClusterClient:
    """A client of one process; not to be shared between threads or over a fork."""

    def __init__(
        self,
        options: Options,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._monotonic = monotonic
        self._sleep = sleep
        self._channels: dict[str, grpc.Channel] = {}
        self._addresses: dict[int, str] = {}
        self._leaders: dict[TopicPartition, PartitionLeader] = {}
        self._asked_last = ""

    def close(self) -> None:
        """Closes all channels; the client may be used again."""
        for address in list(self._channels):
            self._drop(address)

    # --- the three questions ---

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, PartitionLeader]:
        """The partitions that a subscription names now.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, a topic or an assigned partition does not exist;
                REQUEST_TIMED_OUT, no broker answered.
        """
        wanted = set(subscription.topics) | {one.topic for one in subscription.assigned}
        attempts = self._attempts(self._options.api_timeout_ms, "find the partitions of " + str(subscription))
        patience_ends = self._monotonic() + UNKNOWN_TOPIC_PATIENCE_S
        for attempt in attempts:
            known = self._refresh(wanted or None)
            if known is None:
                attempt("no broker answered")
                continue
            found = {one: leader for one, leader in self._leaders.items() if one.topic in known}
            if subscription.pattern:
                pattern = re.compile(subscription.pattern)
                return {one: leader for one, leader in found.items() if pattern.fullmatch(one.topic)}
            missing = self._missing(subscription, found)
            if not missing:
                only = set(subscription.assigned)
                return {one: leader for one, leader in found.items() if not only or one in only}
            if self._monotonic() >= patience_ends:
                raise TidegaugeError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{', '.join(missing)}: this server does not host this topic-partition. Create it first, "
                    "or check the name; list-topics shows what there is",
                )
            attempt(f"unknown: {', '.join(missing)}")
        raise AssertionError("attempts end by an error")

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Offsets by time: -2 earliest, -1 the high watermark, else the first record at or after that ms (or None).

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, some partition had no leader that answered; or what the leader said.
        """
        answers: dict[TopicPartition, int | None] = {}
        if not asked:
            return answers
        for attempt in self._attempts(self._options.api_timeout_ms, "get offsets"):
            problems = []
            for leader_id, partitions in self._by_leader(asked.keys() - answers.keys()).items():
                problem = self._list_offsets(leader_id, {one: asked[one] for one in partitions}, answers)
                if problem:
                    problems.append(problem)
            if len(answers) == len(asked):
                return answers
            attempt("; ".join(problems))
            self._refresh({one.topic for one in asked})
        raise AssertionError("attempts end by an error")

    def fetch(
        self, topic_partition: TopicPartition, known: PartitionLeader, position: Callable[[], int]
    ) -> Iterator[Fetched]:
        """Batches from ``position()`` on, below the high watermark, for as long as the caller takes them.

        ``kafkaConsumer.pollTimeoutMs`` counts anew whenever the position has moved.

        Args:
            topic_partition: what to read.
            known: what the planner knew: an older leader epoch or another topic id is not believed.
            position: the next offset to fetch; the caller moves it while it takes what is yielded.

        Raises:
            TidegaugeError: OFFSET_OUT_OF_RANGE, the leader has no such offset; REQUEST_TIMED_OUT, no progress.
        """
        self._believe(topic_partition, known)
        while True:
            before = position()
            what = f"read {topic_partition} at offset {before}"
            for attempt in self._attempts(self._options.poll_timeout_ms, what):
                fetched = self._fetch_once(topic_partition, known, before)
                if isinstance(fetched, Fetched):
                    yield fetched
                    if position() != before:
                        break
                    reason = f"the high watermark is {fetched.high_watermark} and does not rise"
                    attempt(reason, backoff=False)
                else:
                    attempt(fetched)
                    self._refresh({topic_partition.topic})

    # --- one try each ---

    def _fetch_once(self, topic_partition: TopicPartition, known: PartitionLeader, offset: int) -> Fetched | str:
        leader = self._leaders.get(topic_partition)
        if leader is None or leader.leader_id is None or leader.leader_id not in self._addresses:
            return f"{topic_partition} has no leader"
        if known.topic_id and leader.topic_id != known.topic_id:
            raise TidegaugeError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"Topic {topic_partition.topic} was deleted and created anew while it was read; its offsets begin again",
            )
        request = fetch_pb2.FetchRequest(
            max_wait_ms=FETCH_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._options.fetch_max_bytes,
            partitions=[
                fetch_pb2.FetchPartition(
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                    current_leader_epoch=leader.leader_epoch,
                    fetch_offset=offset,
                    partition_max_bytes=self._options.fetch_max_bytes,
                )
            ],
        )
        address = self._addresses[leader.leader_id]
        timeout = self._options.request_timeout_ms / 1000 + FETCH_MAX_WAIT_MS / 1000
        try:
            response = self._stub(address).Fetch(request, timeout=timeout)
        except grpc.RpcError as error:
            self._drop(address)
            return f"broker {leader.leader_id} at {address}: {_rpc_problem(error)}"
        result = response.partitions[0]
        code = ErrorCode.of(result.error)
        if code is ErrorCode.NONE:
            return Fetched(result.records, result.high_watermark)
        if ERROR_TABLE[code].retriable and code is not ErrorCode.CORRUPT_MESSAGE:
            return f"broker {leader.leader_id}: {code.name} {result.error_message}"
        raise TidegaugeError(code, result.error_message)

    def _list_offsets(
        self, leader_id: int | None, asked: Mapping[TopicPartition, int], answers: dict[TopicPartition, int | None]
    ) -> str:
        """Ask one leader; fills ``answers`` and says what is missing, empty when nothing is."""
        names = ", ".join(map(str, asked))
        if leader_id is None or leader_id not in self._addresses:
            return f"{names} without a leader"
        request = offsets_pb2.ListOffsetsRequest(
            partitions=[
                offsets_pb2.ListOffsetsPartition(
                    topic=one.topic,
                    partition=one.partition,
                    current_leader_epoch=self._leaders[one].leader_epoch,
                    timestamp_ms=timestamp,
                )
                for one, timestamp in asked.items()
            ]
        )
        address = self._addresses[leader_id]
        try:
            response = self._stub(address).ListOffsets(request, timeout=self._options.request_timeout_ms / 1000)
        except grpc.RpcError as error:
            self._drop(address)
            return f"{names}: broker {leader_id} at {address}: {_rpc_problem(error)}"
        problems = []
        for result in response.partitions:
            topic_partition = TopicPartition(result.topic, result.partition)
            code = ErrorCode.of(result.error)
            if code is ErrorCode.NONE:
                answers[topic_partition] = result.offset if result.HasField("offset") else None
            elif ERROR_TABLE[code].retriable:
                problems.append(f"{topic_partition}: broker {leader_id}: {code.name} {result.error_message}")
            else:
                raise TidegaugeError(code, result.error_message)
        return "; ".join(problems)

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
        unknown = {one.topic for one in partitions if one not in self._leaders}
        if unknown:
            self._refresh(unknown)
        groups: dict[int | None, list[TopicPartition]] = {}
        for one in sorted(partitions):
            leader = self._leaders.get(one)
            groups.setdefault(leader.leader_id if leader else None, []).append(one)
        return groups

    # --- metadata ---

    def _refresh(self, topics: set[str] | None) -> set[str] | None:
        """Ask brokers in turn until one knows all topics; returns the topics known, None if nobody answered.

        Who answered last is asked last, so that one broker with an old view cannot hold us for long.
        """
        request = metadata_pb2.MetadataRequest(topics=sorted(topics or ()), all_topics=topics is None)
        addresses = list(dict.fromkeys([*self._addresses.values(), *self._options.bootstrap_servers]))
        addresses.sort(key=lambda address: address == self._asked_last)
        known: set[str] | None = None
        for address in addresses:
            try:
                response = self._stub(address).Metadata(request, timeout=METADATA_TIMEOUT_S)
            except grpc.RpcError:
                self._drop(address)
                continue
            self._asked_last = address
            known = (known or set()) | self._learn(response)
            if topics is None or known >= topics:
                break
        return known

    def _learn(self, response: metadata_pb2.MetadataResponse) -> set[str]:
        for broker in response.brokers:
            self._addresses[broker.broker_id] = f"{broker.host}:{broker.port}"
        known = set()
        for topic in response.topics:
            code = ErrorCode.of(topic.error)
            if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise TidegaugeError(code, topic.error_message)
            if code is not ErrorCode.NONE:
                continue
            known.add(topic.name)
            for partition in topic.partitions:
                leader_id = partition.leader_id if partition.HasField("leader_id") else None
                leader = PartitionLeader(leader_id, partition.leader_epoch, topic.topic_id)
                self._believe(TopicPartition(topic.name, partition.partition), leader)
        return known

    def _believe(self, topic_partition: TopicPartition, leader: PartitionLeader) -> None:
        """Takes a leader over what is known unless it is older."""
        known = self._leaders.get(topic_partition)
        if known is None or leader.topic_id != known.topic_id or leader.leader_epoch >= known.leader_epoch:
            self._leaders[topic_partition] = leader

    @staticmethod
    def _missing(subscription: Subscription, found: Iterable[TopicPartition]) -> list[str]:
        topics = {one.topic for one in found}
        missing = [topic for topic in subscription.topics if topic not in topics]
        return missing + [str(one) for one in subscription.assigned if one not in set(found)]

    # --- channels and time ---

    def _stub(self, address: str) -> broker_service_pb2_grpc.BrokerServiceStub:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        return broker_service_pb2_grpc.BrokerServiceStub(channel)

    def _drop(self, address: str) -> None:
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()

    def _attempts(self, timeout_ms: int, what: str) -> Iterator[Callable[..., None]]:
        """Gives a function to be told why a try failed; it backs off, or raises once the time is over."""
        started = self._monotonic()
        backoff_s = self._options.retry_backoff_ms / 1000

        def give_up(reason: str) -> NoReturn:
            raise TidegaugeError(
                ErrorCode.REQUEST_TIMED_OUT, f"Could not {what} within {timeout_ms} ms; at last: {reason}"
            )

        def failed(reason: str, *, backoff: bool = True) -> None:
            nonlocal backoff_s
            if self._monotonic() - started >= timeout_ms / 1000:
                give_up(reason)
            if backoff:
                self._sleep(backoff_s)
                backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)

        while True:
            yield failed


_clients: dict[tuple[int, Options], ClusterClient] = {}


def client_for(options: Options) -> ClusterClient:
    """This process's client for these options; a forked child never sees its parent's."""
    key = (os.getpid(), options)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = ClusterClient(options)
    return client
