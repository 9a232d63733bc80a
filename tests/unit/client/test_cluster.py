"""A client's view of a cluster, and gRPC's failures in Kafka's words; brokers are replaced by a table of responses."""

from __future__ import annotations

import asyncio
import re

import grpc
import grpc.aio
import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.security import Security
from tidegauge.v1 import metadata_pb2
from tidegauge_client.bootstrap import BootstrapServers
from tidegauge_client.channels import Unreachable, translate
from tidegauge_client.cluster import Cluster, HandshakeError
from tidegauge_client.metadata import ClusterInfo, from_response

TP = TopicPartition("t", 0)


class FakeCluster(Cluster):
    """Asks a table instead of brokers: a response by address, or an error."""

    def __init__(self, *addresses: str) -> None:
        super().__init__(list(addresses), retry_backoff_ms=1)
        self.asked: list[str] = []
        self.dead: set[str] = set()
        self.without_metadata: set[str] = set()
        self.slow: dict[str, float] = {}
        self.leader_epoch = 0
        self.topics = {"t"}
        self.gate: asyncio.Event | None = None

    async def ask(self, address: str, request: metadata_pb2.MetadataRequest, timeout_ms: float) -> ClusterInfo:
        self.asked.append(address)
        if self.gate is not None:
            await self.gate.wait()
        if address in self.dead:
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, f"the broker at {address} can't be reached")
        if self.slow.get(address, 0) > timeout_ms:
            raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, f"the broker at {address} did not respond in time")
        response = metadata_pb2.MetadataResponse(cluster_id="c")
        if address in self.without_metadata:
            for name in request.topics:
                response.topics.add(name=name, error=metadata_pb2.TopicMetadata(error=3).error)
            return from_response(response)
        response.brokers.add(broker_id=0, host="a", port=1)
        response.brokers.add(broker_id=1, host="b", port=2)
        for name in sorted(self.topics) if request.all_topics else request.topics:
            topic = response.topics.add(name=name, topic_id="id")
            if name in self.topics:
                topic.partitions.add(partition=0, leader_id=0, leader_epoch=self.leader_epoch, replicas=[0], isr=[0])
            else:
                topic.error = metadata_pb2.TopicMetadata(error=3).error
        return from_response(response)


async def test_brokers_are_asked_in_rotation() -> None:
    """A partitioned broker responds with old metadata: the next request goes to another."""
    cluster = FakeCluster("a:1", "b:2")
    for _ in range(4):
        await cluster.refresh()
    assert sorted(cluster.asked[:2]) == ["a:1", "b:2"]
    assert cluster.asked[:2] == cluster.asked[2:]


async def test_of_a_host_name_that_is_not_known_the_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened, why, what to do: a wrong name is another mistake than a cluster that is down."""
    cluster = FakeCluster("nohost:1", "b:2")

    async def ask(address: str, *_: object) -> ClusterInfo:
        details = (
            "[field:hostname lookup error:address lookup failed for nohost:1]" if "nohost" in address else "refused"
        )
        raise Unreachable(address, details)

    monkeypatch.setattr(cluster, "ask", ask)
    with pytest.raises(TidegaugeError) as caught:
        await cluster.refresh()
    assert "the broker at b:2 cannot be reached; " in caught.value.message
    assert "Of a cluster that `tidegauge up` made, `tidegauge status` shows" in caught.value.message, "-b names others"
    assert "nohost:1 cannot be reached: this machine knows no host nohost;" in caught.value.message.replace(")", ";")


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ("Cannot check peer: missing selected ALPN property.", "a:1 speaks TLS, but not gRPC; give the address of a"),
        ("Handshake read failed (Socket closed)", "a:1 closed the connection before TLS was established: it may be"),
    ],
)
async def test_a_tls_client_at_a_port_of_another_kind_learns_what_to_give(
    monkeypatch: pytest.MonkeyPatch, details: str, words: str
) -> None:
    """A listener of Kafka's protocol is looked for at both; where there is none, the request may still be repeated."""
    cluster = Cluster(BootstrapServers(["a:1"], Security(is_tls=True)), retry_backoff_ms=1)
    looked: list[str] = []

    async def ask(address: str, *_: object) -> ClusterInfo:
        raise Unreachable(address, f"failed to connect to all addresses; last error: ipv4:{address}: {details}")

    async def no_grpc(address: str) -> list[str]:
        looked.append(address)
        return []

    async def no_reason(*_: object) -> str | None:
        return None

    monkeypatch.setattr(cluster, "ask", ask)
    monkeypatch.setattr(cluster, "_replace_kafka_address", no_grpc)
    monkeypatch.setattr("tidegauge_client.cluster.tls_reason", no_reason)
    with pytest.raises(TidegaugeError, match=words) as caught:
        await cluster.refresh()
    assert not isinstance(caught.value, HandshakeError), "a broker that dies in a handshake looks alike"
    assert looked == ["a:1"]


async def test_a_dead_broker_is_asked_last_from_then_on() -> None:
    cluster = FakeCluster("a:1", "b:2")
    cluster.dead = {"a:1"}
    for _ in range(4):
        await cluster.refresh()
    assert cluster.asked.count("a:1") <= 1
    assert cluster.asked.count("b:2") == 4


async def test_no_broker_at_all_is_one_sentence_that_names_them() -> None:
    cluster = FakeCluster("a:1", "b:2")
    cluster.dead = {"a:1", "b:2"}
    with pytest.raises(TidegaugeError, match=r"no broker responds \(.*a:1.*\).*tidegauge up") as caught:
        await cluster.refresh()
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_brokers_that_cannot_be_reached_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cluster that is down the sentence is the same for each broker; those that did respond keep theirs."""
    cluster = FakeCluster("a:1", "b:2", "c:3")

    async def ask(address: str, request: metadata_pb2.MetadataRequest, timeout_ms: float) -> ClusterInfo:
        if address == "c:3":
            return from_response(metadata_pb2.MetadataResponse(cluster_id="c"))
        raise Unreachable(address, "Failed to connect")

    monkeypatch.setattr(cluster, "ask", ask)
    with pytest.raises(TidegaugeError) as caught:
        await cluster.refresh()
    said = re.search(r"the brokers at (\S+), (\S+) cannot be reached; c:3 waits for", caught.value.message)
    assert said is not None, caught.value.message
    assert sorted(said.groups()) == ["a:1", "b:2"]


async def test_the_word_of_a_broker_without_metadata_is_not_taken() -> None:
    """It has started, and no controller has sent it metadata: it would call every topic unknown."""
    cluster = FakeCluster("a:1", "b:2")
    cluster.add_topics(["t"])
    cluster.without_metadata = {"a:1"}
    for _ in range(4):
        assert (await cluster.refresh()).topics["t"].error is ErrorCode.NONE
    cluster.without_metadata = {"a:1", "b:2"}
    with pytest.raises(TidegaugeError, match="a:1 waits for a controller's metadata") as caught:
        await cluster.refresh()
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_a_client_that_knows_no_broker_is_patient_with_slow_ones() -> None:
    """Rule 1: all are asked with a second each, then those that took too long once more."""
    cluster = FakeCluster("a:1", "b:2", "c:3")
    cluster.dead, cluster.slow = {"b:2"}, {"a:1": 4_000, "c:3": 4_000}
    await cluster.refresh()
    assert sorted(cluster.asked[:3]) == ["a:1", "b:2", "c:3"]
    assert len(cluster.asked) == 4
    assert cluster.asked[3] in {"a:1", "c:3"}


async def test_a_broker_that_does_not_finish_a_connection_in_time_is_asked_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule 1: the machine may have stood still. The second request has a new channel; the old one would refuse it."""
    cluster = FakeCluster("a:1")
    one_broker = from_response(metadata_pb2.MetadataResponse(brokers=[{"broker_id": 0, "host": "a", "port": 1}]))
    steps: list[str] = []

    async def discard(address: str) -> None:
        steps.append(f"discard {address}")

    async def ask(address: str, *_: object) -> ClusterInfo:
        steps.append(f"ask {address}")
        if len(steps) == 1:
            raise Unreachable(address, "ipv4:a:1: connection attempt timed out before receiving SETTINGS frame")
        return one_broker

    monkeypatch.setattr(cluster, "ask", ask)
    monkeypatch.setattr(cluster.channels, "discard", discard)
    await cluster.refresh()
    assert steps == ["ask a:1", "discard a:1", "ask a:1"]


async def test_brokers_that_stay_silent_are_named_once() -> None:
    cluster = FakeCluster("a:1", "b:2")
    cluster.slow = {"a:1": 9_000, "b:2": 9_000}
    with pytest.raises(TidegaugeError, match=r"no broker responds \([^;]*in time; [^;]*in time\)\. Of a cluster"):
        await cluster.refresh()
    assert sorted(cluster.asked) == ["a:1", "a:1", "b:2", "b:2"]


async def test_a_client_that_knows_brokers_gives_each_a_second() -> None:
    """A paused broker must not hold a client up that has others to ask."""
    cluster = FakeCluster("a:1", "b:2")
    await cluster.refresh()
    cluster.asked.clear()
    cluster.slow = dict.fromkeys(cluster.addresses(), 4_000.0)
    with pytest.raises(TidegaugeError, match="no broker responds"):
        await cluster.refresh()
    assert len(cluster.asked) == len(set(cluster.asked))


async def test_refreshes_at_one_time_share_a_response() -> None:
    cluster = FakeCluster("a:1")
    cluster.gate = asyncio.Event()
    both = asyncio.gather(cluster.refresh(), cluster.refresh())
    await asyncio.sleep(0)
    cluster.gate.set()
    await both
    assert len(cluster.asked) == 1


async def test_a_topic_added_meanwhile_is_asked_for_after_that() -> None:
    cluster = FakeCluster("a:1")
    cluster.gate = asyncio.Event()
    first = asyncio.create_task(cluster.refresh())
    await asyncio.sleep(0)
    second = asyncio.create_task(cluster.ensure_topics(["t"], timeout_ms=1_000))
    await asyncio.sleep(0)
    cluster.gate.set()
    await asyncio.gather(first, second)
    assert cluster.leader(TP) is not None
    assert len(cluster.asked) == 2


async def test_an_unknown_topic_is_reported_when_the_time_is_over() -> None:
    cluster = FakeCluster("a:1")
    with pytest.raises(TidegaugeError, match="Topic 'u' does not exist") as caught:
        await cluster.ensure_topics(["t", "u"], timeout_ms=0)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.asked.clear()
    await cluster.refresh()
    assert set(cluster.info.topics) == {"t"}, "it is not asked for any more"


async def test_an_unknown_topic_is_reported_with_the_name_that_may_have_been_meant() -> None:
    cluster = FakeCluster("a:1")
    cluster.topics = {"orders", "payments"}
    with pytest.raises(TidegaugeError, match=r"'ordres' does not exist as expected; did you mean orders\?"):
        await cluster.ensure_topics(["ordres"], timeout_ms=0)


async def test_a_hint_is_sent_to_listeners_and_outlives_older_metadata() -> None:
    cluster = FakeCluster("a:1")
    reported: list[int] = []
    await cluster.ensure_topics(["t"], timeout_ms=0)
    cluster.on_change(lambda: reported.append(1))
    assert cluster.hint(TP, 1, 5)
    assert not cluster.hint(TP, 0, 5)
    await cluster.refresh()
    leader = cluster.leader(TP)
    assert leader is not None
    assert (leader.broker_id, leader.leader_epoch) == (1, 5)
    assert len(reported) == 2


@pytest.mark.parametrize(
    ("status", "details", "code"),
    [
        (grpc.StatusCode.UNAVAILABLE, "x", ErrorCode.NETWORK_EXCEPTION),
        (grpc.StatusCode.CANCELLED, "x", ErrorCode.NETWORK_EXCEPTION),
        (grpc.StatusCode.UNKNOWN, "Internal error from Core", ErrorCode.NETWORK_EXCEPTION),
        (grpc.StatusCode.UNKNOWN, "Unexpected KeyError", ErrorCode.UNKNOWN_SERVER_ERROR),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "x", ErrorCode.REQUEST_TIMED_OUT),
        (grpc.StatusCode.UNIMPLEMENTED, "x", ErrorCode.UNSUPPORTED_VERSION),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "x", ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_grpcs_failures_are_kafkas_errors(status: grpc.StatusCode, details: str, code: ErrorCode) -> None:
    """A broken connection leaves the outcome open, and is tried again; a broker's fault is not."""
    error = grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
    assert translate(error, "a:1").code is code
