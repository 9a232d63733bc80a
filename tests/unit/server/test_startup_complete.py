"""When a broker is ready: this process, registered as it is now, has been sent all that its registration brings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import ControlHeader, Endpoint, UpdateMetadataRequest
from tidegauge.errors import ErrorCode
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.messages import CoreSettings
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.replication.control_requests import ControlRequests
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.caller import Caller

LIVE = (Endpoint(0, "127.0.0.1", 9092),)


class Steps:
    """Takes decisions and carries out nothing."""

    def decided(self, decide: Callable[[], Any]) -> Any:
        return decide()

    def execute(self, effects: Sequence[Any]) -> None:
        """No effect of a metadata request concerns a test of a start."""


class Replicas:
    """A broker's core, and nothing around it."""

    def __init__(self, metadata: MetadataCache) -> None:
        nothing: Any = None
        self.core = BrokerCore(0, CoreSettings(), nothing, metadata)
        self.logs = nothing
        self.control = ControlRequests(self.core, nothing, cast("Any", Steps()), nothing)


class Groups:
    """Groups without members."""

    def metadata_updated(
        self, deleted: Sequence[TopicPartition], changed: Collection[str], topic_ids: Mapping[str, bytes]
    ) -> None:
        del changed, topic_ids
        assert not deleted


class Transactions:
    """A transaction coordinator without transactions."""

    def metadata_updated(self) -> None:
        """Nothing follows of it."""


class Broker:
    """A service that is asked whether its start is over."""

    def __init__(self) -> None:
        metadata = MetadataCache()
        self.replicas = Replicas(metadata)
        nothing: Any = None
        self.service = BrokerService(
            cluster_id="",
            settings=nothing,
            replicas=cast("Any", self.replicas),
            metadata=metadata,
            controller=nothing,
            producer_ids=nothing,
            configs=nothing,
            create_topic=lambda _: None,
            groups=cast("Any", Groups()),
            transactions=cast("Any", Transactions()),
            verification=nothing,
        )
        self.waiting: asyncio.Future[None] | None = None

    async def registers(self, broker_epoch: int) -> None:
        """The first registration makes it wait."""
        self.replicas.core.set_broker_epoch(broker_epoch)
        if self.waiting is None:
            self.waiting = asyncio.ensure_future(self.service.until_startup_complete())
        await self._look()

    async def hears(self, *, broker_epoch: int, complete: bool, controller_epoch: int = 1) -> ErrorCode:
        header = ControlHeader(0, controller_epoch, broker_epoch)
        error = self.service.update_metadata(UpdateMetadataRequest(header, (), LIVE, complete))
        await self._look()
        return error

    async def _look(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def is_ready(self) -> bool:
        return self.waiting is not None and self.waiting.done()


@pytest.fixture
async def broker():
    made = Broker()
    yield made
    if made.waiting is not None:
        made.waiting.cancel()


async def test_metadata_alone_do_not_make_it_ready(broker: Broker) -> None:
    await broker.registers(100)
    assert await broker.hears(broker_epoch=100, complete=False) is ErrorCode.NONE
    assert not broker.is_ready
    await broker.hears(broker_epoch=100, complete=True)
    assert broker.is_ready


async def test_what_was_said_to_the_process_before_does_not_count(broker: Broker) -> None:
    """It may arrive before this process has registered, when nothing fences it yet."""
    assert await broker.hears(broker_epoch=60, complete=True) is ErrorCode.NONE
    await broker.registers(100)
    await broker.hears(broker_epoch=100, complete=False)
    assert not broker.is_ready
    await broker.hears(broker_epoch=100, complete=True)
    assert broker.is_ready


async def test_the_controller_may_be_quicker_than_zookeepers_response_to_the_registration(broker: Broker) -> None:
    await broker.hears(broker_epoch=140, complete=True)
    await broker.registers(140)
    assert broker.is_ready


async def test_a_session_lost_while_it_starts_makes_it_wait_for_its_next_registration(broker: Broker) -> None:
    await broker.registers(100)
    await broker.registers(140)
    assert await broker.hears(broker_epoch=100, complete=True) is ErrorCode.STALE_BROKER_EPOCH
    assert not broker.is_ready
    await broker.hears(broker_epoch=140, complete=True)
    assert broker.is_ready


async def test_a_controller_that_was_replaced_does_not_count(broker: Broker) -> None:
    await broker.registers(100)
    await broker.hears(broker_epoch=100, complete=False, controller_epoch=2)
    assert await broker.hears(broker_epoch=100, complete=True) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert not broker.is_ready
    await broker.hears(broker_epoch=100, complete=True, controller_epoch=2)
    assert broker.is_ready


async def test_metadata_names_a_controller_that_is_alive(broker: Broker) -> None:
    """After the controller's death its id stays in ``/controller`` until its session ends."""
    cast("Any", broker.service)._controller = SimpleNamespace(active_controller_id=0)
    view = broker.service.metadata(Caller("test", "GRPC"), None, may_create=False)
    assert view.controller_id is None
    await broker.hears(broker_epoch=7, complete=False)
    view = broker.service.metadata(Caller("test", "GRPC"), None, may_create=False)
    assert view.controller_id == 0


async def test_metadata_that_delete_a_topic_have_its_settings_forgotten(broker: Broker) -> None:
    """They are dropped when its last partition is deleted, so that a topic of the same name begins with its own."""
    forgotten: list[str] = []
    removed: list[tuple[Sequence[TopicPartition], Mapping[str, bytes]]] = []

    def of_groups(deleted: Sequence[TopicPartition], _: object, topic_ids: Mapping[str, bytes]) -> None:
        removed.append((deleted, topic_ids))

    broker.service.configs = cast("Any", SimpleNamespace(topics=SimpleNamespace(forget=forgotten.append)))
    broker.service.groups = cast("Any", SimpleNamespace(metadata_updated=of_groups))

    ids = [topic_id_text(bytes([number]) * 16) for number in (1, 2)]

    def update(partition: int, topic_id: str = ids[0], *, deleted: bool = False) -> None:
        state = PartitionState(TopicPartition("t", partition), topic_id, 1, 0, 0, (0,), 0, (0,))
        partitions = (ReportedPartition(state, deleted=deleted),)
        broker.service.update_metadata(UpdateMetadataRequest(ControlHeader(0, 1, 100), partitions, LIVE))

    await broker.registers(100)
    update(0)
    update(1)
    assert forgotten == []
    update(0, deleted=True)
    assert forgotten == [], "the topic has a partition still"
    update(1, deleted=True)
    assert forgotten == ["t"]
    assert removed[-1] == ([TopicPartition("t", 1)], {"t": bytes([1]) * 16})
    update(0)
    update(1)
    update(0, ids[1])
    created_again = ([TopicPartition("t", 0), TopicPartition("t", 1)], {"t": bytes([1]) * 16})
    assert removed[-1] == created_again, "a topic was deleted and created again within one update"
    update(1, ids[1])
    assert removed[-1][0] == []
