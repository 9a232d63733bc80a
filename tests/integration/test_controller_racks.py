"""Racks, from ``broker.rack`` in each broker's settings to the replicas of a topic (KIP-36)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.typed import Typed, typed
from tests.waiting import until_async
from tests.zookeeper_view import ZooKeeperView

from tidegauge.errors import TidegaugeError
from tidegauge_client.admin import Admin
from tidegauge_lab.local.broker_settings import server_properties
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

RACKS = {0: "east", 1: "east", 2: "west", 3: "west"}


class Racks:
    """Brokers started as a user starts them: ``tidegauge broker``, each with properties of its own."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.bootstrap = ",".join(cluster.bootstrap_servers)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, broker_id: int, rack: str | None) -> None:
        file = self.cluster.file
        entry = file.broker(broker_id)
        directory = self.cluster.directory / f"broker-{broker_id}"
        directory.mkdir(exist_ok=True)
        properties = directory / "own.properties"
        text = server_properties(
            entry,
            self.cluster.directory,
            membership={"broker.id": str(broker_id), "zookeeper.connect": file.zookeeper_address},
            profile=file.profile,
            settings={} if rack is None else {"broker.rack": rack},
        )
        properties.write_text(text)
        command = [sys.executable, "-P", "-m", "tidegauge_broker.server.verb", "--config", str(properties)]
        with (directory / "own.log").open("ab") as log:
            self._processes[broker_id] = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self, broker_id: int) -> None:
        process = self._processes.pop(broker_id)
        process.terminate()
        process.wait(150)

    async def until_known(self, racks: dict[int, str | None]) -> None:
        """Every broker's metadata shows all brokers with these racks."""

        async def known() -> bool:
            async with Admin(self.bootstrap) as admin:
                with contextlib.suppress(TidegaugeError):
                    for broker_id in racks:
                        reported = await admin.metadata_of(self.cluster.file.broker(broker_id).address)
                        if {
                            one.id: one.rack for one in reported.brokers.values()
                        } != racks or reported.controller_id is None:
                            return False
                    return True
            return False

        await until_async(known, limit=150)

    async def tidegauge(self, verb: str, *arguments: str) -> Typed:
        return await asyncio.to_thread(typed, verb, *arguments, "-b", self.bootstrap)


@pytest.fixture
def racks(make_cluster) -> Iterator[Racks]:
    made = Racks(make_cluster(up=False, brokers=len(RACKS)))
    yield made
    for broker_id in RACKS:
        with contextlib.suppress(KeyError):
            made.stop(broker_id)


async def test_a_topics_replicas_are_spread_over_the_racks_of_the_brokers_settings(racks: Racks):
    for broker_id, rack in RACKS.items():
        racks.start(broker_id, rack)
    await racks.until_known(dict(RACKS))
    view = ZooKeeperView(racks.cluster.file.zookeeper_address)
    tree = view.tree()
    assert {broker: json.loads(tree[f"/brokers/ids/{broker}"].data or b"")["rack"] for broker in RACKS} == RACKS
    described = await racks.tidegauge("describe-cluster")
    assert [line.count("Rack: west") for line in described.stdout.splitlines() if "Rack: " in line] == [0, 0, 1, 1]

    created = await racks.tidegauge("create-topic", "spread", "--partitions", "8", "--replication-factor", "2")
    assert created.stdout == "Created topic spread.\n"
    await racks.tidegauge("alter-topic", "spread", "--partitions", "12")
    assigned = json.loads(view.tree()["/brokers/topics/spread"].data or b"")["partitions"]
    assert len(assigned) == 12
    for replicas in assigned.values():
        assert {RACKS[replica] for replica in replicas} == {"east", "west"}
    assert Counter(replicas[0] for replicas in assigned.values()) == dict.fromkeys(RACKS, 3), "each leads as many"
    assert Counter(replica for replicas in assigned.values() for replica in replicas) == dict.fromkeys(RACKS, 6)

    # One broker without a rack: Kafka does not guess its rack.
    await asyncio.to_thread(racks.stop, 3)
    racks.start(3, None)
    await racks.until_known({**RACKS, 3: None})
    refused = await racks.tidegauge("create-topic", "nowhere", "--partitions", "1", "--replication-factor", "2")
    assert refused.code == 1
    assert "Not all brokers have rack information for replica rack aware assignment." in refused.stderr
    manual = await racks.tidegauge("create-topic", "by-hand", "--replica-assignment", "0:1")
    assert manual.stdout == "Created topic by-hand.\n", "who names the brokers needs no racks"
    view.close()
