"""Any client may write into ZooKeeper: the live controller, and the next one, work on beside malformed znodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from tests.waiting import until

from tidegauge_client import Admin, Consumer, Producer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

RUBBISH = (
    b"",
    b"\xff\xfe\x00",
    b"{",
    b"[]",
    b"null",
    b"7",
    b'{"version":99}',
    b'{"version":3,"partitions":{"0":["x"]},"topic_id":7}',
    b'{"version":1,"partitions":[{"topic":5,"partition":"x","replicas":null}]}',
    b'{"version":2,"entity_path":"topics/../../controller"}',
    b'{"version":5,"host":null,"port":-1,"endpoints":["SASL_SSL://[:1"],"timestamp":"x"}',
    b"[" * 50_000,
)
PLACES = (
    "/brokers/topics/{name}",
    "/brokers/topics/bad name{number}",
    "/brokers/topics/kept/partitions/{name}",
    "/brokers/topics/{name}/partitions/0/state",
    "/brokers/ids/{number}",
    "/brokers/ids/{name}",
    "/config/topics/{name}",
    "/config/brokers/{number}",
    "/config/changes/config_change_{number:010d}",
    "/config/changes/{name}",
    "/isr_change_notification/isr_change_{number:010d}",
    "/log_dir_event_notification/log_dir_event_{number:010d}",
    "/log_dir_event_notification/{name}",
    "/admin/delete_topics/{name}",
    "/admin/{name}",
)
"""Each with each rubbish; the numbers belong to no broker."""
ALONE = (
    "/admin/preferred_replica_election",
    "/admin/reassign_partitions",
    "/config/topics/kept",
)
"""Each with each rubbish, one after the other. Not ``/latest_producer_id_block``: who can't read it gives out no ids,
since ids that were given twice would make brokers take new records for duplicates."""


async def works(cluster: LocalCluster, topic: str) -> None:
    """A topic can be made, written and read; the one from before is read."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1)
    async with Producer(cluster.bootstrap_servers) as producer:
        await (await producer.send(topic, b"new"))
    async with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic, "kept"])
        found: set[bytes | None] = set()
        while found < {b"old", b"new"}:
            found |= {record.value for record in await consumer.poll(500)}


def leave(zookeeper: Any, place: str, rubbish: bytes) -> None:
    """Write it where a znode may be, or be deleted by the controller at any moment."""
    while True:
        try:
            if zookeeper.exists(place):
                zookeeper.set(place, rubbish)
            else:
                zookeeper.create(place, rubbish)
        except (NoNodeError, NodeExistsError):
            continue
        return


def test_rubbish_in_znodes_stops_neither_the_controller_nor_its_successor(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(brokers=2)
    asyncio.run(begin(cluster))
    zookeeper: Any = KazooClient(hosts=cluster.file.zookeeper_address, timeout=30)  # kazoo ships no types
    zookeeper.start(timeout=30)
    try:
        number = 100
        for place in PLACES:
            for rubbish in RUBBISH:
                number += 1
                zookeeper.create(place.format(name=f"rubbish-{number}", number=number), rubbish, makepath=True)
        for place in ALONE:
            for rubbish in RUBBISH:
                leave(zookeeper, place, rubbish)
        asyncio.run(works(cluster, "beside-rubbish"))
        first = cluster.status()["controller"]["broker"]
        cluster.stop(first)
        until(lambda: cluster.status()["controller"]["broker"] not in {None, first}, what="another controller")
        asyncio.run(works(cluster, "under-its-successor"))
        cluster.start(first)
        asyncio.run(works(cluster, "with-all-brokers"))
        epoch = cluster.status()["controller"]["epoch"]
        zookeeper.set("/controller", b"rubbish")
        zookeeper.delete("/controller")
        until(lambda: (cluster.status()["controller"]["epoch"] or 0) > epoch, what="an election")
        asyncio.run(works(cluster, "after-it"))
    finally:
        zookeeper.stop()
        zookeeper.close()
    for broker in cluster.file.brokers:
        assert "Traceback" not in (cluster.logs / f"broker-{broker.id}.log").read_text()


async def begin(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic("kept", partitions=1, replication_factor=2)
    async with Producer(cluster.bootstrap_servers) as producer:
        await (await producer.send("kept", b"old"))
