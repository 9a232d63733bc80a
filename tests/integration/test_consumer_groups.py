"""librdkafka's consumers with group.protocol=consumer (KIP-848): unmodified clients, through deaths of both sides.

The extension tidegauge.zookeeper.group.protocols=classic,consumer serves them; without it the keys are not advertised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.waiting import until

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
confluent_admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SETTINGS = {
    "tidegauge.zookeeper.group.protocols": "classic,consumer",
    "group.consumer.heartbeat.interval.ms": "200",
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
    """

    def __init__(self, servers: str, group: str, name: str, topics: list[str], **conf: Any) -> None:
        super().__init__(name=name, daemon=True)
        self.owned: frozenset[int] = frozenset()
        self.read: list[tuple[int, int]] = []
        self.errors: list[Exception] = []
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
        """Commit what was read; partitions that were given up since then have nothing to commit."""
        try:
            self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as refusal:
            if refusal.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
                self.errors.append(refusal)

    def end(self) -> None:
        """Commit, leave the group and close."""
        self._ends.set()
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
    """Return whether members own all partitions, each one of them, and as many each."""
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
