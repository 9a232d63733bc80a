"""librdkafka's consumers with group.protocol=consumer (KIP-848): unmodified clients, through deaths of both sides.

The extension tidegauge.zookeeper.group.protocols=classic,consumer serves them; without it the keys are not advertised.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from tests import kafka_requests
from tests.waiting import until

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidegauge_client.cli.configs import alter_config
from tidegauge_client.cli.explain import explain
from tidegauge_client.cli.groups import describe_group
from tidegauge_lab.group_conditions import GroupCondition
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.pytest_plugin.conditions import wait_until_group
from tidegauge_lab.switches import Switches

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
confluent_admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SETTINGS = {
    "tidegauge.zookeeper.group.protocols": "classic,consumer",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignors": "range,uniform",
}
PARTITIONS = 4
RECORDS = 200
LIMIT_SECONDS = 60
CONSUMER_KEYS = (68, 69)


class Member(threading.Thread):
    """A consumer on a thread of its own; it commits what it has read when it closes.

    Attributes:
        owned: its partitions now.
        read: offsets of the records that it has read, by partition.
        errors: what its polls have raised.
        polls: cleared, it polls no more until it is set.
    """

    def __init__(self, servers: str, group: str, name: str, topics: list[str], **conf: Any) -> None:
        super().__init__(name=name, daemon=True)
        self.owned: frozenset[int] = frozenset()
        self.read: list[tuple[int, int]] = []
        self.errors: list[Exception] = []
        self.polls = threading.Event()
        self.polls.set()
        self._ends = threading.Event()
        self._topics = topics
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": "consumer",
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **conf,
            }
        )
        self.start()

    def run(self) -> None:
        self._consumer.subscribe(self._topics)
        while not self._ends.is_set():
            self.polls.wait()
            message = self._consumer.poll(0.05)
            self.owned = frozenset(one.partition for one in self._consumer.assignment())
            if message is None:
                continue
            if message.error():
                self.errors.append(message.error())
                continue
            self.read.append((message.partition(), message.offset()))
        self.owned = frozenset()
        self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        """Commit the records read; partitions that were given up since then have nothing to commit."""
        try:
            self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as refusal:
            if refusal.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
                self.errors.append(refusal)

    def end(self) -> None:
        """Commit, leave the group and close."""
        self._ends.set()
        self.polls.set()
        self.join(LIMIT_SECONDS)
        assert not self.is_alive(), f"{self.name} does not close"


Join = Callable[..., Member]


@pytest.fixture
def servers(brokers: LocalCluster) -> str:
    return ",".join(brokers.kafka_bootstrap_servers)


@pytest.fixture
def admin(servers: str) -> Any:
    return confluent_admin.AdminClient({"bootstrap.servers": servers})


Describe = Callable[[str], Any]


@pytest.fixture
def describe(servers: str) -> Describe:
    """Asks for what the coordinator of a group says of it, once there is one.

    librdkafka's admin client keeps a group's coordinator and asks once, so each question has a client of its own.
    """
    error = confluent_kafka.KafkaError
    moving = {error.NOT_COORDINATOR, error.COORDINATOR_LOAD_IN_PROGRESS, error.COORDINATOR_NOT_AVAILABLE}

    def asked(group: str) -> Any:
        admin = confluent_admin.AdminClient({"bootstrap.servers": servers})
        try:
            return admin.describe_consumer_groups([group])[group].result(LIMIT_SECONDS)
        except confluent_kafka.KafkaException as refusal:
            if refusal.args[0].code() not in moving:
                raise
            return None

    return lambda group: until(lambda: asked(group), what=f"a coordinator describes {group}")


@pytest.fixture
def topic(admin: Any, servers: str, request: pytest.FixtureRequest) -> str:
    """A topic with records in each of its partitions, whose name is the test's."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    new = confluent_admin.NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    for created in admin.create_topics([new]).values():
        created.result(LIMIT_SECONDS)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(name, str(number), partition=number % PARTITIONS)
    assert producer.flush(LIMIT_SECONDS) == 0
    return name


@pytest.fixture
def join(servers: str) -> Iterator[Join]:
    """Starts members, and ends those that are left."""
    members: list[Member] = []

    def make(group: str, name: str, *topics: str, **conf: Any) -> Member:
        members.append(Member(servers, group, name, list(topics), **conf))
        return members[-1]

    yield make
    for member in members:
        if member.is_alive():
            member.end()


def _own(*members: Member) -> bool:
    """Return whether members own all partitions, evenly and once."""
    sizes = {len(member.owned) for member in members}
    owned = [partition for member in members for partition in member.owned]
    return sorted(owned) == list(range(PARTITIONS)) and sizes == {PARTITIONS // len(members)}


def _committed(admin: Any, group: str) -> dict[int, int]:
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result(LIMIT_SECONDS)
    return {one.partition: one.offset for one in found.topic_partitions}


def test_members_share_a_topic_and_go_on_where_the_last_one_ended(
    admin: Any, topic: str, join: Join, describe: Describe
):
    first = join("sharing", "first", topic)
    until(lambda: len(first.read) == RECORDS, what="all records are read")
    second = join("sharing", "second", f"^{topic[:-1]}.*")  # a regular expression, which the broker resolves
    until(lambda: _own(first, second), what="both own two partitions")
    described = describe("sharing")
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    assert described.type == confluent_kafka.ConsumerGroupType.CONSUMER
    assert described.partition_assignor == "range"
    assert {member.client_id for member in described.members} == {"first", "second"}
    first.end()
    until(lambda: _own(second), what="the other owns all")
    second.end()
    assert _committed(admin, "sharing") == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    third = join("sharing", "third", topic)
    until(lambda: _own(third), what="the newcomer owns all")
    assert not third.read
    assert not [*first.errors, *second.errors, *third.errors]
    listed = admin.list_consumer_groups().result(LIMIT_SECONDS).valid
    assert ("sharing", confluent_kafka.ConsumerGroupType.CONSUMER) in {(one.group_id, one.type) for one in listed}


def _coordinator_of(brokers: LocalCluster, group: str) -> int | None:
    """Return the group's coordinator; None while its partition has no leader."""
    try:
        return brokers.coordinator_of(group)
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.LEADER_NOT_AVAILABLE:
            raise
        return None


def test_a_group_outlives_its_coordinator(brokers: LocalCluster, topic: str, join: Join, describe: Describe):
    """Members, epochs and assignments are in the log; another broker goes on with them (CoordinatorLoaderImpl)."""
    first, second = (join("failing-over", name, topic) for name in ("first", "second"))
    until(lambda: _own(first, second), what="both own two partitions")
    epochs = {member.member_id for member in describe("failing-over").members}
    old = brokers.coordinator_of("failing-over")
    brokers.kill(old, expire=True)
    try:
        until(lambda: _coordinator_of(brokers, "failing-over") not in {None, old}, what="another broker coordinates")
        third = join("failing-over", "third", topic)
        fourth = join("failing-over", "fourth", topic)
        until(lambda: _own(first, second, third, fourth), what="each of four owns a partition")
    finally:
        brokers.start(old)
    assert epochs <= {member.member_id for member in describe("failing-over").members}
    for member in (first, second, third, fourth):
        member.end()
    until(lambda: not describe("failing-over").members, what="the group is empty")


def test_a_static_member_that_returns_gets_its_partitions_without_a_rebalance(
    topic: str, join: Join, describe: Describe
):
    other = join("static", "other", topic)
    member = join("static", "static", topic, **{"group.instance.id": "i"})
    until(lambda: _own(other, member), what="both own two partitions")
    had, others = member.owned, other.owned
    member.end()
    again = join("static", "again", topic, **{"group.instance.id": "i"})
    until(lambda: again.owned, what="the static member is back")
    assert (again.owned, other.owned) == (had, others)
    assert {one.group_instance_id for one in describe("static").members} == {"i", None}


def test_new_partitions_are_assigned(admin: Any, topic: str, join: Join):
    member = join("growing", "member", topic)
    until(lambda: _own(member), what="the member owns all")
    for grown in admin.create_partitions([confluent_admin.NewPartitions(topic, PARTITIONS + 2)]).values():
        grown.result(LIMIT_SECONDS)
    until(lambda: member.owned == frozenset(range(PARTITIONS + 2)), what="the member owns the new ones, too")


def _interval_ms(brokers: LocalCluster, group: str, member_epoch: int) -> int:
    """Send a heartbeat of a member that is subscribed to nothing; return the interval in the response."""
    address = brokers.kafka_bootstrap_servers[brokers.coordinator_of(group)]
    request = ConsumerGroupHeartbeatRequest(
        group, "by-hand", member_epoch, rebalance_timeout_ms=5_000, subscribed_topic_names=[], topic_partitions=[]
    )
    response = kafka_requests.ask(address, CONSUMER_KEYS[0], request, 1)
    assert response.error_code == ErrorCode.NONE, response.error_message
    return int(response.heartbeat_interval_ms)


def test_a_group_has_settings_of_its_own(brokers: LocalCluster, topic: str, join: Join):
    """GroupConfigManager: every broker has them, whichever coordinates the group; a value out of bounds is refused."""
    member = join("configured", "member", topic)
    until(lambda: _own(member), what="there is a coordinator")
    assert _interval_ms(brokers, "configured", 0) == 200
    interval = "consumer.heartbeat.interval.ms"
    verb = ["--group", "configured", "--dir", str(brokers.directory), "--add-config"]
    done = CliRunner().invoke(alter_config, [*verb, f"{interval}=700"])
    assert (done.exit_code, done.output) == (0, "Completed updating config for group configured.\n")
    assert _interval_ms(brokers, "configured", 0) == 700
    done = CliRunner().invoke(alter_config, [*verb, f"{interval}=701,consumer.session.timeout.ms=60001"])
    assert done.exit_code == 1
    assert "must be less than or equal to group.consumer.max.session.timeout.ms (60000)" in done.output
    old = brokers.coordinator_of("configured")
    brokers.kill(old)
    try:
        until(lambda: _coordinator_of(brokers, "configured") not in {None, old}, what="another broker coordinates")
        until(lambda: _own(member), what="the group goes on")
        assert _interval_ms(brokers, "configured", 0) == 700
    finally:
        brokers.start(old)


def _explained(brokers: LocalCluster, group: str) -> dict[str, Any]:
    """Return the document of ``explain group:G -o json``."""
    done = CliRunner().invoke(explain, [f"group:{group}", "-o", "json", "--dir", str(brokers.directory)])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def _about(brokers: LocalCluster, group: str, words: str) -> list[dict[str, Any]]:
    return [one for one in _explained(brokers, group)["sentences"] if words in one["text"]]


def test_a_member_that_keeps_its_partitions_is_named_until_it_gives_them_up(
    brokers: LocalCluster, topic: str, join: Join
):
    """A consumer that does not poll revokes nothing, though it sends heartbeats; max.poll.interval.ms ends that."""
    slow = join("explained", "slow", topic, **{"max.poll.interval.ms": 60_000})
    until(lambda: _own(slow), what="one owns all")
    slow.polls.clear()
    second = join("explained", "second", topic)
    [sentence] = until(lambda: _about(brokers, "explained", "has not given up"), what="explain names the slow one")
    assert "(slow)" in sentence["text"]
    assert "in another" in sentence["text"]
    assert 0 < sentence["wait_ms"] <= 60_000
    [waiting] = _about(brokers, "explained", "and waits for")
    assert "(second)" in waiting["text"]
    assert _explained(brokers, "explained")["state"] == "Reconciling"
    slow.polls.set()
    until(lambda: _own(slow, second), what="both own two partitions")
    members = ["explained", "--members", "--verbose", "--dir", str(brokers.directory)]
    described = CliRunner().invoke(describe_group, members)
    assert described.output.split("\n")[0].split()[-4:] == [
        "CURRENT-EPOCH",
        "CURRENT-ASSIGNMENT",
        "TARGET-EPOCH",
        "TARGET-ASSIGNMENT",
    ]
    rows = [line.split() for line in described.output.splitlines()[1:]]
    assert len(rows) == 2
    assert all(row[-4:-2] == row[-2:] for row in rows), "each member has its target"


async def test_heartbeats_of_a_group_are_held_and_released(
    brokers: LocalCluster, lab: Switches, topic: str, join: Join
):
    """hold-requests by Kafka's name of the API: the member's group stands still, another one goes on."""
    first = join("held", "first", topic)
    await asyncio.to_thread(until, lambda: _own(first), what="one owns all")
    coordinator = brokers.coordinator_of("held")
    await lab.hold_requests(coordinator, "ConsumerGroupHeartbeat", group="held")
    second = join("held", "second", topic)
    other = join("not-held", "other", topic)
    await asyncio.to_thread(until, lambda: _own(other), what="the other group has its member")
    condition = GroupCondition("Stable", members=1, epochs={"first": 1})
    with_lab = brokers.bootstrap_servers
    found = await wait_until_group(with_lab, "held", condition, LIMIT_SECONDS)
    await lab.release_requests(coordinator)
    await asyncio.to_thread(until, lambda: _own(first, second), what="both own two partitions")
    epochs = {"first": found.generation + 1, "second": found.generation + 1}
    await wait_until_group(with_lab, "held", GroupCondition("Stable", 2, epochs=epochs), LIMIT_SECONDS)


def test_after_a_restart_of_all_brokers_the_group_is_as_it_was(
    brokers: LocalCluster, topic: str, join: Join, describe: Describe
):
    first, second = (join("restarted", name, topic) for name in ("first", "second"))
    until(lambda: _own(first, second), what="both own two partitions")
    first.end()
    until(lambda: _own(second), what="one owns all")
    brokers.down()
    brokers.up()
    brokers.wait_ready()
    third = join("restarted", "third", topic)
    until(lambda: _own(second, third), what="both own two partitions again")
    assert {member.client_id for member in describe("restarted").members} == {"second", "third"}
