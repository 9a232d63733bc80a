"""The shell hands over each leadership of a coordinator's partition at once, before the control request is completed.

Kafka calls its coordinators from within LeaderAndIsr and StopReplica (RequestHandlerHelper.onLeadershipChange).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    ControlHeader,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import BrokerSettings, parse_broker_settings, topic_values
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import CoreSettings
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.replication.effect_host import Outlets
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

OFFSETS = TopicPartition("__consumer_offsets", 0)
HEADER = ControlHeader(0, 1, 1)


async def test_the_outlet_hears_of_each_leadership_before_the_controller_does(tmp_path: Path) -> None:
    heard: list[LeadershipChanged | str] = []
    settings = BrokerSettings(parse_broker_settings({"broker.id": "0"})[0]).live
    logs = LogManager.open(
        [tmp_path / "log"],
        broker_id=0,
        cluster_id="abcdefghijklmnopqrstuv",
        broker=settings,
        topic_values=lambda _topic: topic_values({}, settings),
        now_ms=lambda: 0,
    )
    core = BrokerCore(0, CoreSettings(emits_diagnostics=False), logs, MetadataCache())

    async def in_pool(call: Any) -> None:
        call()

    async def values_of(_topic: str) -> Any:
        return topic_values({}, settings)

    unused: Any = None
    manager = ReplicaManager(core, logs, unused, lambda: 0, in_pool, Outlets(leadership_changed=heard.append))
    state = PartitionState(OFFSETS, "topicidtopicidtopicidt", 1, 0, 3, (0,), 0, (0,))
    request = LeaderAndIsrRequest(HEADER, [LeaderAndIsrPartition(state, is_new=True)], ())

    async def lead() -> None:
        response = await manager.control.leader_and_isr(request, values_of)
        heard.append(response.partitions[OFFSETS].name)

    await lead()
    assert heard == [LeadershipChanged(OFFSETS, leads=True, leader_epoch=3), "NONE"]
    heard.clear()
    stop = StopReplicaRequest(HEADER, [StopReplicaPartition(OFFSETS, 3, delete=True)])
    deleted = await manager.control.stop_replica(stop)
    assert deleted.partitions == {OFFSETS: ErrorCode.NONE}
    assert heard == [LeadershipChanged(OFFSETS, leads=False, leader_epoch=3)]
    manager.close()
