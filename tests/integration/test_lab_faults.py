"""Faults inside brokers, on real processes: each has the consequence that Kafka's rules give it.

One cluster for all tests, and one more broker without the lab. Brokers that a test needs apart from the controller
are chosen by who the controller is. Values are written to a broker of the test's choice, past any client's metadata,
since a zombie's clients have old metadata.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable

import grpc
import grpc.aio
import pytest
from tests.labs import make_topic
from tests.modes import IS_KRAFT
from tests.typed import typed
from tests.waiting import until, until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import read_events
from tidegauge.partition import TopicPartition
from tidegauge.v1 import broker_service_pb2_grpc, produce_pb2
from tidegauge_client import Admin, Consumer, Producer
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.switches import Direction, Plane, Switches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
SETTINGS = {"replica.lag.time.max.ms": "1500", "auto.leader.rebalance.enable": "false"}


METADATA = Plane.CONTROLLERS if IS_KRAFT else Plane.ZOOKEEPER
"""Where a broker has the cluster's metadata from, and its membership."""


def roles(brokers: LocalCluster) -> tuple[int, int, int]:
    """The controller, and the other two; three brokers of which none is one in KRaft mode."""
    if IS_KRAFT:
        return 0, 1, 2
    controller = until(lambda: brokers.status()["controller"]["broker"] in (0, 1, 2) and brokers.status(), timeout=150)
    first = controller["controller"]["broker"]
    others = [broker_id for broker_id in (0, 1, 2) if broker_id != first]
    return first, others[0], others[1]


async def write(
    brokers: LocalCluster, at: TopicPartition, value: bytes, broker_id: int, *, acks: int = 1, wait_ms: int = 30_000
) -> ErrorCode:
    """One batch to this broker, whoever leads; gives the response's error."""
    batch = encode_batch([NewRecord(value, None, 1)])
    request = produce_pb2.ProduceRequest(
        acks=acks,
        timeout_ms=wait_ms,
        partitions=[produce_pb2.ProducePartition(topic=at.topic, partition=at.partition, records=batch)],
    )
    async with grpc.aio.insecure_channel(brokers.file.broker(broker_id).address) as channel:
        response = await broker_service_pb2_grpc.BrokerServiceStub(channel).Produce(request, timeout=150)
    return ErrorCode.of(response.partitions[0].error)


async def read_all(brokers: LocalCluster, at: TopicPartition, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with Consumer(brokers.bootstrap_servers) as consumer:
        consumer.assign([at])
        await consumer.seek_to_beginning()

        async def complete() -> bool:
            found.extend(record.value or b"" for record in await consumer.poll(timeout_ms=1_000, max_records=100))
            return len(found) >= count

        await until_async(complete, limit=150, what=f"{count} records of {at} are read")
    return found


async def wait_isr(lab: Switches, at: TopicPartition, leader: int, isr: set[int]) -> None:
    async def holds() -> bool:
        replica = (await lab.observe(leader, [at.topic])).get(at)
        return replica is not None and replica.role == "leader" and set(replica.isr) == isr

    await until_async(holds, limit=150, what=f"ISR {isr} of {at} on {leader}")


# A plain broker


async def test_a_plain_broker_has_nothing_of_the_lab(make_cluster: Callable[..., LocalCluster]) -> None:
    """Without lab.enable=true there is no Lab service, and nothing of it is loaded."""
    plain = make_cluster(brokers=1, settings={"lab.enable": "false"})
    async with Switches.of_cluster(plain.file) as switches:
        for wish in (switches.list_faults(0), switches.isolate(0, Plane.CLIENTS), switches.expire_session(0)):
            with pytest.raises(TidegaugeError, match=r"lab\.enable=true") as caught:
                await wish
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    verb = await asyncio.to_thread(typed, "faults", "--dir", plain.directory)
    assert (verb.code, verb.stdout) == (1, "")
    assert "lab.enable=true" in verb.stderr


def test_a_plain_broker_does_not_even_load_the_lab() -> None:
    program = (
        "import sys\n"
        "import tidegauge_broker.server.verb\n"
        "from tidegauge.settings import parse_broker_settings\n"
        "from tidegauge_broker.server.seams import Seams\n"
        "from tidegauge_broker.server.seams_in_use import seams_of\n"
        "seams = seams_of(parse_broker_settings({})[0], 1, None)\n"
        "print(type(seams) is Seams, [name for name in sys.modules if '.server.lab' in name])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=150, check=False)
    assert done.stdout == "True []\n", done.stderr


# Partitions between brokers


async def test_a_leader_that_hears_nothing_of_its_followers_loses_them_from_the_isr_and_serves_on(
    brokers: LocalCluster, lab: Switches
) -> None:
    """In only: their fetches don't arrive, but its own proposal reaches the controller, itself or another."""
    _, leader, follower = roles(brokers)
    at = await make_topic(brokers, "cut-in", [leader, follower])
    await lab.isolate(leader, Plane.BROKERS, Direction.IN)
    assert await write(brokers, at, b"m1", leader) is ErrorCode.NONE
    await wait_isr(lab, at, leader, {leader})
    assert await write(brokers, at, b"m2", leader, acks=-1) is ErrorCode.NONE, "alone in the ISR it commits alone"
    assert (await lab.observe(follower, [at.topic]))[at].log_end_offset == 0
    [fault] = (await lab.list_faults(leader)).faults
    assert fault.met > 0
    await lab.heal(leader)
    await wait_isr(lab, at, leader, {leader, follower})


@pytest.mark.zookeeper_mode("a leader's proposals go to the controllers, and without these calls it is fenced")
async def test_a_leader_whose_calls_get_lost_keeps_its_followers_but_cannot_change_its_isr(
    brokers: LocalCluster, lab: Switches
) -> None:
    """Out only: fetches arrive, so records are committed; a dead follower stays in the ISR, so they no longer are."""
    controller, leader, follower = roles(brokers)
    at = await make_topic(brokers, "cut-out", [leader, follower])
    await lab.isolate(leader, Plane.BROKERS, Direction.OUT)
    assert await write(brokers, at, b"m1", leader, acks=-1) is ErrorCode.NONE
    await lab.isolate(follower, [leader], Direction.OUT)
    assert await write(brokers, at, b"m2", leader) is ErrorCode.NONE

    async def proposes() -> bool:
        return (await lab.list_faults(leader)).faults[0].met > 0

    await until_async(proposes, limit=150, what="a proposal that is refused")
    replica = (await lab.observe(leader, [at.topic]))[at]
    assert (set(replica.isr), replica.high_watermark) == ({leader, follower}, 1)
    assert controller not in replica.isr
    await lab.heal(leader)
    await wait_isr(lab, at, leader, {leader})
    assert (await lab.observe(leader, [at.topic]))[at].high_watermark == 2


async def test_a_follower_partitioned_from_one_broker_follows_another_leader_still(
    brokers: LocalCluster, lab: Switches
) -> None:
    first, second, third = roles(brokers)
    cut = await make_topic(brokers, "cut-from-one", [second, third])
    whole = await make_topic(brokers, "not-cut", [first, third])
    await lab.isolate(third, [second])
    assert await write(brokers, cut, b"m", second) is ErrorCode.NONE
    assert await write(brokers, whole, b"m", first, acks=-1) is ErrorCode.NONE
    await wait_isr(lab, cut, second, {second})
    await wait_isr(lab, whole, first, {first, third})


# Clients


async def test_partitioned_clients_retry_until_they_are_let_in(brokers: LocalCluster, lab: Switches) -> None:
    _, leader, follower = roles(brokers)
    at = await make_topic(brokers, "clients", [leader, follower])
    async with Producer(brokers.bootstrap_servers) as producer:
        await (await producer.send(at.topic, b"before"))
        fault = await lab.isolate(leader, Plane.CLIENTS)
        response = await producer.send(at.topic, b"meanwhile")

        async def refused() -> bool:
            return (await lab.list_faults(leader)).faults[0].met > 0

        await until_async(refused)
        assert not response.done()
        await lab.clear(leader, [fault.fault_id])
        await response
    assert await read_all(brokers, at, 2) == [b"before", b"meanwhile"]


async def test_delayed_and_lost_calls_arrive_in_the_end_once_and_in_order(brokers: LocalCluster, lab: Switches) -> None:
    _, leader, follower = roles(brokers)
    at = await make_topic(brokers, "lossy", [leader, follower])
    await lab.isolate(leader, Plane.CLIENTS, drop=0.3, seed=4)
    await lab.isolate(leader, [follower], delay_ms=20)
    values = [b"%d" % number for number in range(30)]
    async with Producer(brokers.bootstrap_servers) as producer:
        for value in values:
            await (await producer.send(at.topic, value))
    met = {fault.text.split(":")[0]: fault.met for fault in (await lab.list_faults(leader)).faults}
    assert all(met.values()), met
    await lab.heal(leader)
    assert await read_all(brokers, at, len(values)) == values


# The metadata


async def test_a_leader_partitioned_from_the_metadata_is_replaced_and_never_commits_again(
    brokers: LocalCluster, lab: Switches
) -> None:
    """The zombie leader: its membership ends, unnoticed by it; what it still takes is truncated afterwards."""
    controller, zombie, heir = roles(brokers)
    at = await make_topic(brokers, "zombie", [zombie, heir, controller], **{"min.insync.replicas": "2"})
    assert await write(brokers, at, b"m1", zombie, acks=-1) is ErrorCode.NONE
    await lab.isolate(zombie, METADATA)
    await lab.isolate(zombie, Plane.BROKERS, Direction.IN)  # no process can notify it either

    async def replaced() -> bool:
        return (await lab.observe(heir, [at.topic]))[at].role == "leader"

    await until_async(replaced, limit=150)
    assert (await lab.observe(zombie, [at.topic]))[at].role == "leader", "it does not know"
    assert await write(brokers, at, b"lost", zombie, acks=1) is ErrorCode.NONE
    late = await write(brokers, at, b"never", zombie, acks=-1, wait_ms=1000)
    assert late in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
    replica = (await lab.observe(zombie, [at.topic]))[at]
    assert (replica.log_end_offset, replica.high_watermark) == (3, 1)
    assert await write(brokers, at, b"m2", heir, acks=-1) is ErrorCode.NONE
    await lab.heal(zombie)
    await wait_isr(lab, at, heir, {zombie, heir, controller})
    replica = (await lab.observe(zombie, [at.topic]))[at]
    assert (replica.role, replica.log_end_offset) == ("follower", 2)
    assert await read_all(brokers, at, 2) == [b"m1", b"m2"]
    if not IS_KRAFT:
        events = read_events(brokers.logs / f"broker-{zombie}.events.jsonl")
        states = [one["state"] for one in events if one["kind"] == "session"]
        assert states[-3:] == ["suspended", "lost", "connected"]


@pytest.mark.parametrize(
    "direction",
    [
        pytest.param(Direction.IN, marks=pytest.mark.zookeeper_mode("controllers make no calls to a broker")),
        pytest.param(Direction.OUT, marks=[] if IS_KRAFT else pytest.mark.long),
    ],
)
async def test_one_way_to_the_metadata_is_not_enough_for_a_membership(
    brokers: LocalCluster, lab: Switches, direction: Direction
) -> None:
    """Bytes that go out without responses, or responses without requests: the membership ends either way."""
    other, one, _ = roles(brokers)
    await lab.isolate(one, METADATA, direction)
    address = brokers.file.broker(other).address

    async with Admin([address]) as admin:

        async def are_live(*wanted: int) -> bool:
            """As another broker knows it: the partitioned one hears nothing of its own end."""
            with contextlib.suppress(TidegaugeError):  # it was busy for as long as a probe lasts
                return set((await admin.metadata_of(address)).live) == set(wanted)
            return False

        await until_async(lambda: are_live(*({0, 1, 2} - {one})))
        await lab.heal(one)
        await until_async(lambda: are_live(0, 1, 2))


@pytest.mark.zookeeper_mode("a broker that is fenced keeps its registration, and its next heartbeat ends that")
async def test_a_session_that_ends_on_the_server_costs_the_broker_its_registration(
    brokers: LocalCluster, lab: Switches
) -> None:
    _, one, _ = roles(brokers)

    def epochs() -> list[int]:
        events = read_events(brokers.logs / f"broker-{one}.events.jsonl")
        return [event["broker_epoch"] for event in events if event.get("state") == "registered"]

    before = epochs()
    session, is_session = await lab.expire_session(one)
    assert (session > 0, is_session) == (True, True)
    after = until(lambda: epochs()[len(before) :], timeout=150)
    assert after[-1] > before[-1]
    events = read_events(brokers.logs / f"broker-{one}.events.jsonl")
    fault = [event for event in events if event["kind"] == "fault"][-1]
    assert (fault["action"], fault["membership"]) == ("expire-session", f"0x{session:x}")


# Errors


async def test_an_error_on_the_nth_produce_is_retried_and_one_after_its_effect_gives_no_duplicate(
    brokers: LocalCluster, lab: Switches
) -> None:
    _, leader, follower = roles(brokers)
    at = await make_topic(brokers, "errors", [leader, follower])
    refused = await lab.inject_error(leader, "Produce", ErrorCode.NOT_ENOUGH_REPLICAS, nth=2, times=2)
    async with Producer(brokers.bootstrap_servers) as producer:
        for value in (b"1", b"2"):
            await (await producer.send(at.topic, value))
        assert producer.counters.retries == 2
        [fault] = (await lab.clear(leader, [refused.fault_id]))[0]
        assert fault.met == 2
        for error, status in ((ErrorCode.REQUEST_TIMED_OUT, ""), (ErrorCode.NONE, "UNAVAILABLE")):
            await lab.inject_error(leader, "Produce", error, grpc_status=status, after_effect=True)
            await (await producer.send(at.topic, status.encode()))
        assert [fault.met for fault in (await lab.list_faults(leader)).faults] == [1, 1]
    assert await read_all(brokers, at, 4) == [b"1", b"2", b"", b"UNAVAILABLE"]
    assert (await lab.observe(leader, [at.topic]))[at].log_end_offset == 4


async def test_an_error_of_one_topic_is_met_by_its_own_requests_alone(brokers: LocalCluster, lab: Switches) -> None:
    """On a follower's stream too, whose later requests name no partition again."""
    _, leader, follower = roles(brokers)
    meant = await make_topic(brokers, "meant", [leader, follower])
    other = await make_topic(brokers, "other", [leader, follower])
    await lab.inject_error(
        leader, "Produce", ErrorCode.NOT_ENOUGH_REPLICAS, topic=meant.topic, partition_index=0, caller="clients"
    )
    await lab.inject_error(
        leader, "ReplicaFetch", ErrorCode.UNKNOWN_SERVER_ERROR, topic="nowhere", caller=str(follower)
    )
    async with Producer(brokers.bootstrap_servers) as producer:
        await (await producer.send(other.topic, b"1"))
        assert producer.counters.retries == 0
        await (await producer.send(meant.topic, b"2"))
        assert producer.counters.retries == 1
    assert [fault.met for fault in (await lab.list_faults(leader)).faults] == [1, 0]
    await lab.inject_error(
        leader, "ReplicaFetch", ErrorCode.UNKNOWN_SERVER_ERROR, topic=meant.topic, caller=str(follower)
    )

    async def is_met() -> bool:
        return (await lab.list_faults(leader)).faults[2].met == 1

    await until_async(is_met)


async def test_errors_between_brokers_hold_replication_up_and_no_more(brokers: LocalCluster, lab: Switches) -> None:
    _, leader, follower = roles(brokers)
    at = await make_topic(brokers, "between", [leader, follower])
    await lab.inject_error(leader, "ReplicaFetch", ErrorCode.UNKNOWN_SERVER_ERROR, times=3)
    assert await write(brokers, at, b"m", leader, acks=-1) is ErrorCode.NONE

    async def three_times() -> bool:  # on a slow machine the follower leaves the ISR first, and is not waited for
        return (await lab.list_faults(leader)).faults[0].met == 3

    await until_async(three_times)


# Disks


async def test_a_power_loss_takes_what_was_not_flushed_and_a_flush_saves_the_rest(
    brokers: LocalCluster, lab: Switches
) -> None:
    _, one, _ = roles(brokers)
    at = await make_topic(brokers, "power", [one])
    await write(brokers, at, b"kept", one)
    assert await lab.sync_log(one, at) == {at: 1}
    await write(brokers, at, b"gone", one)
    with pytest.raises(TidegaugeError, match="power loss ends its process first"):
        brokers.start(one, after_power_cut=True)
    brokers.kill(one, expire=True)
    [outcome] = brokers.start(one, after_power_cut=True)
    assert outcome.lost_bytes > 0
    assert (await lab.observe(one, [at.topic]))[at].log_end_offset == 1
    assert await read_all(brokers, at, 1) == [b"kept"]


async def test_a_disk_that_fails_ends_the_broker_and_its_next_start_knows_nothing_of_the_fault(
    brokers: LocalCluster, lab: Switches
) -> None:
    """Its only log directory is offline: it halts, as Kafka does; a restart clears the process's faults."""
    _, leader, follower = roles(brokers)
    at = await make_topic(brokers, "disk", [leader, follower])
    await lab.inject_disk(leader, delay_ms=1, operation="append", times=1)
    assert await write(brokers, at, b"slow", leader) is ErrorCode.NONE
    assert (await lab.list_faults(leader)).faults[0].met == 1
    await lab.inject_disk(leader, errno="EIO", operation="append", path=at.topic)
    assert await write(brokers, at, b"refused", leader) is ErrorCode.KAFKA_STORAGE_ERROR
    until(lambda: brokers.state_of(leader) is ProcessState.DOWN, timeout=150)
    brokers.start(leader)
    assert not (await lab.list_faults(leader)).faults
    async with Producer(brokers.bootstrap_servers) as producer:
        await (await producer.send(at.topic, b"on"))


async def test_a_skewed_clock_dates_records_and_ends_with_its_fault(brokers: LocalCluster, lab: Switches) -> None:
    """LogAppendTime is the leader's Time.SYSTEM.milliseconds() at the append."""
    _, leader, follower = roles(brokers)
    at = await make_topic(brokers, "dated", [leader, follower], **{"message.timestamp.type": "LogAppendTime"})

    async def written() -> int:
        async with Producer(brokers.bootstrap_servers) as producer:
            sent = await producer.send(at.topic, b"x", partition=0)
            return (await sent).timestamp_ms

    begun = await written()
    await lab.skew_clock(leader, set_to="2030-01-01T00:00:00Z", frozen=True)
    assert await written() == 1_893_456_000_000
    [fault] = (await lab.list_faults(leader)).faults
    assert fault.text == "wall clock stopped at 2030-01-01T00:00:00Z"
    await lab.skew_clock(leader, offset_ms=-86_400_000)
    assert await written() < begun
    await lab.clear(leader)
    assert begun <= await written() < 1_893_456_000_000
