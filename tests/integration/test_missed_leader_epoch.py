"""A transaction coordinator that missed a leader epoch of its partition loads again (``replica/leaderships.py``).

Another coordinator may have led in that epoch and written markers with it; markers of the old coordinator epoch are
refused from then on, and its transactions would never complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.waiting import until, until_async
from tests.wire_responses.batches import TRANSACTIONAL, batch
from tests.wire_responses.probe import Peer, message

from tidegauge.groups import partition_of
from tidegauge.partition import TopicPartition
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge.znodes import CONTROLLER, PartitionStateNode, state_path
from tidegauge_client import Admin
from tidegauge_controller.zookeeper.client import ZooKeeper
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Switches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SETTINGS = {"auto.leader.rebalance.enable": "false"}
ID, TOPIC = "app", "orders"
ABORTS = False
COMPLETE = "CompleteCommit"


class Transaction:
    """A transaction of a producer that is played by hand: one batch for one partition.

    Args:
        addresses: the brokers' Kafka listeners, by id.
        leader: of the partition.
    """

    def __init__(self, addresses: list[str], leader: int) -> None:
        self._peers = [Peer(*_split(address)) for address in addresses]
        self._leader = leader
        self.coordinator = -1
        self._producer: dict[str, int] = {}

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    def _until_done(self, ask: Callable[[], Any], what: str) -> Any:
        """Ask until there is no error: a coordinator may load, and a topic may be in creation."""
        found: list[Any] = []

        def is_done() -> bool:
            found[:] = [ask()]
            return found[0].error_code == 0

        until(is_done, timeout=60, what=what)
        return found[0]

    def _find(self) -> Any:
        request = message("FindCoordinator", key_type=1, coordinator_keys=[ID])
        return self._peers[self._leader].ask(4, request).coordinators[0]

    def begin(self) -> None:
        """Write a batch in a transaction that stays open."""
        self.coordinator = self._until_done(self._find, "there is a coordinator").node_id
        peer = self._peers[self.coordinator]
        init = message("InitProducerId", transactional_id=ID, transaction_timeout_ms=300_000)
        made = self._until_done(lambda: peer.ask(4, init), "the producer has an id")
        self._producer = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        add = message(
            "AddPartitionsToTxn",
            v3_and_below_transactional_id=ID,
            **{f"v3_and_below_{name}": value for name, value in self._producer.items()},
            v3_and_below_topics=[{"name": TOPIC, "partitions": [0]}],
        )
        added = peer.ask(3, add).results_by_topic_v3_and_below[0].results_by_partition[0]
        assert added.partition_error_code == 0
        records = batch(producer_id=made.producer_id, epoch=made.producer_epoch, sequence=0, attributes=TRANSACTIONAL)
        data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}]
        write = message("Produce", transactional_id=ID, acks=-1, timeout_ms=30_000, topic_data=data)
        written = self._peers[self._leader].ask(9, write).responses[0].partition_responses[0]
        assert written.error_code == 0

    def write_marker(self, coordinator_epoch: int) -> None:
        """Write what a coordinator of this epoch writes when it aborts the transaction."""
        marker = self._producer | {
            "transaction_result": ABORTS,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
            "coordinator_epoch": coordinator_epoch,
        }
        response = self._peers[self._leader].ask(1, message("WriteTxnMarkers", markers=[marker]))
        assert response.markers[0].topics[0].partitions[0].error_code == 0

    def commit(self) -> None:
        """End the transaction; the coordinator's response comes before its markers."""
        end = message("EndTxn", transactional_id=ID, committed=True, **self._producer)
        self._until_done(lambda: self._peers[self.coordinator].ask(3, end), "the coordinator commits")

    def state(self) -> str:
        request = message("DescribeTransactions", transactional_ids=[ID])
        return str(self._peers[self.coordinator].ask(0, request).transaction_states[0].transaction_state)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def skip_an_epoch(cluster: LocalCluster, at: TopicPartition) -> tuple[int, int]:
    """Let the next controller find a partition's leader two epochs further on; return the leader and its new epoch.

    The epoch between was another leader's, of which this one's controller did not come to notify it.
    """
    zookeeper = await ZooKeeper.connect(
        cluster.file.zookeeper_address, session_timeout_ms=30_000, connection_timeout_ms=30_000
    )
    try:
        path = state_path(at.topic, at.partition)
        data, stat = await zookeeper.get(path)
        state = PartitionStateNode.decode(path, data)
        later = replace(state, leader_epoch=state.leader_epoch + 2)
        await zookeeper.set(path, later.encode(), stat.version)
        await zookeeper.delete(CONTROLLER)
    finally:
        await zookeeper.close()
    return later.leader, later.leader_epoch


async def test_a_transaction_completes_after_its_coordinators_broker_missed_an_epoch(
    brokers: LocalCluster, lab: Switches
) -> None:
    """Its markers have the epoch of the new leadership; with the former they are refused, again and again."""
    async with Admin(brokers.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, partitions=1, replication_factor=3)
        await admin.wait_for_topic(TOPIC)
        leader = (await admin.metadata()).topics[TOPIC].partitions[0].leader_id
    assert leader is not None
    transaction = Transaction(brokers.kafka_bootstrap_servers, leader)
    try:
        transaction.begin()
        partitions = len(await lab.observe(transaction.coordinator, [TRANSACTION_TOPIC]))
        at = TopicPartition(TRANSACTION_TOPIC, partition_of(ID, partitions))
        led, epoch = await skip_an_epoch(brokers, at)
        assert led == transaction.coordinator

        async def leads_in_it() -> bool:
            replica = (await lab.observe(led, [at.topic]))[at]
            return (replica.role, replica.leader_epoch) == ("leader", epoch)

        await until_async(leads_in_it, limit=120, what="the broker leads in an epoch two further on")
        transaction.write_marker(epoch - 1)
        transaction.commit()
        until(lambda: transaction.state() == COMPLETE, timeout=60, what="the transaction is complete")
    finally:
        transaction.close()
