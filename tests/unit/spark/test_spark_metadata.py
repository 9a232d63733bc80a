"""Which topics there are, as brokers say it: those that have no metadata yet say nothing of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_spark import source
from tidegauge_spark.broker_channels import BrokerChannels
from tidegauge_spark.cluster_metadata import ClusterMetadata, PartitionLeader
from tidegauge_spark.offsets import EARLIEST, from_json, to_stored
from tidegauge_spark.options import ConnectionOptions, Subscription, parse_options
from tidegauge_spark.transport import ClusterClient
from tidegauge_spark.views import Settled

ORDERS = Subscription(topics=("orders",))
NAMED_TOPIC = metadata_pb2.TopicMetadata(name="orders", topic_id="id")
NAMED_TOPIC.partitions.add(partition=0, leader_id=1, leader_epoch=3)
UNKNOWN_TOPIC = metadata_pb2.TopicMetadata(name="orders", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def client_of(monkeypatch: pytest.MonkeyPatch, *views: tuple[float, metadata_pb2.MetadataResponse]) -> ClusterClient:
    """A client of one broker that responds with the last view that has begun, by a clock that sleeping moves."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def respond(_request: Any, timeout: float) -> metadata_pb2.MetadataResponse:
        assert timeout > 0
        return [view for since, view in views if since <= clock[0]][-1]

    client = ClusterClient(ConnectionOptions(("127.0.0.1:1",)), lambda: clock[0], sleep)
    monkeypatch.setattr(BrokerChannels, "stub", lambda _self, _address: SimpleNamespace(Metadata=respond))
    return client


def view(topic: metadata_pb2.TopicMetadata, *, has_metadata: bool = True) -> metadata_pb2.MetadataResponse:
    response = metadata_pb2.MetadataResponse(topics=[topic])
    if has_metadata:
        response.brokers.add(broker_id=1, host="127.0.0.1", port=1)
    return response


def test_a_query_waits_for_brokers_that_no_controller_has_sent_metadata_since_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All brokers were killed: those that are back know no topic, longer than a topic may be unknown."""
    client = client_of(monkeypatch, (0, view(UNKNOWN_TOPIC, has_metadata=False)), (30, view(NAMED_TOPIC)))
    assert list(client.partitions(ORDERS)) == [TopicPartition("orders", 0)]


def test_a_topic_that_brokers_with_metadata_do_not_know_is_reported_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = client_of(monkeypatch, (0, view(UNKNOWN_TOPIC)))
    with pytest.raises(TidegaugeError) as raised:
        client.partitions(ORDERS)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_brokers_that_never_get_metadata_are_said_not_to_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(monkeypatch, (0, view(UNKNOWN_TOPIC, has_metadata=False)))
    with pytest.raises(TidegaugeError, match="none has metadata yet") as raised:
        client.partitions(ORDERS)
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


AT = TopicPartition("orders", 0)


def test_a_leader_of_an_older_epoch_does_not_replace_a_newer_one() -> None:
    """A partitioned former leader still names itself (KIP-320)."""
    known = ClusterMetadata()
    known.accept(AT, PartitionLeader(2, 4, "id"))
    known.accept(AT, PartitionLeader(1, 3, "id"))
    assert known.leader(AT) == PartitionLeader(2, 4, "id")
    known.accept(AT, PartitionLeader(0, 5, "id"))
    assert known.leader(AT) == PartitionLeader(0, 5, "id")


def test_a_new_topic_id_ends_all_that_was_known_of_the_topic() -> None:
    """A topic that is created again begins with epoch 0, and may have fewer partitions; other topics stay known."""
    known, other = ClusterMetadata(), TopicPartition("payments", 0)
    known.accept(AT, PartitionLeader(2, 4, "first"))
    known.accept(TopicPartition("orders", 1), PartitionLeader(2, 4, "first"))
    known.accept(other, PartitionLeader(2, 4, "another"))
    known.accept(AT, PartitionLeader(1, 0, "second"))
    assert known.leaders == {AT: PartitionLeader(1, 0, "second"), other: PartitionLeader(2, 4, "another")}


def test_partitions_are_grouped_by_leader_and_unknown_ones_have_none() -> None:
    known, others = ClusterMetadata(), [TopicPartition("orders", number) for number in (1, 2)]
    known.accept(AT, PartitionLeader(2, 4, "id"))
    known.accept(others[0], PartitionLeader(None, 4, "id"))
    assert known.by_leader([*others, AT]) == {2: [AT], None: others}


# Old metadata of one broker

REQUESTED: list[int] = []
"""The brokers that the client of ``brokers`` has asked for metadata, in order."""
PATTERN = Subscription(pattern="^ord")


class NoResponseError(grpc.RpcError):
    """The call's deadline is over."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED

    def details(self) -> str:
        return ""


def brokers(
    monkeypatch: pytest.MonkeyPatch,
    *views: list[metadata_pb2.TopicMetadata] | None,
    respond_at_s: dict[int, float] | None = None,
    controllers: Sequence[tuple[int, int]] = (),
) -> ClusterClient:
    """A client of brokers 0, 1, ..., each with its view of all topics; None: it has no metadata.

    Those of ``respond_at_s`` do not respond before that time, by a clock that sleeping and waiting for them moves.
    ``controllers`` are controller and controller epoch in each view; empty: none names one.
    """
    clock = [0.0]

    def wait(seconds: float) -> None:
        clock[0] += seconds

    client = ClusterClient(ConnectionOptions(("h:0",)), lambda: clock[0], wait)

    def stub(address: str) -> Any:
        broker_id = int(address.rpartition(":")[2])
        topics = views[broker_id]
        response = metadata_pb2.MetadataResponse(topics=topics or [])
        for at in range(len(views)) if topics is not None else ():
            response.brokers.add(broker_id=at, host="h", port=at)
        if controllers:
            response.controller_id, response.controller_epoch = controllers[broker_id]

        def respond(_request: metadata_pb2.MetadataRequest, timeout: float) -> metadata_pb2.MetadataResponse:
            REQUESTED.append(broker_id)
            if clock[0] < (respond_at_s or {}).get(broker_id, 0):
                wait(timeout)
                raise NoResponseError
            return response

        return SimpleNamespace(Metadata=respond)

    REQUESTED.clear()

    monkeypatch.setattr(client._channels, "stub", stub)
    client._metadata.addresses = {at: f"h:{at}" for at in range(len(views))}
    return client


def topic(partitions: int, topic_id: str = "id", name: str = "orders") -> metadata_pb2.TopicMetadata:
    made = metadata_pb2.TopicMetadata(name=name, topic_id=topic_id)
    for partition in range(partitions):
        made.partitions.add(partition=partition, leader_id=1, leader_epoch=3)
    return made


def places(count: int) -> set[TopicPartition]:
    return {TopicPartition("orders", partition) for partition in range(count)}


@pytest.mark.parametrize(
    ("views", "settled_id", "known"),
    [
        ([[], [topic(2)], [topic(2)]], "id", 2),  # one does not know the topic yet
        ([[topic(1)], [topic(2)], [topic(2)]], "id", 2),  # one does not know that it has grown
        ([[topic(2)], [], []], "id", 0),  # one does not know that it was deleted
        ([[topic(2)], []], "id", 2),  # one against one: it is not taken for deleted
        ([[topic(2, "old")], [topic(1)], [topic(1)]], "id", 1),
        ([None, None, [topic(2)]], "id", 2),  # without metadata there is no view
    ],
)
def test_what_most_brokers_know_counts(
    monkeypatch: pytest.MonkeyPatch, views: list[Any], settled_id: str, known: int
) -> None:
    client = brokers(monkeypatch, *views)
    settled = client.settle_topics(["orders"])
    assert (settled.topic_ids, settled.partitions) == ({"orders": settled_id}, places(known))
    if known:
        assert client.leader(TopicPartition("orders", 0)).topic_id == settled_id


IN_TERM_1, IN_TERM_2 = (2, 1), (2, 2)
"""Broker 2 is the controller, of this epoch."""


@pytest.mark.parametrize(
    ("views", "controllers", "settled_id", "known"),
    [
        ([[topic(1)], [topic(1)], [topic(2)]], [IN_TERM_1] * 3, "id", 2),  # it has grown
        ([[], [], [topic(2)]], [IN_TERM_1] * 3, "id", 2),  # it is new
        ([[topic(2)], [topic(2)], []], [IN_TERM_1] * 3, None, 0),  # it was deleted
        ([[topic(2, "old")], [topic(2, "old")], [topic(1)]], [IN_TERM_1] * 3, "id", 1),  # and created again
        ([[topic(2)], [topic(2)], [topic(1)]], [(0, 2), (0, 2), IN_TERM_1], "id", 2),  # 2 was the controller
        ([[topic(1)], [topic(1)], [topic(2)], [topic(2)]], [(3, 1), (3, 1), (9, 2), (9, 2)], "id", 2),  # 9 is silent
        ([[topic(1)], [topic(1)], None], [IN_TERM_2] * 3, "id", 1),  # it has no metadata yet
    ],
)
def test_the_controllers_own_view_counts_against_most_others(
    monkeypatch: pytest.MonkeyPatch, views: list[Any], controllers: Any, settled_id: str | None, known: int
) -> None:
    """Rule 5 of ``tidegauge_client.metadata``: the controller may not reach two of three brokers. It reaches itself."""
    client = brokers(monkeypatch, *views, controllers=controllers)
    settled = client.settle_topics(["orders"])
    assert (settled.topic_ids.get("orders"), settled.partitions) == (settled_id, places(known))
    if known:
        assert client.leader(TopicPartition("orders", 0)).topic_id == settled_id


def test_a_topic_that_the_controller_does_not_know_is_said_to_be_unknown_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    client = brokers(monkeypatch, [topic(2)], [topic(2)], [], controllers=[IN_TERM_1] * 3)
    with pytest.raises(TidegaugeError, match="orders: the controller does not know it"):
        client.partitions(ORDERS, asks_all=True)


@pytest.mark.parametrize(
    ("subscription", "views", "known", "topic_id"),
    [
        (PATTERN, [[], [topic(2)], [topic(2)]], 2, "id"),  # the one that is asked first does not know the topic yet
        (PATTERN, [[topic(2)], [], []], 0, ""),  # or does not know that it was deleted
        (PATTERN, [[topic(1)], [topic(2)], [topic(2)]], 2, "id"),  # or that it has grown
        (ORDERS, [[topic(1)], [topic(2)], [topic(2)]], 2, "id"),
        (ORDERS, [[topic(2, "old")], [topic(1)], [topic(1)]], 1, "id"),  # or that it was created again
        (PATTERN, [[topic(2, "old")], [topic(1)], [topic(1)]], 1, "id"),
    ],
)
def test_the_broker_that_is_asked_first_does_not_decide_what_a_query_reads(
    monkeypatch: pytest.MonkeyPatch, subscription: Subscription, views: list[Any], known: int, topic_id: str
) -> None:
    found = brokers(monkeypatch, *views).partitions(subscription, asks_all=True)
    assert found.keys() == places(known)
    assert {leader.topic_id for leader in found.values()} == ({topic_id} if known else set())
    assert REQUESTED == [0, 0, 1, 2], "cheap: each broker once, and one before that, for the list of brokers"


def test_a_topic_that_one_broker_alone_still_shows_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted; a query that begins with it would ask for its offsets in vain for a minute."""
    client = brokers(monkeypatch, [topic(2)], [], [])
    with pytest.raises(TidegaugeError, match="orders: fewer than half of the brokers know it") as raised:
        client.partitions(ORDERS, asks_all=True)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_brokers_that_are_slow_to_respond_are_asked_again_before_one_broker_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = brokers(monkeypatch, [topic(1)], [topic(2)], [topic(2)], respond_at_s={1: 3, 2: 60})
    assert client.settle_topics(["orders"]).partitions == places(2), "one against one: the partition may exist"
    assert (REQUESTED[0], set(REQUESTED[1:])) == (0, {1, 2}), "one that has responded is not asked again"


@pytest.mark.parametrize("api_timeout_ms", [60_000, 1000])
def test_brokers_that_do_not_respond_for_seconds_count_no_longer(
    monkeypatch: pytest.MonkeyPatch, api_timeout_ms: int
) -> None:
    """Whatever kafka.default.api.timeout.ms is: one response is enough to go on with."""
    client = brokers(monkeypatch, [topic(1)], [topic(2)], [topic(2)], respond_at_s={1: 60, 2: 60})
    client.options = client.options._replace(api_timeout_ms=api_timeout_ms)
    assert client.settle_topics(["orders"]).partitions == places(1)


def test_without_a_response_of_any_broker_no_partition_is_taken_for_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = {0: 900.0, 1: 900.0}
    client = brokers(monkeypatch, [topic(2)], [topic(2)], respond_at_s=silent)
    with pytest.raises(TidegaugeError, match="brokers 0, 1 did not respond") as raised:
        client.settle_topics(["orders"])
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_leaders_are_those_of_the_topics_that_most_know_although_each_broker_is_wrong_about_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No broker is right about all three, so that none may be believed as a whole."""
    names = ("orders", "payments", "returns")
    views = [[topic(1, "old" if at == wrong else "id", name) for at, name in enumerate(names)] for wrong in range(3)]
    client = brokers(monkeypatch, *views)
    found = client.partitions(Subscription(topics=names), asks_all=True)
    assert {one.topic: leader.topic_id for one, leader in found.items()} == dict.fromkeys(names, "id")


class OneOldBroker:
    """A client whose last broker asked does not know all topics; leaders know all offsets."""

    def __init__(self, shown: set[TopicPartition], most_know: set[TopicPartition]) -> None:
        self.shown, self.most_know = shown, most_know
        self.settled: list[set[str]] = []

    def partitions(self, _: Subscription, *, asks_all: bool = False) -> dict[TopicPartition, PartitionLeader]:
        return {one: self.leader(one) for one in (self.most_know if asks_all else self.shown)}

    def leader(self, _topic_partition: TopicPartition) -> PartitionLeader:
        return PartitionLeader(1, 3, "id")

    def settle_topics(self, topics: set[str]) -> Settled:
        self.settled.append(set(topics))
        return Settled(dict.fromkeys(topics, "id"), frozenset(self.most_know))

    def offsets(self, asked: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {one: 0 if which == EARLIEST else 50 for one, which in asked.items()}

    def leader_epoch(self, _topic_partition: TopicPartition) -> int:
        return 3

    def epoch_ends(self, asked: dict[TopicPartition, int]) -> dict[TopicPartition, None]:
        return dict.fromkeys(asked)


def reader_of(
    monkeypatch: pytest.MonkeyPatch, client: OneOldBroker, options: dict[str, str], *, streaming: bool = True
) -> Any:
    """A reader of either kind that asks this client."""
    monkeypatch.setattr(source, "_client", lambda _options: client)
    given = {"kafka.bootstrap.servers": "h:1", "failOnDataLoss": "false", **options}
    parsed = parse_options(given, streaming=streaming)
    return (source.TidegaugeStreamReader if streaming else source.TidegaugeReader)(parsed)


SUBSCRIPTIONS = pytest.mark.parametrize("options", [{"subscribePattern": "ord.*"}, {"subscribe": "orders"}])


@SUBSCRIPTIONS
def test_a_batch_query_reads_the_partitions_that_most_brokers_know(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    """It reads once: what one broker hides from it would be missing in silence."""
    reader = reader_of(monkeypatch, OneOldBroker(places(1), places(2)), options, streaming=False)
    assert {task.offsets.topic_partition for task in reader.partitions()} == places(2)


@SUBSCRIPTIONS
def test_a_new_stream_begins_with_the_partitions_that_most_brokers_know(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    """A partition that is found later begins at its earliest offset, whatever startingOffsets says."""
    reader = reader_of(monkeypatch, OneOldBroker(places(1), places(2)), options)
    assert from_json(reader.initialOffset()) == dict.fromkeys(places(2), 50), "startingOffsets is latest"


@SUBSCRIPTIONS
def test_available_now_ends_behind_the_partitions_that_most_brokers_know(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    """What the run does not know at its begin it does not read, also where it asks another broker meanwhile."""
    client = OneOldBroker(places(1), places(2))
    reader = reader_of(monkeypatch, client, options)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(to_stored({TopicPartition("orders", 0): 40}, {}, {"orders": "id"}), ReadAllAvailable())
    assert from_json(end) == dict.fromkeys(places(2), 50)


def test_the_first_batch_of_a_run_reads_the_partitions_that_most_brokers_know_and_later_ones_ask_one_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With Trigger.Once the first batch is the only one. A later one finds a new partition a trigger later."""
    client = OneOldBroker(places(1), places(2))
    reader = reader_of(monkeypatch, client, {"subscribe": "orders"})
    begin = to_stored({TopicPartition("orders", 0): 40}, {}, {"orders": "id"})
    assert from_json(reader.latestOffset(begin, ReadAllAvailable())).keys() == places(2)
    assert from_json(reader.latestOffset(begin, ReadAllAvailable())).keys() == places(1)
    assert client.settled == []


@SUBSCRIPTIONS
@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_partition_that_one_broker_does_not_show_stays_in_the_batch(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], is_frozen: bool
) -> None:
    """It would be read again from its beginning as soon as a broker with new metadata is asked."""
    client = OneOldBroker(places(1), places(2))
    reader = reader_of(monkeypatch, client, options)
    begin = dict.fromkeys(places(2), 40)
    if is_frozen:
        client.most_know = places(1)  # when the run began
        reader.prepareForTriggerAvailableNow()
        client.most_know = places(2)
    else:
        reader.latestOffset(to_stored(begin, {}, {"orders": "id"}), ReadAllAvailable())
    end = reader.latestOffset(to_stored(begin, {}, {"orders": "id"}), ReadAllAvailable())
    assert from_json(end) == dict.fromkeys(places(2), 50)
    assert client.settled == [{"orders"}]


def test_a_partition_that_most_brokers_do_not_know_is_gone_and_one_not_subscribed_is_not_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = OneOldBroker(places(1), places(1))
    reader = reader_of(monkeypatch, client, {"subscribePattern": "ord.*"})
    begin = {**dict.fromkeys(places(2), 40), TopicPartition("payments", 0): 7}
    stored = to_stored(begin, {}, {"orders": "id", "payments": "p"})
    for settled in ([], [{"orders"}]):  # the first batch of a run asks all brokers, a later one in doubt
        assert from_json(reader.latestOffset(stored, ReadAllAvailable())) == dict.fromkeys(places(1), 50)
        assert client.settled == settled
