"""Settings of single groups: Kafka 4.3's names, bounds and sentences, kept by an extension under /config/groups."""

from __future__ import annotations

import json
import re

import pytest
from config_zookeeper import Broker, FakeZooKeeper, settle

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import GROUP_CONFIGS
from tidegauge_broker.server.coordinators.group_runner import consumer_times

SESSION, HEARTBEAT, INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


@pytest.fixture
async def zookeeper():
    return FakeZooKeeper()


@pytest.fixture
async def brokers(zookeeper):
    made = [await Broker(zookeeper, broker_id).start() for broker_id in (0, 1)]
    yield made
    for broker in made:
        await broker.configs.close()


async def test_every_broker_applies_a_change_of_a_group_that_need_not_exist(zookeeper, brokers):
    """Any broker may come to coordinate the group; /config/groups is made with the first one."""
    number = await brokers[0].configs.groups.alter("g", {SESSION: "60000"}, [])
    await settle()
    assert [consumer_times(broker.groups["g"]) for broker in brokers] == [(60_000, 5_000, 1_000)] * 2
    assert [broker.configs.applied_change for broker in brokers] == [number, number]
    assert json.loads(zookeeper.nodes["/config/groups/g"][0]) == {"version": 1, "config": {SESSION: "60000"}}
    await brokers[1].configs.groups.alter("g", {}, [SESSION])
    await settle()
    assert [broker.groups for broker in brokers] == [{"g": None}] * 2, "the broker's settings count again"


async def test_a_broker_that_starts_later_has_what_was_set(zookeeper, brokers):
    await brokers[0].configs.groups.alter("a/b ü", {INTERVAL: "0"}, [])
    assert "/config/groups/a%2Fb%20%C3%BC" in zookeeper.nodes, "a group's id may have any characters"
    late = await Broker(zookeeper, 2).start()
    assert consumer_times(late.groups["a/b ü"]).assignment_interval_ms == 0
    await late.configs.close()


async def test_what_is_read_again_after_an_expired_session_forgets_what_was_deleted(zookeeper, brokers):
    """Notifications may have been purged: a group whose znode is missing has the broker's settings."""
    await brokers[0].configs.groups.alter("g", {SESSION: "60000"}, [])
    await settle()
    await zookeeper.delete("/config/groups/g")
    await brokers[0].configs.read_all()
    assert brokers[0].groups == {"g": None}


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"session.timeout.ms": "1"}, "Unknown group config name: session.timeout.ms"),
        ({SESSION: "x"}, f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        ({INTERVAL: "-1"}, f"Invalid value -1 for configuration {INTERVAL}: Value must be at least 0"),
        ({SESSION: "44999"}, f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "4999"}, f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "15001"}, f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ({INTERVAL: "15001"}, f"{INTERVAL} must be less than or equal to group.consumer.max.assignment.interval.ms"),
    ],
)
async def test_what_the_brokers_bounds_exclude_is_refused_and_changes_nothing(zookeeper, brokers, texts, sentence):
    """GroupConfig.validate, in Kafka's words; one bad setting of several, and nothing is changed."""
    with pytest.raises(TidegaugeError, match=re.escape(sentence)) as refusal:
        await brokers[0].configs.groups.alter("g", {HEARTBEAT: "6000"} | texts, [])
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    await settle()
    assert "/config/groups" not in zookeeper.nodes
    assert brokers[0].groups == {}


async def test_a_session_must_outlast_a_heartbeat(zookeeper):
    """GroupConfig.validateValues, over what the broker gives: the heartbeat interval here."""
    broker = await Broker(
        zookeeper,
        group_consumer_min_session_timeout_ms="1000",
        group_consumer_heartbeat_interval_ms="15000",
    ).start()
    with pytest.raises(TidegaugeError, match=rf"{SESSION} \(15000\) must be greater than {HEARTBEAT} \(15000\)"):
        await broker.configs.groups.alter("g", {SESSION: "15000"}, [])
    await broker.configs.groups.alter("g", {SESSION: "15001"}, [])
    await broker.configs.close()


@pytest.mark.parametrize(("stored", "in_force_ms"), [("70000", 60_000), ("1000", 45_000)])
async def test_a_stored_value_counts_as_the_nearest_bound(zookeeper, stored, in_force_ms):
    """GroupConfig.evaluate: the bounds are the broker's, and may have changed since the value was stored."""
    zookeeper.put("/config/groups", b"")
    zookeeper.put("/config/groups/g", json.dumps({"version": 1, "config": {SESSION: stored}}).encode())
    broker = await Broker(zookeeper).start()
    assert consumer_times(broker.groups["g"]).session_timeout_ms == in_force_ms
    described = {one.name: one.value for one in await broker.configs.groups.describe("g")}
    assert described[SESSION] == stored, "what was set is shown"
    await broker.configs.close()


async def test_a_stored_setting_that_is_unknown_or_illegal_is_left_out(zookeeper):
    """A broker must not fail, nor a group lose its other settings, because of what another program wrote."""
    zookeeper.put("/config/groups", b"")
    texts = {"share.isolation.level": "read_committed", INTERVAL: "soon", HEARTBEAT: "7000"}
    zookeeper.put("/config/groups/g", json.dumps({"version": 1, "config": texts}).encode())
    broker = await Broker(zookeeper).start()
    assert consumer_times(broker.groups["g"]) == (45_000, 7_000, 1_000)
    await broker.configs.close()


async def test_a_group_is_described_with_sources(zookeeper):
    """ConfigHelper.createGroupConfigEntry; the sources are Kafka 4.3.1's: of the group, of the file, the default."""
    broker = await Broker(zookeeper, group_consumer_heartbeat_interval_ms="6000").start()
    await broker.configs.groups.alter("g", {SESSION: "50000"}, [])
    views = await broker.configs.groups.describe("g")
    assert [(one.name, one.value, one.source) for one in views if one.name.startswith("consumer.")] == [
        (INTERVAL, "1000", "DEFAULT_CONFIG"),
        (HEARTBEAT, "6000", "STATIC_BROKER_CONFIG"),
        (SESSION, "50000", "DYNAMIC_GROUP_CONFIG"),
    ]
    unset = {one.name: one.value for one in await broker.configs.groups.describe("nobody")}
    assert (unset[INTERVAL], unset[HEARTBEAT], unset[SESSION]) == ("1000", "6000", "45000")
    assert unset.keys() == GROUP_CONFIGS.keys(), "those of the share protocol as well"
    await settle()
    assert broker.configs.groups.values_of("g").integer(SESSION) == 50_000
    await broker.configs.close()


async def test_without_a_name_there_is_nothing_to_describe_or_alter(zookeeper, brokers):
    """ControllerConfigurationValidator and ConfigHelper: groups have no default entity."""
    with pytest.raises(TidegaugeError, match="Default group resources are not allowed") as refusal:
        await brokers[0].configs.groups.alter("", {SESSION: "50000"}, [])
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(TidegaugeError, match="Group name must not be empty"):
        await brokers[0].configs.groups.describe("")


async def test_a_group_follows_its_broker_in_what_it_has_not_set_itself(zookeeper):
    """A change of the broker's settings reaches groups with settings of their own, too."""
    broker = await Broker(zookeeper, 0).start()
    await broker.configs.groups.alter("g", {SESSION: "60000"}, [])
    await settle()
    broker.groups.clear()
    await broker.configs.alter_broker("0", {"background.threads": "11"}, [])
    await settle()
    assert consumer_times(broker.groups["g"]).session_timeout_ms == 60_000
    await broker.configs.close()
