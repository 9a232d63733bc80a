"""Images are put in force one after the other (BrokerMetadataPublisher.onMetadataUpdate)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tidegauge.metadata_update import MetadataUpdate
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState, ReplicaStop
from tidegauge_broker.server.cluster.kraft.publisher import Publisher
from tidegauge_broker.server.cluster.ports import Applied
from tidegauge_controller.metadata.image import (
    EMPTY,
    UNASSIGNED,
    MetadataImage,
    PartitionRegistration,
    Provenance,
    TopicImage,
)
from tidegauge_controller.metadata.sorted_map import SortedMap

ME = 1
ID = "AAAAAAAAAAAAAAAAAAAAZA"
OTHER_DIRECTORY = "CCCCCCCCCCCCCCCCCCCCCA"


def image(offset: int, *registrations: PartitionRegistration) -> MetadataImage:
    """An image with one topic of these partitions, after a record at an offset."""
    partitions = SortedMap[int, PartitionRegistration]().updated(dict(enumerate(registrations)))
    topics = SortedMap[str, TopicImage]().updated({ID: TopicImage("t", ID, partitions)} if registrations else {})
    return replace(EMPTY, topics=topics, provenance=Provenance(offset, 1, 0))


def led_by(leader: int, epoch: int, directory: str = UNASSIGNED) -> PartitionRegistration:
    """A partition with replicas at this broker and another one."""
    return PartitionRegistration((ME, 2), (directory, UNASSIGNED), (ME, 2), leader, epoch, epoch)


class World:
    """A publisher's inputs, and the calls that it makes; ``fails`` names the step that raises.

    Attributes:
        calls: the steps in their order, with the offset that heartbeats would report at that moment.
    """

    def __init__(self, first: MetadataImage) -> None:
        self.image = first
        self.fails = ""
        self.calls: list[tuple[str, int]] = []
        self.states: list[PartitionState] = []
        self.stops: list[ReplicaStop] = []
        self.placed: list[TopicPartition] = []
        self.new: set[TopicPartition] = set()
        self.updates: list[MetadataUpdate] = []
        self.on_image: Any = None
        source: Any = self
        stores: Any = self
        self.publisher = Publisher(ME, source)
        self.levels: list[Mapping[str, int]] = []
        applied = Applied(
            self.metadata_changed,
            self.replicas_decided,
            self.levels.append,
            lambda: None,  # type: ignore[arg-type, return-value] # no logs
            lambda _: None,
        )
        self.publisher.prepare("PLAINTEXT", applied, stores, self.place, lambda: self.step("assigned"))

    def step(self, name: str) -> None:
        self.calls.append((name, self.publisher.applied_offset))
        if name == self.fails:
            raise ValueError(f"{name} fails")

    def follow(self, on_image: Any) -> None:
        self.on_image = on_image

    def place(self, states: Sequence[PartitionState]) -> None:
        self.placed = [one.topic_partition for one in states]

    def metadata_changed(self, update: MetadataUpdate) -> None:
        self.updates.append(update)
        self.step("clients")

    async def replicas_decided(
        self, deletions: Sequence[ReplicaStop], states: Sequence[PartitionState], new: Collection[TopicPartition]
    ) -> None:
        assert self.placed == [one.topic_partition for one in states], "places are known before logs are made"
        self.stops += deletions
        self.states += states
        self.new |= set(new)
        self.step("roles")

    async def published(self, old: MetadataImage, new: MetadataImage) -> None:
        del old, new
        self.step("settings")

    async def show(self, new: MetadataImage) -> None:
        """Publish another image, as the publisher's task does."""
        self.image = new
        await self.publisher._publish()


@pytest.fixture
async def world() -> World:
    """Make a world whose first image is in force; until then heartbeats reported the loaded offset."""
    made = World(image(10, led_by(ME, 0)))
    assert made.publisher.applied_offset == 10, "before the first image is in force"
    await made.publisher._publish()
    return made


async def test_clients_come_first_then_roles_then_settings(world: World) -> None:
    assert [name for name, _ in world.calls] == ["clients", "roles", "settings", "assigned"]


async def test_heartbeats_report_an_image_when_all_of_it_is_in_force(world: World) -> None:
    """A leader that leaves waits until each broker has reported that it has the new leaders."""
    world.calls.clear()
    await world.show(image(20, led_by(2, 1)))
    assert world.calls == [("clients", 10), ("roles", 10), ("settings", 10), ("assigned", 20)]


@pytest.mark.parametrize("fails", ["clients", "roles", "settings"])
async def test_a_step_that_fails_costs_no_other_step(world: World, fails: str) -> None:
    world.calls.clear()
    world.fails = fails
    await world.show(image(20, led_by(2, 1)))
    assert [name for name, _ in world.calls] == ["clients", "roles", "settings", "assigned"]
    assert world.publisher.applied_offset == 20


async def test_states_in_between_are_skipped(world: World) -> None:
    """Two changes of leader in one step appear as one: the epochs jump."""
    world.states.clear()
    await world.show(image(30, led_by(ME, 2)))
    assert [(one.leader, one.leader_epoch) for one in world.states] == [(ME, 2)]


async def test_an_image_without_changes_of_topics_and_brokers_tells_clients_nothing(world: World) -> None:
    """NoOpRecords move the offset twice a second."""
    world.calls.clear()
    await world.show(replace(world.image, provenance=Provenance(21, 1, 0)))
    assert [name for name, _ in world.calls] == ["settings", "assigned"]


async def test_a_replica_in_a_directory_that_is_not_online_is_not_new(world: World) -> None:
    """Its log may lie in the directory that has failed, so no second one is made (KIP-858)."""
    assert world.new == {TopicPartition("t", 0)}
    await world.show(image(40, led_by(ME, 0), led_by(ME, 0, OTHER_DIRECTORY)))
    assert TopicPartition("t", 1) in {one.topic_partition for one in world.states}
    assert world.new == {TopicPartition("t", 0)}


async def test_a_topic_that_is_not_there_any_more_is_deleted(world: World) -> None:
    await world.show(image(50))
    assert [one.topic_partition for one in world.stops] == [TopicPartition("t", 0)]
    assert world.stops[0].delete
    assert [one.deleted for one in world.updates[-1].partitions] == [True]


async def test_the_levels_of_features_are_handed_on_where_they_change(world: World) -> None:
    """A level of 0 is not in the image."""
    assert world.levels == []
    await world.show(replace(world.image, features={"share.version": 1}, provenance=Provenance(60, 1, 0)))
    await world.show(replace(world.image, provenance=Provenance(61, 1, 0)))
    await world.show(replace(world.image, features={}, provenance=Provenance(62, 1, 0)))
    assert world.levels == [{"share.version": 1}, {}]
