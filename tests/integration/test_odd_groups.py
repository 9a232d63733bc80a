"""A client's acts on its own group harm no other group, no coordinator and no broker; real processes.

The rules by themselves: tests/unit/coordinator/test_timers.py, test_odd_records.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.waiting import until
from tests.wire_responses.probe import Peer, Probe, message

from tidegauge.errors import ErrorCode
from tidegauge.kafka.coordinator.group_metadata import GroupMetadataValue, MemberMetadata
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.records import group_key, group_value
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
ONE_PARTITION = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "2000",
}
RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.value,
    ErrorCode.NOT_COORDINATOR.value,
    ErrorCode.REQUEST_TIMED_OUT.value,
}
ADMIN_CLIENT = "__admin_client"
"""The client id that may write to internal topics (Topic.isInternal in KafkaApis.handleProduceRequest)."""


@contextlib.contextmanager
def probing(cluster: LocalCluster) -> Iterator[Probe]:
    (address,) = cluster.kafka_bootstrap_servers
    host, _, port = address.rpartition(":")
    probe = Probe([(host, int(port))])
    try:
        yield probe
    finally:
        probe.close()


def one_broker(make_cluster: Any) -> LocalCluster:
    return make_cluster(brokers=1, settings=ONE_PARTITION)


def coordinator(probe: Probe, group: str) -> int:
    """Return the broker that coordinates a group, once there is one."""

    def found() -> Any:
        request = message("FindCoordinator", key_type=0, coordinator_keys=[group])
        (one,) = probe.ask(probe.brokers[0], 4, request).coordinators
        return None if one.error_code else one

    return until(found).node_id


def commit(probe: Probe, group: str) -> int:
    """Commit an offset without members, once the coordinator has loaded and can append; return the error."""
    wanted = {
        "name": "__consumer_offsets",
        "partitions": [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}],
    }
    request = message("OffsetCommit", group_id=group, topics=[wanted])

    def tried() -> Any:
        (topic,) = probe.ask(coordinator(probe, group), 8, request).topics
        error = topic.partitions[0].error_code
        return None if error in RETRIABLE else (error,)

    return until(tried)[0]


def join(peer: Peer, group: str, instance: str, *, rebalance_timeout_ms: int) -> Any:
    """Send the JoinGroup of a static member that has just started; return the request."""
    request = message(
        "JoinGroup",
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=rebalance_timeout_ms,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    peer.send(7, request)
    return request


def test_static_members_with_a_rebalance_timeout_of_0_hang_no_coordinator(make_cluster: Any) -> None:
    """Two come again with 0 (KIP-345: no rebalance), one is removed: no member rejoins, and the phase is over at once.

    Kafka's purgatory is busy with it and serves on: the last member can leave, too. The end of its session:
    tests/unit/coordinator/test_timers.py.
    """
    cluster = one_broker(make_cluster)
    pid = cluster.pid_of(0)
    with probing(cluster) as probe:
        assert commit(probe, "h") == 0, "the coordinator has loaded"
        where = coordinator(probe, "g")
        peers = {instance: probe.new_peer(where) for instance in ("a", "b")}
        requests = {one: join(peer, "g", one, rebalance_timeout_ms=10_000) for one, peer in peers.items()}
        joined = {one: peer.receive(7, requests[one]) for one, peer in peers.items()}
        assert [one.error_code for one in joined.values()] == [0, 0]
        leader = next(one for one, response in joined.items() if response.leader == response.member_id)
        for instance in sorted(peers, key=lambda one: one != leader):
            response = joined[instance]
            sync = message(
                "SyncGroup",
                group_id="g",
                generation_id=response.generation_id,
                member_id=response.member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[{"member_id": one.member_id, "assignment": b"x"} for one in joined.values()],
            )
            assert peers[instance].ask(5, sync).error_code == 0
        for instance, peer in peers.items():
            again = join(peer, "g", instance, rebalance_timeout_ms=0)
            response = peer.receive(7, again)
            assert (response.error_code, response.generation_id) == (0, joined[instance].generation_id)
        leave = message("LeaveGroup", group_id="g", members=[{"member_id": "", "group_instance_id": "b"}])
        assert peers["a"].ask(4, leave).error_code == 0
        assert peers["b"].ask(3, message("ApiVersions", client_software_name="t", client_software_version="1"))
        assert commit(probe, "h") == 0
        describe = message("DescribeGroups", groups=["g"])

        def state() -> str:
            return probe.ask(where, 5, describe).groups[0].group_state

        assert state() in {"PreparingRebalance", "Empty"}, "Empty: the machine took longer than the session of 30 s"
        leave = message("LeaveGroup", group_id="g", members=[{"member_id": "", "group_instance_id": "a"}])
        assert peers["b"].ask(4, leave).error_code == 0
        until(lambda: state() == "Empty")
        for peer in peers.values():
            peer.close()
    assert cluster.pid_of(0) == pid


def test_a_record_that_makes_no_sense_costs_its_group_at_each_start(make_cluster: Any) -> None:
    """A client named __admin_client writes the record of a group whose leader is not a member, as Kafka lets it."""
    cluster = one_broker(make_cluster)
    member = MemberMetadata("m", None, "c", "h", 1_000, 6_000, b"", b"")
    value = GroupMetadataValue("consumer", 1, "range", "not-a-member", int(time.time() * 1000), [member])
    batch = batch_of([Record(group_key("poisoned"), group_value(value))], int(time.time() * 1000))
    with probing(cluster) as probe:
        assert commit(probe, "sound") == 0
        peer = probe.new_peer(probe.brokers[0], ADMIN_CLIENT)
        partition = {"index": 0, "records": batch}
        topics = [{"name": "__consumer_offsets", "partition_data": [partition]}]
        produced = peer.ask(9, message("Produce", acks=-1, timeout_ms=10_000, topic_data=topics))
        assert produced.responses[0].partition_responses[0].error_code == 0
        peer.close()
    for _ in range(2):
        cluster.kill(0, expire=True)
        cluster.start(0)
        pid = cluster.pid_of(0)
        with probing(cluster) as probe:
            where = coordinator(probe, "sound")

            def error(group: str, probe: Probe = probe, where: int = where) -> int:
                request = message("OffsetFetch", groups=[{"group_id": group, "topics": None}])
                (found,) = probe.ask(where, 8, request).groups
                return found.error_code

            until(lambda error=error: error("sound") == ErrorCode.NONE.value)
            assert error("poisoned") == ErrorCode.UNKNOWN_SERVER_ERROR.value
            assert commit(probe, "poisoned") == ErrorCode.UNKNOWN_SERVER_ERROR.value
            assert commit(probe, "sound") == 0
        assert cluster.pid_of(0) == pid
    said = (cluster.logs / "broker-0.log").read_text()
    assert "Group 'poisoned' (__consumer_offsets-0) is out of service: its record makes no sense: " in said
    assert "its leader 'not-a-member' is not a member" in said
    with probing(cluster) as probe:
        delete = message("DeleteGroups", groups_names=["poisoned"])
        assert probe.ask(coordinator(probe, "poisoned"), 2, delete).results[0].error_code == 0
        assert commit(probe, "poisoned") == 0
