"""Dynamic settings through ZooKeeper: Kafka's znodes, applied by every broker in order (ZkConfigManager)."""

from __future__ import annotations

import asyncio
import json

import pytest
from config_zookeeper import Broker, FakeZooKeeper, settle

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import ListChange
from tidegauge_broker.server.cluster.zookeeper.config_changes import EXPIRATION_MS
from tidegauge_controller.zookeeper.client import NoNode
from tidegauge_controller.zookeeper.config_admin import ConfigAdmin

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
ADVERTISED = "advertised.listeners"
MOVED = "PLAINTEXT://public:1"


@pytest.fixture
async def zookeeper():
    return FakeZooKeeper()


@pytest.fixture
async def brokers(zookeeper):
    made = [await Broker(zookeeper, broker_id).start() for broker_id in (0, 1)]
    yield made
    for broker in made:
        await broker.configs.close()


def payload(zookeeper, path: str):
    return json.loads(zookeeper.nodes[path][0])


async def test_the_znodes_are_kafkas(zookeeper, brokers):
    """ConfigEntityZNode version 1; ConfigEntityChangeNotificationSequenceZNode version 2, a path below /config."""
    number = await brokers[0].configs.alter_topic("t", {"retention.ms": "5000", MIN_ISR: "2"}, [])
    assert number == 0
    assert payload(zookeeper, "/config/topics/t") == {"version": 1, "config": {"retention.ms": "5000", MIN_ISR: "2"}}
    assert payload(zookeeper, "/config/changes/config_change_0000000000") == {"version": 2, "entity_path": "topics/t"}
    await brokers[1].configs.alter_broker("", {MIN_ISR: "3"}, [])
    assert payload(zookeeper, "/config/brokers/<default>") == {"version": 1, "config": {MIN_ISR: "3"}}
    change = payload(zookeeper, "/config/changes/config_change_0000000001")
    assert change == {"version": 2, "entity_path": "brokers/<default>"}
    await brokers[1].configs.alter_broker("1", {MIN_ISR: "1"}, [])
    assert payload(zookeeper, "/config/brokers/1")["config"] == {MIN_ISR: "1"}


@pytest.mark.parametrize("name", ["01", "+1"])
async def test_a_broker_is_named_by_its_number_however_it_is_written(zookeeper, brokers, name):
    """ZkAdminManager.getBrokerId reads a number and writes its znode; in one named "01" no broker would look."""
    await brokers[1].configs.alter_broker(name, {MIN_ISR: "2"}, [])
    await settle()
    assert brokers[1].settings.live.integer(MIN_ISR) == 2
    assert not [path for path in zookeeper.nodes if path.endswith(f"/{name}")]


async def test_what_a_kafka_broker_was_given_stays_and_prevents_nothing(zookeeper, brokers):
    """A cluster that was Apache Kafka's may have settings that are dynamic there and unknown or fixed here."""
    of_kafka = {"log.cleaner.io.max.bytes.per.second": "1000000", "max.connections": "10", "log.segment.bytes": "x"}
    zookeeper.put("/config/brokers/1", json.dumps({"version": 1, "config": of_kafka}).encode())
    await brokers[1].configs.alter_broker("1", {MIN_ISR: "2"}, [])
    assert payload(zookeeper, "/config/brokers/1")["config"] == of_kafka | {MIN_ISR: "2"}
    for again in of_kafka.items():
        with pytest.raises(TidegaugeError):
            await brokers[1].configs.alter_broker("1", dict([again]), [])
    await brokers[1].configs.alter_broker("1", {}, list(of_kafka))
    assert payload(zookeeper, "/config/brokers/1")["config"] == {MIN_ISR: "2"}


async def test_every_broker_applies_a_change(zookeeper, brokers):
    number = await brokers[0].configs.alter_topic("t", {MIN_ISR: "2"}, [])
    await settle()
    assert [broker.topics for broker in brokers] == [{"t": 2}, {"t": 2}]
    assert [broker.configs.applied_change for broker in brokers] == [number, number]
    await brokers[1].configs.alter_topic("t", {}, [MIN_ISR])
    await settle()
    assert [broker.topics for broker in brokers] == [{"t": 1}, {"t": 1}]
    assert payload(zookeeper, "/config/topics/t") == {"version": 1, "config": {}}


async def test_a_brokers_default_reaches_its_topics_below_their_own(zookeeper, brokers):
    await brokers[0].configs.alter_topic("t", {MIN_ISR: "2"}, [])
    await brokers[0].configs.alter_topic("u", {"retention.ms": "1"}, [])
    await brokers[0].configs.alter_broker("", {MIN_ISR: "3"}, [])
    await brokers[1].configs.alter_broker("1", {MIN_ISR: "4", "producer.id.expiration.ms": "7"}, [])
    await settle()
    assert [broker.topics for broker in brokers] == [{"t": 2, "u": 3}, {"t": 2, "u": 4}]
    assert brokers[1].settings.live.integer("producer.id.expiration.ms") == 7
    assert brokers[0].settings.live.integer("producer.id.expiration.ms") == 86_400_000
    assert brokers[0].configs.topics.known("never-seen").integer(MIN_ISR) == 3


async def test_what_was_changed_while_a_broker_was_down_is_in_force_after_its_start(zookeeper, brokers):
    await brokers[0].configs.alter_topic("t", {MIN_ISR: "2"}, [])
    await brokers[0].configs.alter_broker("", {"log.segment.bytes": "1000"}, [])
    for name in await zookeeper.children("/config/changes"):
        await zookeeper.delete(f"/config/changes/{name}")
    late = await Broker(zookeeper, 2).start()
    assert late.configs.topics.known("t").integer(MIN_ISR) == 2
    assert late.configs.topics.known("t").integer("segment.bytes") == 1000
    await late.configs.close()


async def test_a_new_session_reads_everything_again(zookeeper, brokers):
    """Notifications may have come and been purged meanwhile."""
    zookeeper.put("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"2"}}')
    zookeeper.fire()
    await settle()
    assert brokers[0].topics == {}
    zookeeper.expire()
    await settle()
    assert [broker.topics for broker in brokers] == [{"t": 2}, {"t": 2}]


async def test_malformed_notifications_are_skipped(zookeeper, brokers):
    for data in (b"nonsense", b'{"version":2,"entity_path":"topics"}', b'{"version":2,"entity_path":"clients/c"}'):
        await zookeeper.create("/config/changes/config_change_", data, sequence=True)
    zookeeper.put("/config/changes/other", b"x")
    zookeeper.put("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"2","nonsense":"1"}}')
    # Version 1 is what Kafka before 0.9 wrote.
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    await zookeeper.create("/config/changes/config_change_", old, sequence=True)
    await settle()
    assert [broker.topics for broker in brokers] == [{"t": 2}, {"t": 2}]
    assert brokers[0].configs.applied_change == 3


async def test_a_change_that_could_not_be_applied_is_tried_again_with_the_next(zookeeper, brokers, monkeypatch):
    with monkeypatch.context() as patched:
        patched.delattr(Broker, "topic_settings_changed")
        await brokers[0].configs.alter_topic("t", {MIN_ISR: "2"}, [])
        await settle()
    assert brokers[1].topics == {}
    await brokers[0].configs.alter_topic("u", {MIN_ISR: "3"}, [])
    await settle()
    assert [broker.topics for broker in brokers] == [{"t": 2, "u": 3}, {"t": 2, "u": 3}]


async def test_a_change_of_addresses_is_applied_when_they_are_registered(zookeeper, brokers, monkeypatch):
    """DynamicListenerConfig.reconfigure: by the broker alone; deleted settings return to the file's values."""
    registered = asyncio.Event()
    register = Broker.advertise

    async def advertise(self) -> None:
        await registered.wait()
        await register(self)

    monkeypatch.setattr(Broker, "advertise", advertise)
    first = await brokers[1].configs.alter_broker("1", {ADVERTISED: MOVED}, [])
    await settle()
    assert brokers[1].configs.applied_change < first, "its registration is not written yet"
    registered.set()
    await settle()
    assert brokers[1].configs.applied_change == first
    await brokers[1].configs.alter_broker("1", {}, [ADVERTISED])
    await settle()
    assert [broker.advertised for broker in brokers] == [[], [MOVED, None]]


async def test_addresses_are_registered_with_what_a_new_session_reads(zookeeper, brokers):
    zookeeper.put("/config/brokers/0", json.dumps({"version": 1, "config": {ADVERTISED: MOVED}}).encode())
    zookeeper.expire()
    await settle()
    assert brokers[0].advertised[-1] == MOVED


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(("name", "value"), [("1", "OTHER://h:1"), ("1", ""), ("", MOVED), ("0", MOVED)])
async def test_addresses_that_are_refused_are_not_written(zookeeper, brokers, name, value, validate_only):
    """ConfigAdminManager.validateBrokerConfigChange: INVALID_REQUEST, also with validate_only."""
    before = dict(zookeeper.nodes)
    with pytest.raises(TidegaugeError) as caught:
        await brokers[1].configs.alter_broker(name, {ADVERTISED: value}, [], validate_only=validate_only)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert zookeeper.nodes == before
    assert await brokers[1].configs.alter_broker("1", {ADVERTISED: MOVED}, [], validate_only=True) == -1
    assert zookeeper.nodes == before


async def test_old_notifications_are_purged(zookeeper, brokers):
    """ZkNodeChangeNotificationListener.purgeObsoleteNotifications: after 15 minutes, by whoever sees them."""
    await brokers[0].configs.alter_topic("t", {MIN_ISR: "2"}, [])
    zookeeper.now_ms = EXPIRATION_MS
    await brokers[0].configs.alter_topic("t", {MIN_ISR: "3"}, [])
    await settle()
    assert len(await zookeeper.children("/config/changes")) == 2
    zookeeper.now_ms += 1
    zookeeper.fire()
    await settle()
    assert await zookeeper.children("/config/changes") == ["config_change_0000000001"]
    assert [broker.topics for broker in brokers] == [{"t": 3}, {"t": 3}]


@pytest.mark.parametrize(
    ("entity", "changes", "deleted", "code", "message"),
    [
        ("topic t", {"retention": "1"}, [], ErrorCode.INVALID_CONFIG, "Unknown topic config name: retention"),
        (
            "topic t",
            {"segment.bytes": "3"},
            [],
            ErrorCode.INVALID_CONFIG,
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): Invalid value 3 for configuration "
            "segment.bytes: Value must be at least 14; it must be a whole number from 14 to 2147483647",
        ),
        ("topic t", {MIN_ISR: "3"}, [MIN_ISR], ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"),
        ("topic x", {MIN_ISR: "3"}, [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'x' does not exist."),
        ("topic ", {MIN_ISR: "3"}, [], ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        ("broker ", {"nonsense": "3"}, [], ErrorCode.INVALID_CONFIG, "Unknown config name: nonsense"),
        (
            "broker 0",
            {"zookeeper.connect": "x"},
            [],
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: Set(zookeeper.connect)",
        ),
        ("broker 1", {MIN_ISR: "2"}, [], ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 0, but received 1"),
    ],
)
async def test_a_bad_alteration_changes_nothing(zookeeper, brokers, entity, changes, deleted, code, message):
    await brokers[0].configs.alter_topic("t", {MIN_ISR: "2"}, [])
    before = dict(zookeeper.nodes)
    kind, _, name = entity.partition(" ")
    alter = brokers[0].configs.alter_topic if kind == "topic" else brokers[0].configs.alter_broker
    with pytest.raises(TidegaugeError) as refusal:
        await alter(name, {"retention.ms": "1", **changes} if kind == "topic" else changes, deleted)
    assert (refusal.value.code, refusal.value.message[: len(message)]) == (code, message)
    assert zookeeper.nodes == before


async def test_of_two_alterations_at_once_neither_is_lost(zookeeper, brokers):
    """The znode is written expecting the version that was read (Kafka writes blindly)."""

    def other() -> None:
        zookeeper.before_multi = None
        zookeeper.put("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')

    zookeeper.put("/controller", b"{}")
    zookeeper.before_multi = other
    await brokers[0].configs.alter_topic("t", {MIN_ISR: "2"}, [])
    assert payload(zookeeper, "/config/topics/t")["config"] == {"retention.ms": "5", MIN_ISR: "2"}
    zookeeper.before_multi = other
    await brokers[0].configs.alter_topic("t", {"segment.ms": "9"}, [])
    assert payload(zookeeper, "/config/topics/t")["config"] == {"retention.ms": "5", "segment.ms": "9"}


async def test_of_two_that_add_to_a_list_at_once_neither_is_lost(zookeeper, brokers):
    """Gains and losses of a list apply to the list that the write expects to find (Kafka's later one wins)."""

    def other(policy: str):
        def write() -> None:
            zookeeper.before_multi = None
            zookeeper.put("/config/topics/t", b'{"version":1,"config":{"cleanup.policy":"%s"}}' % policy.encode())

        return write

    def policy() -> str:
        return payload(zookeeper, "/config/topics/t")["config"]["cleanup.policy"]

    zookeeper.before_multi = other("compact")
    await brokers[0].configs.alter_topic("t", {"cleanup.policy": ListChange(("delete",), True, "delete")}, [])
    assert policy() == "compact,delete"
    zookeeper.before_multi = other("delete,compact")
    await brokers[0].configs.alter_topic("t", {"cleanup.policy": ListChange(("delete",), False, "delete")}, [])
    assert policy() == "compact"


@pytest.mark.parametrize("entity", ["topics/t", "brokers/0"])
async def test_of_two_that_replace_all_settings_at_once_the_later_one_stands_alone(zookeeper, brokers, entity):
    """AlterConfigs: settings without a name return to their default, also those set since the request was read."""
    first, second = ("retention.ms", "segment.ms") if entity == "topics/t" else ("log.retention.ms", "log.roll.ms")

    def other() -> None:
        zookeeper.before_multi = None
        zookeeper.put(f"/config/{entity}", b'{"version":1,"config":{"%s":"5"}}' % first.encode())

    zookeeper.put("/controller", b"{}")
    zookeeper.before_multi = other
    configs = brokers[0].configs
    if entity == "topics/t":
        await configs.alter_topic("t", {second: "9"}, None)
    else:
        await configs.alter_broker("0", {second: "9"}, None)
    assert payload(zookeeper, f"/config/{entity}")["config"] == {second: "9"}


async def test_what_replaces_all_settings_leaves_what_is_not_usable_here(zookeeper, brokers):
    """A broker's znode may have settings that an Apache Kafka broker was given, which the table lacks."""
    zookeeper.put("/controller", b"{}")
    zookeeper.put("/config/brokers/0", b'{"version":1,"config":{"of.a.plugin":"5","log.retention.ms":"7"}}')
    await brokers[0].configs.alter_broker("0", {"log.roll.ms": "9"}, None)
    assert payload(zookeeper, "/config/brokers/0")["config"] == {"of.a.plugin": "5", "log.roll.ms": "9"}


@pytest.mark.parametrize("left", [("of.a.plugin", "5"), ("retention.ms", "x")])
async def test_what_replaces_all_settings_of_a_topic_mends_one_that_is_of_no_use(zookeeper, brokers, left):
    """ZkAdminManager.alterTopicConfigs looks at what the request has; the former settings refused every other one."""
    zookeeper.put("/config/topics/t", json.dumps({"version": 1, "config": dict([left])}).encode())
    await brokers[0].configs.alter_topic("t", {"segment.ms": "9"}, None)
    assert payload(zookeeper, "/config/topics/t")["config"] == {"segment.ms": "9"}


async def test_a_deleted_topic_leaves_no_settings_and_one_of_its_name_begins_with_its_own(zookeeper, brokers):
    topics = brokers[0].configs.topics
    zookeeper.put("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"2"}}')
    await topics.read_values("t")
    assert topics.known("t").integer(MIN_ISR) == 2
    topics.forget("t")
    assert topics.known("t").integer(MIN_ISR) == 1
    assert topics.broker_changed() == {}, "nothing of it is kept"
    topics.forget("t")


async def test_topics_that_were_deleted_while_the_session_was_lost_are_forgotten(zookeeper, brokers):
    topics = brokers[0].configs.topics
    zookeeper.put("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"2"}}')
    zookeeper.put("/config/topics/u", b'{"version":1,"config":{}}')
    await brokers[0].configs.read_all()
    assert sorted(topics.broker_changed()) == ["t", "u"]
    del zookeeper.nodes["/config/topics/t"]
    await brokers[0].configs.read_all()
    assert sorted(topics.broker_changed()) == ["u"]
    assert topics.known("t").integer(MIN_ISR) == 1


@pytest.mark.parametrize(
    ("change", "current", "expected"),
    [
        (ListChange(("b", "c"), True, "x"), "a,b", "a,b,c"),
        (ListChange(("b",), True, "x,y"), None, "x,y,b"),
        (ListChange(("b",), True), None, "b"),
        (ListChange(("b", "c"), False, "x"), "a,b", "a"),
        (ListChange(("x",), False, "x,y"), None, "y"),
        (ListChange(("b",), True, "x"), "", "b"),
    ],
)
def test_a_list_gains_behind_and_loses(change: ListChange, current: str | None, expected: str) -> None:
    """KIP-339: a present part is not added again; a list that the entity lacks is the one in force."""
    assert change.of(current) == expected


class SilentAfter:
    """A ZooKeeper that carries out every request, and does not respond from one of them on."""

    def __init__(self, zookeeper, responses: int) -> None:
        self._zookeeper = zookeeper
        self._responses = responses

    def __getattr__(self, name):
        request = getattr(self._zookeeper, name)

        async def carried_out(*arguments, **named):
            result = await request(*arguments, **named)
            self._responses -= 1
            if self._responses < 0:
                await asyncio.get_running_loop().create_future()
            return result

        return carried_out


@pytest.mark.parametrize("responses", range(5))
async def test_an_alteration_whose_client_leaves_is_notified_or_not_written(zookeeper, brokers, responses):
    """The handler is cancelled at its wait: no broker would hear of settings without a notification."""
    admin = ConfigAdmin(SilentAfter(zookeeper, responses))
    task = asyncio.get_running_loop().create_task(admin.alter("topics/t", lambda _: {MIN_ISR: "2"}))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    is_written = "/config/topics/t" in zookeeper.nodes
    assert is_written is bool(await zookeeper.children("/config/changes"))
    await settle()
    assert [broker.topics for broker in brokers] == [{"t": 2} if is_written else {}] * 2


async def test_an_alteration_that_has_no_place_for_its_notification_is_not_written(zookeeper):
    """It ends with the error of ZooKeeper, and is not tried for ever."""
    del zookeeper.nodes["/config/changes"]
    with pytest.raises(NoNode):
        await ConfigAdmin(zookeeper).alter("topics/t", lambda _: {MIN_ISR: "2"})
    assert "/config/topics/t" not in zookeeper.nodes


async def test_a_controller_that_changes_meanwhile_makes_the_write_look_again(zookeeper, brokers):
    """KafkaZkClient.setOrCreateEntityConfigs: one transaction with a check of /controller."""
    zookeeper.put("/controller", b"{}")
    writes = []

    def other() -> None:
        writes.append(dict(zookeeper.nodes))
        if len(writes) == 1:
            zookeeper.put("/controller", b"{}")

    zookeeper.before_multi = other
    await brokers[0].configs.alter_topic("t", {MIN_ISR: "2"}, [])
    assert len(writes) == 2
    assert "/config/topics/t" not in writes[1]


async def test_the_controller_hears_when_unclean_elections_become_allowed(zookeeper, brokers):
    """TopicConfigHandler and DynamicLogConfig.reconfigure: enableTopic- and enableDefaultUncleanLeaderElection."""
    await brokers[0].configs.alter_topic("t", {UNCLEAN: "true"}, [])
    await brokers[0].configs.alter_broker("", {UNCLEAN: "true"}, [])
    await settle()
    assert [broker.unclean for broker in brokers] == [["t", None], ["t", None]]
    await brokers[0].configs.alter_broker("", {MIN_ISR: "2"}, [])
    await settle()
    assert brokers[0].unclean == ["t", None], "it was allowed already"
    await brokers[0].configs.alter_broker("", {UNCLEAN: "false"}, [])
    await brokers[0].configs.alter_topic("t", {UNCLEAN: "false"}, [])
    await settle()
    assert brokers[0].unclean == ["t", None]


async def test_descriptions(zookeeper, brokers):
    """ConfigHelper: topics from ZooKeeper, brokers from the values in force, the default only from its own settings."""
    await brokers[0].configs.alter_topic("t", {MIN_ISR: "2"}, [])
    await brokers[0].configs.alter_broker("", {"log.segment.bytes": "1000"}, [])
    await settle()
    topic = {view.name: view for view in await brokers[1].configs.describe_topic("t")}
    assert (topic[MIN_ISR].value, topic[MIN_ISR].source) == ("2", "DYNAMIC_TOPIC_CONFIG")
    assert (topic["segment.bytes"].value, topic["segment.bytes"].source) == ("1000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    assert topic["retention.ms"].is_default
    broker = {view.name: view for view in brokers[1].configs.describe_broker("1")}
    assert broker["log.segment.bytes"].source == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert [(view.name, view.value) for view in brokers[1].configs.describe_broker("")] == [
        ("log.segment.bytes", "1000")
    ]
    with pytest.raises(TidegaugeError, match="Unexpected broker id, expected 1 or empty string, but received 0"):
        brokers[1].configs.describe_broker("0")
    with pytest.raises(TidegaugeError, match="This server does not host this topic-partition"):
        await brokers[1].configs.describe_topic("x")
