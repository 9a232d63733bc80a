"""Which of several brokers' views counts: one that the controller can't reach is old, and may respond first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin import EARLIEST, Admin
from tidegauge_client.admin_base import NO_ID
from tidegauge_client.admin_groups import GroupDescription, MemberDescription, OffsetAndMetadata
from tidegauge_client.cli import (
    describe,
    elect_leaders,
    explain,
    explain_group,
    explain_share,
    reassign_partitions,
    wait,
)
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo, behind, newest_of, newest_view

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LED = PartitionInfo("t", 0, 1, 3, (1, 2), (1, 2))
OLD, NEW = "old", "new"


def brokers(*ids: int) -> dict[int, BrokerInfo]:
    return {one: BrokerInfo(one, "h", one) for one in ids}


def shows(
    topic_id: str,
    leader_epoch: int,
    *,
    controller_epoch: int = 1,
    controller: int | None = None,
    live: Collection[int] = (0, 1, 2),
    **part: Any,
) -> ClusterInfo:
    """A broker's view of topic t; without an id it knows no such topic."""
    if topic_id:
        info = TopicInfo("t", topic_id, {0: replace(LED, leader_epoch=leader_epoch, **part)})
    else:
        info = TopicInfo("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return ClusterInfo("", controller, controller_epoch, brokers(*live), {"t": info})


class Cluster(Admin):
    """Brokers that each have a view; the first of them responds first."""

    def __init__(self, views: Mapping[int, ClusterInfo], silent: Collection[int] = ()) -> None:
        super().__init__("127.0.0.1:1")
        self.views = dict(views)
        self.silent = set(silent)
        self.replicas: dict[int, list[metadata_pb2.ReplicaDescription] | None] = {}
        self.awaited: Mapping[TopicPartition, int] = {}

    async def metadata(self, _: Collection[str] | None = None) -> ClusterInfo:
        return next(iter(self.views.values()))

    async def metadata_of(self, address: str, *_: Any, **__: Any) -> ClusterInfo:
        broker = int(address.removeprefix("h:"))
        if broker in self.silent or broker not in self.views:
            raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "it does not respond")
        return self.views[broker]

    async def describe_replicas_of(self, *_: Any, **__: Any) -> Any:
        return self.replicas

    async def wait_for_epochs(self, leader_epochs: Mapping[TopicPartition, int], **_: Any) -> None:
        self.awaited = leader_epochs

    async def is_marked_for_deletion(self, _: str) -> bool:
        return False


def test_the_newest_metadata_says_whom_to_ask() -> None:
    views = {epoch: shows(NEW, epoch) for epoch in (2, 4, 3)}
    assert [part.leader_epoch for part in newest_of(views, T0)] == [4]
    assert newest_of(views, T1) == []
    assert newest_of(views) == newest_of(views, T0)


@pytest.mark.parametrize(
    ("views", "epochs"),
    [
        ([shows(OLD, 7), shows(NEW, 0), shows(NEW, 1)], [1]),
        ([shows(OLD, 7), shows(NEW, 0, controller_epoch=2)], [0]),
        ([shows(OLD, 7), shows("", 0), shows("", 0)], []),
        ([shows(OLD, 7), ClusterInfo(controller_epoch=1), ClusterInfo(controller_epoch=1)], []),
        ([shows(OLD, 7), shows("", 0, controller_epoch=2)], []),
        ([shows(NEW, 3), shows("", 0)], [3]),
    ],
)
def test_a_broker_with_old_metadata_does_not_revive_a_deleted_topic(
    views: list[ClusterInfo], epochs: list[int]
) -> None:
    """A topic that is made again begins at epoch 0: the deleted one's higher epoch is not the newer one."""
    assert [part.leader_epoch for part in newest_of(dict(enumerate(views)), T0)] == epochs
    assert [part.leader_epoch for part in newest_of(dict(enumerate(reversed(views))), T0)] == epochs


def test_the_controllers_own_view_counts_against_most_others() -> None:
    """Rule 5: two of three brokers may be partitioned from the controller."""
    old = shows(OLD, 7, controller=2, live=(0, 1))
    views = {0: old, 1: old, 2: shows(NEW, 0, controller=2)}
    assert [part.leader_epoch for part in newest_of(views)] == [0]
    assert newest_view(views).live == {0, 1, 2}
    assert behind(views) == {0, 1}
    mute = shows(NEW, 0)
    assert newest_view({0: mute, 1: views[2]}) is views[2], "a broker without a ZooKeeper session names no controller"
    assert newest_view({0: views[2], 1: mute}) is views[2]
    later = {**views, 1: replace(old, controller_epoch=2, controller_id=1)}
    assert newest_view(later) is later[1], "a controller of a lower epoch is a former one"


def test_a_view_is_behind_by_its_epochs_and_by_the_topics_that_it_shows() -> None:
    """``wait`` must not wait for a broker that the controller can't reach (`isolate --from brokers`)."""
    three = shows(NEW, 3, partition_epoch=1)
    newer = shows(NEW, 3, partition_epoch=2)
    assert behind({0: three, 1: three}) == set()
    assert behind({0: three, 1: newer, 2: shows(NEW, 2, partition_epoch=9)}) == {0, 2}
    assert behind({0: shows(OLD, 7), 1: shows(NEW, 0), 2: shows(NEW, 0)}) == {0}, "created again"
    assert behind({0: shows(OLD, 7), 1: shows("", 0), 2: shows("", 0)}) == {0}, "deleted"
    assert behind({0: shows(OLD, 7), 1: ClusterInfo(controller_epoch=1), 2: ClusterInfo(controller_epoch=1)}) == {0}
    assert behind({0: shows(NEW, 0), 1: shows(NEW, 0), 2: shows("", 0)}) == {2}, "it has not heard of the topic"
    assert behind({0: shows(OLD, 7), 1: shows(NEW, 0, controller=1)}) == {0}


def test_neither_of_two_topic_ids_is_called_old_where_nothing_says_which_one_is() -> None:
    assert behind({0: shows(OLD, 7), 1: shows(NEW, 0)}) == set()
    assert behind({0: shows(NEW, 3), 1: ClusterInfo(controller_epoch=1)}) == set()


async def test_all_brokers_of_the_newest_view_are_asked() -> None:
    """The first one may be old, and lack brokers that have come since."""
    old = shows(OLD, 7, controller=0, live=(0, 1))
    new = shows(NEW, 0, controller_epoch=2, controller=1, live=(0, 1, 2))
    admin = Cluster({0: old, 1: new, 2: new})
    assert (await admin.metadata_of_all(["t"])).keys() == {0, 1, 2}
    admin.silent = {0, 1}
    assert await admin.metadata_of_all(["t"]) == {NO_ID: old}, "who gave the first view is not known"


async def test_a_condition_counts_no_view_of_a_deleted_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 1 of ``wait``: the old view has no leader, and would have none for ever."""
    new = shows(NEW, 0)
    admin = Cluster({0: shows(OLD, 7, leader_id=None), 1: new, 2: new})
    said = metadata_pb2.ReplicaDescription(topic="t", partition=0, role="leader", leader_epoch=0)
    admin.replicas = {1: [said]}
    looker = wait.Looker(admin, wait.leader_condition(T0))
    assert await looker.look() == "t-0 has no leader", "it counts until it has been old for long"
    monkeypatch.setattr(wait, "BEHIND_SECONDS", 0.0)
    assert await looker.look() is None


async def test_every_view_counts_where_each_is_behind_in_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "BEHIND_SECONDS", 0.0)
    first, second = shows(NEW, 3), shows(NEW, 4, leader_id=None)
    other = TopicInfo("u", "id", {0: replace(LED, topic="u")})
    later = TopicInfo("u", "id", {0: replace(LED, topic="u", leader_epoch=9)})
    views = {
        0: replace(first, topics={**first.topics, "u": later}),
        1: replace(second, topics={**second.topics, "u": other}),
    }
    assert behind(views) == {0, 1}
    assert await wait.Looker(Cluster(views), wait.leader_condition(T0)).look() == "t-0 has no leader"


async def test_a_reassignment_is_verified_by_the_topic_that_there_is() -> None:
    """A deleted topic of the same name had a higher epoch, and other replicas."""
    new = shows(NEW, 0, replicas=(2, 0))
    admin = Cluster({0: shows(OLD, 7), 1: new, 2: new})
    states = await reassign_partitions._states(admin, {T0: (2, 0)}, {})
    assert [(state.current, state.done) for state in states.values()] == [((2, 0), True)]


async def test_after_an_election_the_epoch_of_a_deleted_topic_is_awaited_of_no_broker() -> None:
    new = shows(NEW, 2)
    admin = Cluster({0: shows(OLD, 7), 1: new, 2: new})
    await elect_leaders._until_known(admin, [T0])
    assert admin.awaited == {T0: 2}


def test_a_cluster_is_described_by_the_newest_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first broker asked shows a controller and brokers of before."""
    old = shows(NEW, 3, controller=2, live=(0, 1, 2))
    new = shows(NEW, 4, controller_epoch=2, controller=1, live=(0, 1, 3))
    admin = Cluster({0: old, 1: new}, silent=())
    monkeypatch.setattr(describe, "Admin", lambda _: admin)
    shown = CliRunner().invoke(describe.describe_cluster, ["-b", "127.0.0.1:1"], catch_exceptions=False).output
    assert "Controller: 1\tEpoch: 2" in shown
    states = {line.split("\t")[0]: line.split("\t")[2] for line in shown.splitlines() if line.startswith("Broker")}
    assert states == {
        "Broker: 0": "State: up",
        "Broker: 1": "State: up",
        "Broker: 2": "State: down",
        "Broker: 3": "State: silent",
    }


def coming(value: Any) -> Any:
    async def come(*_: Any, **__: Any) -> Any:
        return value

    return come


async def test_what_is_explained_is_live_by_the_newest_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a broker that is back is called dead; and a topic that the first broker has not heard of does not exist."""
    monkeypatch.setattr(explain, "faults_in", coming({}))
    monkeypatch.setattr(explain, "settings_of", coming(((), "")))
    old = shows("", 0, controller=1, live=(0, 1))
    new = shows(NEW, 4, controller=1, live=(0, 1, 2))
    facts = await explain.gather(Cluster({0: old, 1: new, 2: new}), T0)
    assert (facts.live, facts.controller, facts.leader_epoch) == ({0, 1, 2}, 1, 4)


async def test_a_topic_that_only_an_old_view_shows_is_not_explained() -> None:
    admin = Cluster({0: shows(OLD, 4), 1: shows("", 0, controller=1)})
    with pytest.raises(TidegaugeError, match="Topic 't' does not exist as expected"):
        await explain.gather(admin, T0)


async def test_a_former_leader_that_no_other_broker_knows_is_asked_for_its_share_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that is partitioned from the controllers is fenced: it is in its own view, or in none that is given."""
    asked: list[str] = []

    async def shares_at(addresses: list[str], *_: Any) -> dict[int, Any]:
        asked.extend(addresses)
        return {}

    monkeypatch.setattr(explain_share, "shares_at", shares_at)
    old = shows("", 0, controller=1, live=(0, 1, 2))
    new = shows("", 0, controller_epoch=2, controller=1, live=(1, 2))
    topic = TopicInfo("t", "", {0: LED})
    views = {one: replace(view, topics={"t": topic}) for one, view in ((1, new), (2, old))}
    facts = await explain_share.gather_share(Cluster(views), "g", T0, ["h:3"])
    assert asked == ["h:0", "h:1", "h:2", "h:3"]
    assert (facts.leader, facts.leader_epoch, facts.live) == (1, 3, {1, 2})


def with_offsets_topic(view: ClusterInfo) -> ClusterInfo:
    part = replace(LED, topic=OFFSETS_TOPIC, leader_epoch=2)
    return replace(view, topics={**view.topics, OFFSETS_TOPIC: TopicInfo(OFFSETS_TOPIC, "id", {0: part})})


async def test_a_broker_that_has_not_heard_of_the_offsets_topic_does_not_decide_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explain_group, "settings_of", coming(((), "")))
    new = with_offsets_topic(shows(NEW, 0))
    admin = Cluster({0: shows("", 0), 1: new, 2: new})
    refused = TidegaugeError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")

    async def refuse(*_: Any, **__: Any) -> Any:
        raise refused

    monkeypatch.setattr(admin, "describe_group", refuse)
    facts = await explain_group.gather_group(admin, "g")
    assert facts.partition is not None
    assert (facts.partition.leader, facts.problem) == (1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


async def test_a_partition_that_does_not_exist_is_not_one_without_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """t-1 is not of the topic that there is now, and of u nothing may be shown; t-0 begins at 5."""
    monkeypatch.setattr(explain_group, "settings_of", coming(((), "")))
    view = with_offsets_topic(shows(NEW, 0))
    denied = TopicInfo("u", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    admin = Cluster(dict.fromkeys((0, 1, 2), replace(view, topics={**view.topics, "u": denied})))
    assigned = (T0, T1, TopicPartition("gone", 0), TopicPartition("u", 0))
    member = MemberDescription("a", None, "c", "/127.0.0.1", assigned)
    described = GroupDescription("g", "Stable", "consumer", "range", (member,), 1, 5, "", ())

    async def list_offsets(places: Mapping[TopicPartition, int], **_: Any) -> Any:
        return {at: SimpleNamespace(offset=5 if place == EARLIEST else 9) for at, place in places.items()}

    monkeypatch.setattr(admin, "describe_group", coming(described))
    monkeypatch.setattr(admin, "committed_offsets", coming({T0: OffsetAndMetadata(2)}))
    monkeypatch.setattr(admin, "list_offsets", list_offsets)
    facts = await explain_group.gather_group(admin, "g")
    assert (facts.leaderless, facts.deleted) == (frozenset(), {T1, TopicPartition("gone", 0)})
    assert facts.starts == {T0: 5}
    assert [row.lag for row in facts.rows if row.lag is not None] == [7]


async def test_a_throttle_of_a_broker_that_is_not_registered_is_not_called_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the broker itself clears its rate; `"throttles_cleared": true` was printed for all of them."""
    admin = Cluster(dict.fromkeys((0, 1, 2), shows(NEW, 3, replicas=(1, 3))))
    altered: list[int] = []

    async def alter(broker_id: int, *_: Any) -> int:
        if broker_id > 2:
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        altered.append(broker_id)
        return 0

    monkeypatch.setattr(admin, "alter_broker_settings", alter)
    monkeypatch.setattr(admin, "alter_topic_settings", coming(0))
    cleared = await reassign_partitions._clear_throttles(admin, {T0: (1, 4)}, "text")
    assert not cleared.is_complete
    assert [problem.message for problem in cleared.left] == ["broker 3 is not registered", "broker 4 is not registered"]
    assert altered == [0, 1, 2]
    admin.views = dict.fromkeys((0, 1, 2), shows(NEW, 3))
    assert (await reassign_partitions._clear_throttles(admin, {T0: (1, 2)}, "text")).is_complete
