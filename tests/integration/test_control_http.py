"""`tidegauge control` on real brokers: faults by role, waits, steps, events and reset, through the example's client.

The shared cluster; the control server is the process that `up --control` starts.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.steering import steering
from tests.waiting import until

from tidegauge.partition import TopicPartition
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_lab.local import control_server, layout, takedown
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def served(_module_cluster: LocalCluster) -> Iterator[Any]:
    """The control server of the shared cluster."""
    try:
        yield steering.Control(control_server.start(_module_cluster.directory, "127.0.0.1:0"))
    finally:
        takedown.end([layout.control_process(_module_cluster.directory)], grace_seconds=5.0)


@pytest.fixture
def control(cluster: LocalCluster, served: Any) -> Iterator[Any]:
    """The control server; what a test leaves is reset."""
    assert cluster.status()["control"] == served.url
    yield served
    served.reset()


def newest(control: Any) -> int:
    """Return the number of the last request in the journal; else 0."""
    return max((one["number"] for one in control.ask("GET", "/v1/requests")["requests"]), default=0)


def test_a_killed_leader_is_replaced_and_a_reset_makes_it_undone(control: Any, cluster: LocalCluster):
    """POST /v1/brokers/leader-of:T-P/kill, /v1/wait, /v1/events and /v1/reset each are true when they return."""
    assert control.cluster()["ready"]
    assert cluster.status()["control"] == control.url
    control.steps({"create_topic": {"name": "steered", "assignment": [0, 1, 2]}}, {"produce": ["a", "b"]})
    control.wait(in_sync=["steered"])
    before = control.partition("steered")
    assert [one["log_end_offset"] for one in before["replicas"]] == [2, 2, 2]
    assert before["high_watermark"] == 2
    killed = control.broker("leader-of:steered-0", "kill", expire=True)["broker"]
    assert killed == before["leader"]
    assert cluster.state_of(killed) is ProcessState.DOWN
    assert control.cluster()["lacks"] == f"broker {killed} is down"
    with pytest.raises(steering.Refused) as refused:
        control.wait(isr={"steered-0": [0, 1, 2]}, high_watermark={"steered-0": 3})
    assert refused.value.status == 400, "one condition at a time"
    after = control.wait(leader={"steered-0": {"not": killed}}, timeout_ms=120_000)["actual"]["steered-0"]
    assert after["leader"] != killed
    assert after["leader_confirms"]
    assert after["leader_epoch"] > before["leader_epoch"]
    silent = {one["id"]: (one["responds"], one["end"]) for one in control.cluster()["brokers"]}[killed]
    assert (silent[0], silent[1]["how"]) == (False, "killed")
    event = control.wait(event={"kind": "role", "partition": "steered-0", "broker": after["leader"]})["actual"]
    assert (event["kind"], event["topic"], event["source"]) == ("role", "steered", f"broker-{after['leader']}")
    with pytest.raises(steering.Refused) as refused:
        control.wait(truncated={"partition": "steered-0", "broker": after["leader"]}, timeout_ms=100)
    assert refused.value.status == 408
    with pytest.raises(steering.Refused) as refused:
        control.wait(event={"kind": "nonsense"})
    assert refused.value.status == 400
    with pytest.raises(steering.Refused) as refused:
        control.wait(isr={"steered-0": [0, 1, 2]}, timeout_ms=100)
    assert refused.value.status == 408
    assert killed not in refused.value.actual["steered-0"]["isr"]
    kills = [
        one for one in control.events() if one.get("action") == "kill" and one.get("process") == f"broker-{killed}"
    ]
    assert kills, "the events of a request include what was done before it"
    assert control.reset()["topics_deleted"] == ["steered"]
    assert cluster.state_of(killed) is ProcessState.UP
    assert control.cluster()["ready"]
    with pytest.raises(steering.Refused) as refused:
        control.partition("steered")
    assert refused.value.status == 404
    control.steps({"create_topic": {"name": "steered", "assignment": [0]}}), "the name can be used again at once"


def test_a_step_that_fails_says_what_is_true_and_how_far_it_came(control: Any):
    control.steps({"create_topic": {"name": "stepped", "assignment": [0, 1]}})
    with pytest.raises(steering.Refused) as refused:
        control.steps({"produce": ["m"]}, {"produce": {"values": ["n"], "via": 1}}, {"kill": 0})
    assert (refused.value.status, refused.value.name) == (409, "STEP_FAILED")
    assert "NOT_LEADER_OR_FOLLOWER" in str(refused.value)
    assert control.partition("stepped")["high_watermark"] == 1, "the third step was not played"
    with pytest.raises(steering.Refused) as refused:
        control.steps({"wait_leo": {"leo": {"0": 9}}}, timeout_ms=300)
    assert refused.value.status == 408
    assert "LEO of broker 0 is 1" in str(refused.value)


def test_every_declared_action_and_fault_has_a_path(control: Any):
    """One vocabulary: words and checks come from the declared table."""
    control.steps({"create_topic": {"name": "declared", "assignment": [0, 1]}})
    held = control.broker("follower-of:declared-0", "hold_fetch", partition="declared-0")
    assert (held["broker"], held["changed"]) == (1, True)
    assert control.broker(1, "isolate", **{"from": "zookeeper", "delay_ms": 5})["changed"]
    assert control.broker(1, "clear_faults", holds=True)["text"] == "Broker 1 cleared of faults"
    for verb, fields, status in [("kill", {"held": ["declared-0"]}, 400), ("isolate", {}, 400), ("dance", {}, 400)]:
        with pytest.raises(steering.Refused) as refused:
            control.broker("leader-of:declared-0", verb, **fields)
        assert refused.value.status == status
    for target, status in [(7, 404), ("leader-of:nothing-0", 404), ("coordinator-of:group:none", 409)]:
        with pytest.raises(steering.Refused) as refused:
            control.broker(target, "kill")
        assert refused.value.status == status
    assert control.cluster()["ready"]


def test_rules_affect_requests_of_kafka_clients(control: Any):
    """Errors, held responses, hits over all brokers, the journal, and a sticky rule that outlives its broker."""
    control.steps({"create_topic": {"name": "ruled", "assignment": [0]}})
    servers, before = control.bootstrap_servers, newest(control)
    failing = control.fault({"keys": ["Produce"], "topic": "ruled", "error": "NOT_ENOUGH_REPLICAS", "client_id": "app"})
    sticky = control.fault({"keys": ["Produce"], "observe": True, "count": -1, "sticky": True})
    assert kafka_client(PRODUCE, servers, "ruled") == "0", "the producer has sent it again"
    assert control.wait_fault(failing, hits=1)["actual"]["hits"] == 1
    hits = control.wait_fault(sticky, hits=1)["actual"]["hits"]
    with pytest.raises(steering.Refused) as refused:
        control.wait_fault(failing, hits=2, timeout_ms=50)
    assert (refused.value.status, refused.value.actual["hits"]) == (408, 1)
    arrived = control.ask("GET", f"/v1/requests?client_id=app&api=Produce&after={before}")["requests"]
    assert [(one["broker"], one["partitions"], one["done"]) for one in arrived] == [
        (0, ["ruled-0"], "error 19 of ruled"),
        (0, ["ruled-0"], ""),
    ]
    control.end_fault(failing)
    plain = control.fault({"keys": ["Produce"], "observe": True, "count": -1})
    control.broker(0, "kill", expire=True)
    control.start(0)
    control.wait(leader={"ruled-0": 0}, timeout_ms=60_000)
    assert kafka_client(PRODUCE, servers, "ruled") == "1"
    assert control.wait_fault(sticky, hits=hits + 1)["actual"]["hits"] == hits + 1
    ended = control.ask("GET", f"/v1/faults/{plain}")
    assert ended["hits"] == 0, "it ended with the process that it was set in"
    assert 0 not in ended["rules"][0]["in_force"]
    assert 0 in control.ask("GET", f"/v1/faults/{sticky}")["rules"][0]["in_force"]
    held = control.fault({"keys": ["Produce"], "hold": True})
    with client_process(PRODUCE, servers, "ruled") as producing:
        assert control.wait_fault(held, held=1)["actual"]["hits"] == 1
        assert control.wait(high_watermark={"ruled-0": 3}), "the effect is there, its response is not"
        assert producing.poll() is None
        control.end_fault(held)
        assert producing.communicate(timeout=60)[0].strip() == "2"
    assert control.ask("DELETE", "/v1/faults")["deleted"]
    assert control.ask("GET", "/v1/faults") == {"faults": []}
    for wrong in ({"keys": ["Produce"], "eror": 1}, {"keys": ["Heartbeat"], "error": "NO"}, {"keys": ["Produce"]}):
        with pytest.raises(steering.Refused) as refused:
            control.fault(wrong)
        assert refused.value.status == 400
    with pytest.raises(steering.Refused) as refused:
        control.end_fault(failing)
    assert refused.value.status == 404


def test_a_rule_meets_both_wires_and_says_which(control: Any, cluster: LocalCluster):
    """The command line's `produce` speaks Kafka's protocol, or gRPC: a rule meets it as it meets any Kafka client."""
    control.steps({"create_topic": {"name": "wired", "assignment": [0]}})
    rule = {"keys": ["Produce"], "topic": "wired", "error": "NOT_ENOUGH_REPLICAS", "count": -1}
    added = control.ask("POST", "/v1/faults", {"rules": [rule, {"keys": ["SaslHandshake"], "hold": True}]})
    assert [one["acts_on"] for one in added["rules"]] == [["gRPC", "Kafka protocol"], ["Kafka protocol"]]
    verb = [str(Path(sys.executable).parent / "tidegauge"), "produce", "wired", "--dir", str(cluster.directory)]
    limits = ["--delivery-timeout-ms", "3000", "--request-timeout-ms", "1000"]
    hits = 0
    for wire in ([], ["--wire", "grpc"]):
        before = newest(control)
        done = subprocess.run([*verb, *limits, *wire], input="a\n", capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "NOT_ENOUGH_REPLICAS" in done.stderr
        last, hits = hits, control.ask("GET", f"/v1/faults/{added['id']}")["rules"][0]["hits"]
        assert hits > last, wire
        of_kafka = control.ask("GET", f"/v1/requests?client_id=tidegauge&api=Produce&after={before}")["requests"]
        assert bool(of_kafka) is not bool(wire), "gRPC's Produce has no client id"
    looked_at = control.partition("wired")
    assert looked_at["high_watermark"] == 0, "the control's own calls are not met, and nothing was appended"


@pytest.mark.long
def test_a_rule_of_one_partition_leaves_the_others_of_the_request_their_effect(control: Any):
    """One Produce request of a real client names both partitions; a throttle time and a slow response reach it, too."""
    servers, before = control.bootstrap_servers, newest(control)
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic("partly", num_partitions=2, replica_assignment=[[0], [0]])
    admin.create_topics([topic])["partly"].result(60)
    control.wait(in_sync=["partly"])
    control.fault({"keys": ["Metadata"], "throttle_time_ms": 20, "bytes_per_second": 5_000})
    refused = control.fault(
        {"keys": ["Produce"], "topic": "partly", "partitions": [0], "error": "TOPIC_AUTHORIZATION_FAILED"}
    )
    assert kafka_client(PRODUCE_TO_BOTH, servers, "partly") == "TopicAuthorizationFailedError 0"
    assert control.wait_fault(refused, hits=1)
    ends = [control.partition("partly", number)["replicas"][0]["log_end_offset"] for number in (0, 1)]
    assert ends == [0, 1]
    [entry] = control.ask("GET", f"/v1/requests?api=Produce&after={before}")["requests"]
    assert sorted(entry["partitions"]) == ["partly-0", "partly-1"]
    assert entry["done"] == "error 29 of partly-0"


@pytest.mark.long
def test_a_frozen_and_a_slow_connection_are_met_by_a_real_client_and_faults_stand_in_the_journal(control: Any):
    """A frozen request has no effect until the rule ends; others go on. A bandwidth counts both ways."""
    control.steps({"create_topic": {"name": "slow", "assignment": [0]}})
    servers, before = control.bootstrap_servers, newest(control)
    frozen = control.fault({"keys": ["Produce"], "client_id": "app", "freeze": True})
    with client_process(PRODUCE, servers, "slow") as producing:
        assert control.wait_fault(frozen, held=1)["actual"]["hits"] == 1
        assert control.partition("slow")["high_watermark"] == 0
        assert kafka_client(PRODUCE, servers, "slow") == "0", "another connection, and the rule's count is used up"
        assert producing.poll() is None
        control.end_fault(frozen)
        assert producing.communicate(timeout=60)[0].strip() == "1"
    journal = control.ask("GET", f"/v1/requests?client_id=app&api=Produce&after={before}")["requests"]
    assert [one["done"] for one in journal] == ["connection frozen", ""]

    bytes_per_second, seconds = 20_000, 2
    large = "x" * bytes_per_second * seconds
    for api, program, said in (("Produce", PRODUCE, "2"), ("Fetch", CONSUME_LAST, str(len(large)))):
        slow = control.fault({"keys": [api], "client_id": "app", "bytes_per_second": bytes_per_second, "count": -1})
        begun = time.monotonic()
        assert kafka_client(program, servers, "slow", large) == said
        assert time.monotonic() - begun >= seconds, "no sooner than its bytes could arrive"
        assert control.ask("GET", f"/v1/faults/{slow}")["hits"] >= 1
        control.end_fault(slow)

    last = newest(control)
    control.broker(0, "inject_error", rpc="Produce", error="NOT_ENOUGH_REPLICAS", times=1)
    assert kafka_client(PRODUCE, servers, "slow") == "3", "the producer has sent it again"
    [entry] = control.ask("GET", f"/v1/requests?api=Produce&after={last}")["requests"]
    assert re.fullmatch(r"error NOT_ENOUGH_REPLICAS \(fault \d+\)", entry["done"]), (
        "no rule is in force, and it is there"
    )


CONSUME_LAST = """
import sys
from confluent_kafka import Consumer, TopicPartition

consumer = Consumer({"bootstrap.servers": sys.argv[1], "client.id": "app", "group.id": "unused"})
consumer.assign([TopicPartition(sys.argv[2], 0, 2)])
print(len(consumer.poll(60).value()))
consumer.close()
"""
PRODUCE_TO_BOTH = """
import asyncio
import sys
from aiokafka import AIOKafkaProducer


async def main():
    async with AIOKafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=500) as producer:
        sent = [await producer.send(sys.argv[2], b"x", partition=number) for number in (0, 1)]
        first, second = await asyncio.gather(*sent, return_exceptions=True)
        print(type(first).__name__, second.offset)


asyncio.run(main())
"""
PRODUCE = """
import sys
from confluent_kafka import Producer

offsets = []
settings = {"bootstrap.servers": sys.argv[1], "client.id": "app", "enable.idempotence": True, "linger.ms": 0}
producer = Producer(settings)
value = (sys.argv[3] if len(sys.argv) > 3 else "x").encode()
producer.produce(sys.argv[2], value, partition=0, on_delivery=lambda error, message: offsets.append(message.offset()))
producer.flush(60)
print(*offsets)
"""


def client_process(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)


def kafka_client(program: str, *arguments: str) -> str:
    with client_process(program, *arguments) as process:
        return process.communicate(timeout=120)[0].strip()


@pytest.mark.long
def test_groups_are_listed_although_a_broker_does_not_respond(make_cluster: Callable[..., LocalCluster]):
    """A broker that is paused, and alive for ZooKeeper, takes its own groups from the list, not the others' groups."""
    cluster = make_cluster(settings={"zookeeper.session.timeout.ms": "40000"})
    control = steering.Control(control_server.start(cluster.directory, "127.0.0.1:0"))
    control.steps({"create_topic": {"name": "listed", "assignment": [0, 1, 2]}})
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        for number in range(10):
            admin.commit_offsets(f"readers-{number}", {TopicPartition("listed", 0): OffsetAndMetadata(0)})
    complete = control.ask("GET", "/v1/groups")
    coordinators = {one["id"]: one["coordinator"] for one in complete["groups"]}
    assert (len(coordinators), complete["lacks"]) == (10, "")
    silent = coordinators["readers-0"]
    others = sorted(name for name, coordinator in coordinators.items() if coordinator != silent)
    assert others, "the groups have several coordinators"

    control.broker(silent, "pause")
    partial = control.ask("GET", "/v1/groups")
    lacks = "does not respond to broker [0-2]; the groups that it coordinates, if there are any, are missing"
    assert [one["id"] for one in partial["groups"]] == others
    assert re.fullmatch(f"Broker {silent} {lacks}", partial["lacks"])
    assert control.ask("GET", "/v1/transactions")["lacks"].startswith(f"Broker {silent} does not respond")
    listed = subprocess.run(
        [str(Path(sys.executable).with_name("tidegauge")), "list-groups", "--dir", str(cluster.directory)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (listed.returncode, listed.stdout.split()) == (1, others)
    assert re.search(f"Broker {silent} {lacks}", listed.stderr)

    control.broker(silent, "resume")
    until(lambda: control.ask("GET", "/v1/groups") == complete)


def test_a_snapshot_brings_back_records_and_topics(make_cluster: Callable[..., LocalCluster]):
    """POST /v1/snapshots/NAME and its restore; a reset leaves what the snapshot held."""
    local = make_cluster(zookeeper=None)
    served = steering.Control(control_server.start(local.directory, "127.0.0.1:0"))
    served.steps({"create_topic": {"name": "kept", "assignment": [0, 1, 2]}}, {"produce": ["a", "b"]})
    served.ask("POST", "/v1/snapshots/two-records")
    served.steps({"create_topic": {"name": "more", "assignment": [0]}})
    served.steps({"produce": {"partition": "kept-0", "values": ["c"]}})
    served.ask("POST", "/v1/snapshots/two-records/restore")
    assert served.ask("GET", "/v1/topics")["topics"] == ["kept"]
    assert served.wait(in_sync=["kept"])
    assert [one["log_end_offset"] for one in served.partition("kept")["replicas"]] == [2, 2, 2]
    assert served.reset()["topics_deleted"] == []
    LocalCluster(local.directory).restore("two-records")
    assert served.reset()["topics_deleted"] == [], "a restore of the command line counts too"
    assert served.partition("kept")["high_watermark"] == 2
    snapshots = local.directory / layout.SNAPSHOTS
    snapshots.rename(local.directory / "aside")
    snapshots.touch()
    with pytest.raises(steering.Refused, match=r"snapshots.*the cluster is up again") as refused:
        served.ask("POST", "/v1/snapshots/three")
    assert refused.value.status == 409
    assert served.cluster()["ready"], "a snapshot that can't be written leaves the cluster up"
