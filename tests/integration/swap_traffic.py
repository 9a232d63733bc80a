"""Clients of a cluster whose brokers are swapped for Apache Kafka's and back, and the results that they must see.

The clients are librdkafka's (confluent-kafka). Some of them live through every swap: idempotent producers, one for each
codec, a transactional producer, and a member of a group. Everything they send is noted as docs/histories.md says.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions as GroupOffsets
from confluent_kafka import TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.integration.swap_clients import (
    COMPACTED,
    END,
    LIMIT_SECONDS,
    PARTITIONS,
    PLAIN,
    REQUEST_SECONDS,
    TOPICS,
    TRANSFERS,
    Log,
    Member,
    Writer,
    consumer_of,
    read_all,
    retried,
)
from tests.waiting import until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GOES_ON = "goes-on"
"""A group whose members come and go on each side."""
SET = AlterConfigOpType.SET
OPEN_MS = 600_000
"""Timeout of the transactions that their producers end, long enough for a swap."""
LEFT_OPEN_MS = 12_000
"""Timeout of the transactions that the coordinator ends."""


class Traffic:
    """The clients of one cluster that is swapped.

    Args:
        servers: addresses of the brokers, which are the same on both sides.
        directory: for the history.
        segments: settings of all topics, by which segments are rolled.
    """

    def __init__(self, servers: str, directory: Path, segments: Mapping[str, str]) -> None:
        self.servers, self.history = servers, directory / "history.jsonl"
        topics = [NewTopic(name, PARTITIONS, 3, config={**config, **segments}) for name, config in TOPICS.items()]
        self.ask(lambda admin: admin.create_topics(topics))
        self.plain = [
            Writer(servers, f"plain-{codec}", self.history, **{"compression.type": codec}) for codec in CODECS
        ]
        self.steady = self._transactional("steady", "lz4")
        self.across = self._transactional("across", "zstd")
        self._left = 0
        self._abandoned: list[Writer] = []

    def ask(self, question: Callable[[Any], Mapping[Any, Any]]) -> dict[Any, Any]:
        """Return the results of a request, retried with a new client.

        A client that has seen a coordinator's death may wait for it for ever.
        """

        def attempt() -> dict[Any, Any]:
            admin: Any = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})
            return {key: future.result(LIMIT_SECONDS) for key, future in question(admin).items()}

        return dict(retried(attempt))

    def _transactional(self, name: str, codec: str, **settings: Any) -> Writer:
        given = {"transactional.id": name, "compression.type": codec, "transaction.timeout.ms": OPEN_MS, **settings}
        writer = Writer(self.servers, name, self.history, **given)
        retried(lambda: writer.producer.init_transactions(LIMIT_SECONDS))
        return writer

    # Writing

    def write(self, rounds: int) -> None:
        """Write to all topics by all producers, and wait for the acknowledgements."""
        for at in range(rounds):
            for writer in self.plain:
                for partition in range(PARTITIONS):
                    writer.send(PLAIN, partition, None if at % 3 else b"key %d" % at)
                    writer.send(COMPACTED, partition, b"key %d" % (at % 17))
        for writer in self.plain:
            writer.flush()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write as long as the block lasts; records unacknowledged at the brokers' death are of unknown outcome.

        The others are quiet meanwhile: librdkafka fails queued records when a broker that has just started names a part
        of the partitions.
        """
        writer = Writer(self.servers, f"load-{len(self._abandoned)}", self.history, **{"linger.ms": 20})
        self._abandoned.append(writer)
        at_work = threading.Event()
        problems: list[BaseException] = []

        def work() -> None:
            try:
                while not at_work.wait(0.005):
                    if len(writer.producer) < 2_000:
                        writer.send(PLAIN, 0)
                        writer.send(COMPACTED, 1, b"under load")
                    writer.producer.poll(0)
            except BaseException as problem:  # noqa: BLE001 - reported to the caller
                problems.append(problem)

        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: len(writer.acknowledged[PLAIN, 0]) > 50, LIMIT_SECONDS, "records are acknowledged under load")
        try:
            yield
        finally:
            at_work.set()
            thread.join(LIMIT_SECONDS)
            writer.give_up()
        assert problems == []

    def transactions(self) -> None:
        """Commit one and abort one, both with records of several partitions."""
        for commits in (True, False):
            self.steady.begin()
            for at in range(30):
                self.steady.send(TRANSFERS, at % PARTITIONS, b"t%d" % (at % 5))
            self.steady.finish(commit=commits)

    def leave_open(self) -> None:
        """Leave two transactions open: one that its producer will end, and one whose producer never comes back."""
        self.across.begin()
        left = self._transactional(f"left-{self._left}", "gzip", **{"transaction.timeout.ms": LEFT_OPEN_MS})
        self._left += 1
        left.begin()
        for writer in (self.across, left):
            for at in range(20):
                writer.send(TRANSFERS, at % PARTITIONS, b"open")
            writer.flush()
        self._abandoned.append(left)

    def end_open(self, *, commit: bool) -> None:
        """Write on in the transaction that was left open, and end it; the other one is fenced by its successor."""
        for at in range(10):
            self.across.send(TRANSFERS, at % PARTITIONS, b"after the swap")
        self.across.finish(commit=commit)

    # Reading

    def read(self, *, committed: bool) -> Log:
        """Read everything, up to the high watermarks, or to the last stable offsets once these have reached them."""
        positions = [Position(topic, partition, 0) for topic in TOPICS for partition in range(PARTITIONS)]
        return read_all(self.servers, positions, committed=committed)

    def joined(self, turn: int) -> Member:
        """Return a member of a new group."""
        return Member(self.servers, f"stays-{turn}")

    def goes_on(self) -> dict[int, list[int]]:
        """Join a group, read new records of PLAIN, commit and leave; return their offsets."""
        consumer = consumer_of(self.servers, GOES_ON, committed=True, **{"auto.offset.reset": "earliest"})
        given: dict[int, list[int]] = defaultdict(list)
        at_end: set[int] = set()
        consumer.subscribe([PLAIN])

        def is_read() -> bool:
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error() is None:
                    given[message.partition()].append(message.offset())
                elif message.error().code() == END:
                    at_end.add(message.partition())
            return len(at_end) == PARTITIONS

        try:
            until(is_read, LIMIT_SECONDS, "the group is at the end")
            if given:
                retried(lambda: consumer.commit(asynchronous=False))
        finally:
            consumer.close()
        return given

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the offsets of a group, by topic and partition."""
        question = [GroupOffsets(group)]
        [found] = self.ask(
            lambda admin: admin.list_consumer_group_offsets(question, request_timeout=REQUEST_SECONDS)
        ).values()
        return {(one.topic, one.partition): one.offset for one in found.topic_partitions}

    # Actions of an administrator

    def administer(self, turn: int) -> None:
        """Change settings of a topic and of all brokers, make a topic, delete an older one, delete records."""
        changes = [
            ConfigResource(kind, name, incremental_configs=[ConfigEntry(key, str(value), incremental_operation=SET)])
            for kind, name, key, value in (
                (ResourceType.TOPIC, PLAIN, "retention.ms", 604_800_000 + turn),
                (ResourceType.BROKER, "1", "message.max.bytes", 2_000_000 + turn),
            )
        ]
        self.ask(lambda admin: admin.incremental_alter_configs(changes))
        self.ask(lambda admin: admin.create_topics([NewTopic(f"made-{turn}", 2, 3)]))
        if turn >= 2:
            self.ask(lambda admin: admin.delete_topics([f"made-{turn - 2}"]))
        self.ask(lambda admin: admin.delete_records([Position(PLAIN, 2, 20 * turn)]))

    def shown(self, *groups: str) -> dict[str, Any]:
        """Return clients' view of topics, settings, log starts and these groups."""
        names = sorted(self._names())
        described = self.ask(lambda admin: admin.describe_topics(TopicCollection(names)))
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        resources.append(ConfigResource(ResourceType.BROKER, "1"))
        of_topic, of_broker = ConfigSource.DYNAMIC_TOPIC_CONFIG.value, ConfigSource.DYNAMIC_BROKER_CONFIG.value
        configs: dict[str, dict[str, str]] = {}
        for resource in resources:
            [entries] = self.ask(lambda admin, one=resource: admin.describe_configs([one])).values()
            # An inherited setting depends on the broker that is asked; only a topic's own are the same at all.
            source = of_topic if resource.restype is ResourceType.TOPIC else of_broker
            configs[resource.name] = {name: one.value for name, one in entries.items() if one.source == source}
        starts = {
            Position(topic, partition): OffsetSpec.earliest() for topic in TOPICS for partition in range(PARTITIONS)
        }
        return {
            "topics": {name: (str(one.topic_id), len(one.partitions)) for name, one in described.items()},
            "configs": configs,
            "starts": {
                (at.topic, at.partition): found.offset
                for at, found in self.ask(lambda admin: admin.list_offsets(starts)).items()
            },
            "groups": {group: self.committed(group) for group in (GOES_ON, *groups)},
            "members": {
                group: (found.state.name, [one.member_id for one in found.members])
                for group, found in (
                    self.ask(lambda admin: admin.describe_consumer_groups(list(groups))) if groups else {}
                ).items()
            },
        }

    def _names(self) -> list[str]:
        admin: Any = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})
        return list(retried(lambda: admin.list_topics(timeout=REQUEST_SECONDS)).topics)

    def check(self, everything: Log, committed: Log) -> None:
        """Check that every acknowledged record is at its offset, and committed transactions are readable."""
        for writer in (*self.plain, self.steady, self.across, *self._abandoned):
            for at, values in writer.acknowledged.items():
                if at[0] != COMPACTED:
                    first = min(everything[at])
                    kept = {offset: everything[at][offset].value for offset in values if offset in everything[at]}
                    lost = {offset for offset, value in values.items() if offset >= first and kept.get(offset) != value}
                    assert lost == set(), f"{at}: {lost} are lost"
        in_transactions = {
            at: set().union(*(writer.committed[at] for writer in (self.steady, self.across)))
            for at in committed
            if at[0] == TRANSFERS
        }
        assert {at: set(records) for at, records in committed.items() if at[0] == TRANSFERS} == in_transactions

    # The cluster

    def wait_in_sync(self, replicas: int = 3) -> None:
        """Wait until each partition of every topic has a leader and all its replicas in sync."""

        admin: Any = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})

        def in_sync() -> bool:
            try:
                topics = admin.list_topics(timeout=5).topics
            except confluent_kafka.KafkaException:
                return False
            return all(
                one.leader >= 0 and len(one.isrs) == min(replicas, len(one.replicas))
                for topic in topics.values()
                for one in topic.partitions.values()
            )

        until(in_sync, LIMIT_SECONDS, "all replicas are in sync")
        for writer in (*self.plain, self.steady, self.across):
            writer.refresh()
