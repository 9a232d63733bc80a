"""The memory of an active controller, and random walks of its decisions under KRaft's invariants."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.unit.metadata.cluster_world import CLUSTER_ID, SESSION_MS, World, directory

from tidegauge.errors import TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.producer_ids_record import ProducerIdsRecord
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions import brokers, partitions, topics
from tidegauge_controller.metadata.decisions.activation import allocate_producer_ids
from tidegauge_controller.metadata.decisions.reassignment import Reassignment, alter_reassignments
from tidegauge_controller.metadata.decisions.registration import register_broker
from tidegauge_controller.metadata.decisions.view import ControllerSettings
from tidegauge_controller.metadata.delta import replayed
from tidegauge_controller.metadata.image import EMPTY, MetadataImage, PartitionRegistration, Provenance
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.snapshot import snapshot_records


def active() -> ActiveController:
    return ActiveController(ControllerSettings(3000, CLUSTER_ID), EMPTY, epoch=4, next_offset=10, now_ms=0)


def next_ids(count: int) -> list[MetadataRecord]:
    return [made(ProducerIdsRecord(0, 0, count))]


def test_a_decision_sees_what_is_pending() -> None:
    controller = active()
    assert controller.appended(next_ids(1000), 5) == 10
    assert controller.view.image.next_producer_id == 1000
    assert (controller.view.next_offset, controller.last_pending_offset) == (11, 10)
    assert controller.view.image.provenance == Provenance(10, 4, 5)


def test_memory_returns_to_what_is_committed_when_leadership_is_lost() -> None:
    controller = active()
    for count in (1000, 2000, 3000):
        controller.appended(next_ids(count), 5)
    controller.commit(11)
    assert controller.last_pending_offset == 12
    assert controller.committed.next_producer_id == 2000
    assert controller.committed.provenance.offset == 11
    controller.commit(12)
    assert controller.last_pending_offset is None
    assert controller.committed is controller.image


class Walk:
    """Random requests, some of them senseless, at a controller whose records are committed late or never.

    Attributes:
        log: all appended records, in order; records of a controller that lost its leadership are taken back.
    """

    def __init__(self, seed: int, *, elr: bool) -> None:
        self.random = Random(seed)
        self.world = World([0, 1, 2, 3], elr=elr)
        self.log = list(snapshot_records(self.world.controller.committed))
        self.start = self.world.controller.committed
        self.uncommitted: list[MetadataRecord] = []
        self.blocks: set[int] = set()
        self.epochs: dict[int, int] = {}

    def step(self) -> None:
        """Do something at random; a request that is refused changes nothing."""
        controller = self.world.controller
        before = controller.next_offset
        request = self.random.choice(
            [self._create, self._delete, self._isr, self._isr, self._elect, self._reassign, self._beat, self._beat,
             self._register, self._expire, self._ids, self._unregister, self._fail]
        )  # fmt: skip
        try:
            request()
        except TidegaugeError:
            assert controller.next_offset == before
        self.world.now_ms += self.random.choice((0, 100, 3_000))

    def _take(self, decision: object) -> None:
        records = decision.records  # type: ignore[attr-defined] # of any response
        if records:
            old = self.world.view.image
            self.world.controller.appended(records, self.world.now_ms)
            self.uncommitted += records
            check_step(old, self.world.view.image)

    def settle(self) -> None:
        """Commit everything, or lose the leadership and everything that was not committed."""
        controller = self.world.controller
        if self.random.random() < 0.6:
            controller.commit(controller.next_offset - 1)
            self.log += self.uncommitted
            assert controller.committed is controller.image
        elif self.random.random() < 0.5:
            image = controller.committed
            self.world.controller = ActiveController(
                ControllerSettings(3000, CLUSTER_ID, session_timeout_ms=SESSION_MS),
                image,
                controller.epoch + 1,
                image.provenance.offset + 1,
                self.world.now_ms,
            )
        else:
            return
        self.uncommitted = []

    def _partition(self) -> tuple[str, int, PartitionRegistration] | None:
        found = [(topic.name, at, state) for topic, at, state in self.world.view.image.all_partitions()]
        return self.random.choice(found) if found else None

    def _create(self) -> None:
        replicas = self.random.sample(range(4), 3)
        wanted = topics.TopicToCreate(
            self.random.choice("abc"),
            assignment=[(0, replicas), (1, replicas[::-1])],
            configs=[("min.insync.replicas", self.random.choice("12"))],
        )
        self._take(topics.create_topics(self.world.view, [wanted], self.random))

    def _delete(self) -> None:
        if self.random.random() < 0.3:
            self._take(topics.delete_topics(self.world.view, [self.random.choice("abc")], []))

    def _isr(self) -> None:
        found = self._partition()
        if found is None or found[2].leader < 0 or found[2].leader not in self.world.view.image.brokers:
            return
        name, partition, state = found
        fetching = [one for one in state.replicas if self.world.view.has_online_directory(one, state.directory(one))]
        members = [one for one in fetching if one == state.leader or self.random.random() < 0.7]
        change = partitions.IsrChange(
            self.world.topic_id(name),
            partition,
            state.leader_epoch,
            state.partition_epoch,
            tuple((member, -1) for member in members),
        )
        epoch = self.world.epoch(state.leader)
        self._take(partitions.alter_partition(self.world.view, state.leader, epoch, [change]))

    def _elect(self) -> None:
        decisions: list[Callable[[], object]] = [
            lambda: partitions.elect_leaders(self.world.view, None, unclean=False),
            lambda: partitions.balance_leaders(self.world.view),
            lambda: partitions.elect_unclean_leaders(self.world.view),
        ]
        self._take(self.random.choice(decisions)())

    def _reassign(self) -> None:
        found = self._partition()
        if found is not None:
            target = self.random.choice((None, tuple(self.random.sample(range(4), self.random.choice((2, 3))))))
            self._take(alter_reassignments(self.world.view, [Reassignment(found[0], found[1], target)]))

    def _beat(self) -> None:
        registered = list(self.world.view.image.brokers)
        if not registered:
            return
        broker_id = self.random.choice(registered)
        heartbeats = self.world.controller.heartbeats
        request = brokers.HeartbeatRequest(
            broker_id,
            self.world.epoch(broker_id),
            self.world.controller.next_offset - self.random.choice((1, 1, 1, 5)),
            want_fence=self.random.random() < 0.1,
            want_shut_down=self.random.random() < 0.1,
        )
        heartbeats.contacted(broker_id, request.broker_epoch, self.world.now_ms)
        decision = brokers.heartbeat(self.world.view, heartbeats, request)
        self._take(decision)
        if decision.response.begins_shutdown:
            heartbeats.shutdown_began(broker_id, self.world.controller.next_offset - 1)

    def _register(self) -> None:
        broker_id = self.random.randrange(4)
        known = self.world.view.image.brokers.get(broker_id)
        is_clean = known is not None and self.random.random() < 0.5
        request = self.world.request(broker_id, previous_broker_epoch=known.epoch if is_clean and known else -1)
        heartbeats = self.world.controller.heartbeats
        self._take(register_broker(self.world.view, heartbeats, request, 1, self.world.now_ms))

    def _expire(self) -> None:
        heartbeats = self.world.controller.heartbeats
        self._take(brokers.fence_one_stale_broker(self.world.view, heartbeats, self.world.now_ms))

    def _ids(self) -> None:
        broker_id = self.random.randrange(4)
        if broker_id in self.world.view.image.brokers:
            self._take(allocate_producer_ids(self.world.view, broker_id, self.world.epoch(broker_id)))

    def _unregister(self) -> None:
        if self.random.random() < 0.2:
            self._take(brokers.unregister(self.world.view, self.random.randrange(4)))

    def _fail(self) -> None:
        found = self._partition()
        if found is not None and found[2].replicas[0] in self.world.view.image.brokers:
            broker_id = found[2].replicas[0]
            wanted = {self.random.choice((directory(broker_id), directory(broker_id, 9))): [
                (self.world.topic_id(found[0]), found[1])
            ]}  # fmt: skip
            epoch = self.world.epoch(broker_id)
            self._take(partitions.assign_replicas_to_directories(self.world.view, broker_id, epoch, wanted))


def check_step(old: MetadataImage, new: MetadataImage) -> None:
    """Check the invariants of images, and of the step from one to the next."""
    for topic, at, state in new.all_partitions():
        before = old.partition(topic.topic_id, at)
        if before is not None:
            assert state.leader_epoch >= before.leader_epoch
            assert state.partition_epoch >= before.partition_epoch
            assert state.partition_epoch > before.partition_epoch or state == before
            assert state.leader_epoch > before.leader_epoch or state.leader == before.leader
        check_partition(new, state)
    for broker in new.brokers.values():
        known = old.brokers.get(broker.broker_id)
        if known is not None and known.incarnation_id != broker.incarnation_id:
            assert broker.epoch > known.epoch
    assert new.next_producer_id >= old.next_producer_id


def check_partition(image: MetadataImage, state: PartitionRegistration) -> None:
    members = [*state.isr, *state.elr]
    assert len(members) == len(set(members)), "ISR and ELR are disjoint"
    assert set(members) <= set(state.replicas)
    assert len(state.last_known_elr) <= 1
    assert not state.last_known_elr or not state.has_leader
    if state.has_leader:
        assert state.leader in state.isr
        assert image.brokers[state.leader].is_active
    elif image.elr_enabled:
        assert state.isr == ()
    else:
        assert len(state.isr) >= 1
    if image.elr_enabled:
        assert all(image.brokers[member].is_active for member in state.isr)
    assert len(state.replicas) == len(set(state.replicas)) == len(state.directories)


@pytest.mark.parametrize("elr", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_random_decisions_keep_the_invariants(seed: int, elr: bool) -> None:
    """Epochs rise, ISR and ELR are disjoint and alive, and the committed image is the replay of the log."""
    walk = Walk(seed, elr=elr)
    for number in range(250):
        walk.step()
        if number % 5 == 0:
            walk.settle()
    committed = walk.world.controller.committed
    assert replayed(EMPTY, walk.log, Provenance(), 0) == committed
    assert replayed(EMPTY, snapshot_records(committed), Provenance(), 0) == committed
