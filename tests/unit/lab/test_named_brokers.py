"""A fault that names a broker which the cluster does not have is refused before anything changes."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.model import FaultKind
from tidegauge.faults.table import HOLD_REQUESTS, INJECT_ERROR, ISOLATE
from tidegauge.v1 import common_pb2, lab_pb2, metadata_pb2
from tidegauge_lab.switches import Switches
from tidegauge_lab.switches.client import brokers_in


class Brokers(Switches):
    """Two brokers without sockets: broker 0 has this metadata, broker 1 does not respond to clients."""

    def __init__(self, metadata: metadata_pb2.MetadataResponse) -> None:
        super().__init__({0: "a:1", 1: "a:2"})
        self.metadata = metadata
        self.faults: list[lab_pb2.LabFault] = []

    async def _metadata_of(self, broker_id: int) -> metadata_pb2.MetadataResponse | None:
        return self.metadata if broker_id == 0 else None

    async def _ask(self, broker_id: int, method: Any, request: Any, limit_seconds: float = 1.0) -> Any:
        self.faults.append(request.fault)
        return lab_pb2.SetFaultResponse(fault=request.fault)


def metadata() -> metadata_pb2.MetadataResponse:
    """Return metadata of brokers 0 and 1, a Kafka broker 3, and a dead 4."""
    return metadata_pb2.MetadataResponse(
        brokers=[common_pb2.BrokerEndpoint(broker_id=one) for one in (0, 1)],
        brokers_without_listener=[common_pb2.BrokerEndpoint(broker_id=3)],
        topics=[
            metadata_pb2.TopicMetadata(
                name="t", partitions=[metadata_pb2.PartitionMetadata(partition=0, replicas=[0, 4], isr=[0])]
            )
        ],
    )


def test_metadata_names_live_brokers_of_either_kind_and_those_with_replicas() -> None:
    assert brokers_in(metadata()) == {0, 1, 3, 4}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ISOLATE, {"from": [1, 7]}),
        (INJECT_ERROR, {"rpc": "Fetch", "error": "NOT_CONTROLLER", "caller": "7"}),
        (HOLD_REQUESTS, {"rpc": "Fetch", "caller": "7"}),
    ],
)
async def test_a_broker_that_the_cluster_lacks_is_refused_by_name(kind: FaultKind, values: dict[str, Any]) -> None:
    brokers = Brokers(metadata())
    with pytest.raises(TidegaugeError, match=r"no broker 7 in this cluster; its brokers are 0, 1, 3, 4$") as refused:
        await brokers.set_fault(0, kind.wanted(values))
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert brokers.faults == [], "nothing was changed"


@pytest.mark.parametrize("values", [{"from": [1]}, {"from": [3]}, {"from": [4]}, {"from": "brokers"}])
async def test_dead_brokers_and_apache_kafkas_may_be_named(values: dict[str, Any]) -> None:
    brokers = Brokers(metadata())
    await brokers.set_fault(0, ISOLATE.wanted(values))
    assert len(brokers.faults) == 1
