"""The znode tree of a cluster: every znode, its payload to the byte, its kind, version and owner.

Source: kafka.zk.ZkData. Changing values (ids, times, ports, sessions) are read at their first occurrence and
compared everywhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from tests.waiting import until
from tests.zookeeper_view import ZooKeeperView

from tidegauge_client.admin import Admin
from tidegauge_client.producer import Producer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

UUID = re.compile(r"[A-Za-z0-9_-]{22}")
PERSISTENT_AND_NULL = {
    "/admin",
    "/admin/delete_topics",
    "/brokers",
    "/brokers/ids",
    "/brokers/seqid",
    "/brokers/topics",
    "/cluster",
    "/config",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/ips",
    "/config/topics",
    "/config/users",
    "/consumers",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
}


@pytest.fixture
def cluster(make_cluster) -> LocalCluster:
    return make_cluster(settings={"broker.rack": "cellar"})


@pytest.fixture
def view(cluster: LocalCluster) -> Iterator[ZooKeeperView]:
    made = ZooKeeperView(cluster.file.zookeeper_address)
    yield made
    made.close()


async def test_every_znode_of_a_young_cluster_and_of_a_topic(cluster: LocalCluster, view: ZooKeeperView) -> None:
    tree = view.tree()
    brokers = {f"/brokers/ids/{broker.id}": broker for broker in cluster.file.brokers}
    assert set(tree) == PERSISTENT_AND_NULL | set(brokers) | {
        "/cluster/id",
        "/controller",
        "/controller_epoch",
        "/feature",
    }
    for path in PERSISTENT_AND_NULL:
        assert (tree[path].data, tree[path].version, tree[path].owner) == (None, 0, 0), path

    cluster_id = json.loads(tree["/cluster/id"].data)["id"]
    assert UUID.fullmatch(cluster_id)
    assert tree["/cluster/id"].data == b'{"version":"1","id":"%s"}' % cluster_id.encode(), "the version is a string"
    assert tree["/feature"].data == b'{"features":{},"version":2,"status":1}'
    assert (tree["/controller_epoch"].data, tree["/controller_epoch"].version) == (b"1", 1), (
        "made as 0, set by the first"
    )
    for path in ("/cluster/id", "/feature", "/controller_epoch"):
        assert tree[path].owner == 0, path

    sessions = {}
    for path, broker in brokers.items():
        node = json.loads(tree[path].data)
        assert node == {
            "version": 5,
            "host": broker.host,
            "port": broker.kafka_port,
            "endpoints": [f"PLAINTEXT://{broker.kafka_address}", f"GRPC://{broker.address}"],
            "jmx_port": -1,
            "timestamp": node["timestamp"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "GRPC": "PLAINTEXT"},
            "features": {},
            "rack": "cellar",
        }
        assert isinstance(node["timestamp"], str)
        assert tree[path].version == 1, "made empty, then set, in one transaction"
        sessions[broker.id] = tree[path].owner
    assert len(set(sessions.values()) - {0}) == 3, "each broker's own session"

    controller = json.loads(tree["/controller"].data)
    assert list(controller) == ["version", "brokerid", "timestamp", "kraftControllerEpoch"]
    assert (controller["version"], controller["kraftControllerEpoch"]) == (2, -1)
    assert isinstance(controller["timestamp"], str)
    assert (tree["/controller"].owner, tree["/controller"].version) == (sessions[controller["brokerid"]], 0)

    young = set(tree)
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic("orders", partitions=2, replication_factor=3, configs={"min.insync.replicas": "2"})
        tree = view.tree()
        _check_topic(tree, young)
        await _check_producer_ids(cluster, view)
        await admin.delete_topic("orders")
    until(lambda: set(view.tree()) == young, what="a deleted topic leaves nothing")


def _check_topic(tree, young: set[str]) -> None:
    topic = "/brokers/topics/orders"
    states = {f"{topic}/partitions/{partition}/state" for partition in range(2)}
    parents = {f"{topic}/partitions", f"{topic}/partitions/0", f"{topic}/partitions/1"}
    assert set(tree) - young == {topic, "/config/topics/orders"} | parents | states
    assert all(tree[path].owner == 0 for path in set(tree) - young), "all persistent"
    assert tree["/config/topics/orders"].data == b'{"version":1,"config":{"min.insync.replicas":"2"}}'
    node = json.loads(tree[topic].data)
    assert list(node) == ["partitions", "topic_id", "adding_replicas", "removing_replicas", "version"]
    assert (node["adding_replicas"], node["removing_replicas"], node["version"]) == ({}, {}, 3)
    assert UUID.fullmatch(node["topic_id"])
    assert tree[topic].version == 0
    for path in parents:
        assert (tree[path].data, tree[path].version) == (None, 0)
    for partition in range(2):
        replicas = node["partitions"][str(partition)]
        shown = ",".join(map(str, replicas))
        assert tree[f"{topic}/partitions/{partition}/state"].data == (
            b'{"controller_epoch":1,"leader":%d,"version":1,"leader_epoch":0,"isr":[%s]}'
            % (replicas[0], shown.encode())
        )
        assert tree[f"{topic}/partitions/{partition}/state"].version == 0, "the partition epoch: created, not set"
    # Settings first, then the topic, then what the controller makes of it: each in a transaction of its own.
    order = ["/config/topics/orders", topic, f"{topic}/partitions", f"{topic}/partitions/0", min(states)]
    assert sorted(order, key=lambda path: tree[path].czxid) == order


async def _check_producer_ids(cluster: LocalCluster, view: ZooKeeperView) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await (await producer.send("orders", b"one", partition=0))
    block = view.json("/latest_producer_id_block")
    assert list(block) == ["version", "broker", "block_start", "block_end"]
    assert (block["version"], block["broker"] in {0, 1, 2}) == (1, True)
    # Each broker that the producer asked has taken a block; the last one is there, in strings, its end inclusive.
    first = int(block["block_start"])
    assert (block["block_start"], block["block_end"], first % 1000) == (str(first), str(first + 999), 0)
