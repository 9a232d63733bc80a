"""One story of requests at the active controller; its brokers exist as requests alone.

Two quorums of one controller each hear the same story: one of ours, and one of Apache Kafka 4.3.1. Topic ids are given
by the controllers, so each side has names for its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.integration.quorum_nodes import CLUSTER, Quorum

from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_APIS, KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from tidegauge.kafka_channel import KafkaChannel

_FEATURES = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
FAR = 10**9
"""A metadata offset that a broker in this story reports: it knows everything."""


class Teller:
    """Tells the story at one quorum."""

    def __init__(self, quorum: Quorum) -> None:
        self._address = quorum.nodes[0].address
        self._epochs: dict[int, int] = {}
        self._ids: dict[str, bytes] = {}
        self._heard: list[tuple[str, Any]] = []

    def tell(self) -> None:
        """Tell it whole."""
        asyncio.run(self._tell())

    async def _tell(self) -> None:
        self._channel = KafkaChannel(self._address, "teller", protocol=KRAFT_PROTOCOL)
        try:
            for part in (self._brokers, self._topics, self._isrs, self._settings, self._elections, self._moves,
                         self._others, self._departures):  # fmt: skip
                await part()
        finally:
            self._channel.close()

    async def _ask(self, what: str, key: int, message: Any) -> Any:
        response = await self._channel.request(key, message, 60.0)
        self._heard.append((f"{KRAFT_APIS[key].name}: {what}", dataclasses.asdict(response)))
        return response

    @property
    def heard(self) -> list[tuple[str, Any]]:
        """Return requests and responses, in the order of the story."""
        names = {topic_id: name for name, topic_id in self._ids.items()}
        return [(what, _plain(response, names)) for what, response in self._heard]

    # Brokers

    async def _register(self, broker_id: int, what: str = "", **changes: Any) -> Any:
        fields = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER,
            "incarnation_id": bytes([broker_id + 1]) * 16,
            "listeners": [broker_registration.Listener("PLAINTEXT", "localhost", 9092 + broker_id, 0)],
            "features": [broker_registration.Feature(name, *levels) for name, levels in _FEATURES.items()],
            "rack": None,
            "log_dirs": directories(broker_id),
        }
        message = broker_registration.BrokerRegistrationRequest(**(fields | changes))
        response = await self._ask(what or f"broker {broker_id}", apis.BROKER_REGISTRATION, message)
        if response.error_code == 0:
            self._epochs[broker_id] = response.broker_epoch
        return response

    async def _beat(self, broker_id: int, what: str, offset: int = FAR, **fields: Any) -> Any:
        message = broker_heartbeat.BrokerHeartbeatRequest(broker_id, self._epochs.get(broker_id, 5), offset, **fields)
        return await self._ask(f"{broker_id} {what}", apis.BROKER_HEARTBEAT, message)

    async def _brokers(self) -> None:
        await self._beat(0, "before its registration")
        await self._register(0, "of another cluster", cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
        await self._register(0, "without directories", log_dirs=[])
        await self._register(0, "with a reserved directory", log_dirs=[bytes(15) + b"\x05"])
        await self._register(0, "with one directory twice", log_dirs=directories(0) * 2)
        features = [broker_registration.Feature("metadata.version", 7, 29)]
        await self._register(0, "that lacks a level", features=features)
        await self._register(0, "without metadata.version", features=[])
        await self._register(0, "of ZooKeeper", is_migrating_zk_broker=True)
        for broker_id in range(4):
            await self._register(broker_id)
            await self._beat(broker_id, "knows nothing", offset=-1)
            await self._beat(broker_id, "wants to stay fenced", want_fence=True)
            await self._beat(broker_id, "is unfenced")
        await self._register(1, "with the directory of broker 0", log_dirs=directories(0))
        await self._register(0, "that restarts within its session", incarnation_id=bytes([99]) * 16)
        await self._register(0, "again")

    # Topics

    async def _create(self, what: str, *topics: create_topics.CreatableTopic, validate_only: bool = False) -> None:
        message = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=validate_only)
        response = await self._ask(what, apis.CREATE_TOPICS, message)
        for topic in response.topics:
            if topic.error_code == 0 and not validate_only:
                self._ids[topic.name] = bytes(topic.topic_id)
        if validate_only:
            for topic in self._heard[-1][1]["topics"]:
                topic["topic_id"] = b""  # of a topic that is not made

    async def _topics(self) -> None:
        two = {"min.insync.replicas": "2"}
        await self._create("t", manual("t", [0, 1, 2], [1, 2, 0], config=two))
        await self._create("checked alone", manual("u", [0, 1]), validate_only=True)
        await self._create("exists", manual("t", [0]))
        for name in ("", ".", "a b", "x" * 250, "__cluster_metadata"):
            await self._create(f"named {name[:20]!r}", manual(name, [0]))
        await self._create("collides", manual("a.b", [0]))
        await self._create("collides with it", manual("a_b", [0]))
        await self._create("twice", manual("v", [0]), manual("v", [1]))
        for replicas in ([], [9], [0, 0]):
            await self._create(f"on {replicas}", manual("v", replicas))
        await self._create("of unequal factors", manual("v", [0, 1], [2]))
        await self._create(
            "with a gap", create_topics.CreatableTopic("v", -1, -1, [assigned(0, [0]), assigned(2, [1])])
        )
        await self._create("twice assigned", create_topics.CreatableTopic("v", -1, -1, [assigned(0, [0])] * 2))
        await self._create("both ways", create_topics.CreatableTopic("v", 1, -1, [assigned(0, [0])]))
        await self._create("both ways", create_topics.CreatableTopic("v", -1, 1, [assigned(0, [0])]))
        for count, factor in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 9)):
            await self._create(f"{count} x {factor}", create_topics.CreatableTopic("v", count, factor))
        await self._create("too many", create_topics.CreatableTopic("v", 10_001, 1))
        await self._create("an unknown setting", manual("v", [0], config={"no.such": "1"}))
        await self._create("a bad setting", manual("v", [0], config={"retention.ms": "soon"}))
        await self._create("a setting without value", manual("v", [0], config={"retention.ms": None}))
        await self._create("two, one of them bad", manual("w", [3]), manual("t", [0]))
        for what, topic in (
            ("as many", create_partitions.CreatePartitionsTopic("t", 2, None)),
            ("fewer", create_partitions.CreatePartitionsTopic("t", 1, None)),
            ("unknown", create_partitions.CreatePartitionsTopic("no", 2, None)),
            ("wrong count of assignments", partitions("t", 4, [0, 1, 2])),
            ("another factor", partitions("t", 3, [0])),
            ("one more", partitions("t", 3, [2, 0, 1])),
        ):
            message = create_partitions.CreatePartitionsRequest([topic], 60_000)
            await self._ask(what, apis.CREATE_PARTITIONS, message)

    # ISRs

    async def _alter(
        self,
        what: str,
        isr: Sequence[int],
        leader: int = 0,
        epochs: tuple[int, int] = (0, 0),
        state: int = 0,
        topic: bytes | None = None,
        partition: int = 0,
        **members: int,
    ) -> None:
        states = [alter_partition.BrokerState(one, members.get(f"b{one}", self._epochs.get(one, -1))) for one in isr]
        data = alter_partition.PartitionData(partition, epochs[0], [], states, state, epochs[1])
        found = alter_partition.TopicData(self._ids["t"] if topic is None else topic, [data])
        message = alter_partition.AlterPartitionRequest(leader, self._epochs[leader], [found])
        await self._ask(what, apis.ALTER_PARTITION, message)

    async def _isrs(self) -> None:
        await self._alter("of an unknown topic", [0], topic=bytes([5]) * 16)
        await self._alter("of an unknown partition", [0], partition=7)
        await self._alter("of a later leader epoch", [0], epochs=(1, 0))
        await self._alter("of a later partition epoch", [0], epochs=(0, 9))
        await self._alter("by a follower", [0, 1], leader=1)
        await self._alter("with a stranger", [0, 1, 3])
        await self._alter("without the leader", [1, 2])
        await self._alter("recovering, with followers", [0, 1], state=1)
        await self._alter("with another incarnation", [0, 1], b1=4)
        await self._alter("that is what is so", [0, 1, 2])
        await self._alter("shrinks", [0, 1], epochs=(0, 1))
        await self._alter("of an earlier partition epoch", [0, 1, 2], epochs=(0, 0))
        await self._alter("shrinks below the minimum", [0], epochs=(0, 2))
        await self._alter("grows", [0, 1, 2], epochs=(0, 3))
        stale = alter_partition.AlterPartitionRequest(0, 3, [])
        await self._ask("of an earlier broker epoch", apis.ALTER_PARTITION, stale)

    # Settings

    async def _set(self, what: str, kind: int, name: str, *keys: tuple[str, int, str | None]) -> None:
        entries = [incremental_alter_configs.AlterableConfig(key, operation, value) for key, operation, value in keys]
        resource = incremental_alter_configs.AlterConfigsResource(kind, name, entries)
        message = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
        await self._ask(what, apis.INCREMENTAL_ALTER_CONFIGS, message)

    async def _settings(self) -> None:
        await self._set("of a topic", 2, "t", ("retention.ms", 0, "1000000"), ("cleanup.policy", 0, "compact"))
        await self._set("appends", 2, "t", ("cleanup.policy", 2, "delete"))
        await self._set("subtracts", 2, "t", ("cleanup.policy", 3, "compact"))
        await self._set("appends to a number", 2, "t", ("retention.ms", 2, "5"))
        await self._set("the same again", 2, "t", ("retention.ms", 0, "1000000"))
        await self._set("deletes", 2, "t", ("retention.ms", 1, None))
        await self._set("of an unknown topic", 2, "no", ("retention.ms", 0, "5"))
        await self._set("a bad value", 2, "t", ("retention.ms", 0, "soon"))
        await self._set("the minimum of a topic", 2, "t", ("min.insync.replicas", 0, "1"))
        await self._set("the minimum of the cluster", 4, "", ("min.insync.replicas", 0, "2"))
        await self._set("removes it", 4, "", ("min.insync.replicas", 1, None))
        await self._set("the minimum of a broker", 4, "0", ("min.insync.replicas", 0, "2"))
        await self._set("of a broker", 4, "0", ("log.cleaner.threads", 0, "2"))
        await self._set("of an unknown broker", 4, "77", ("log.cleaner.threads", 0, "2"))
        await self._set("of a broker without a number", 4, "x", ("log.cleaner.threads", 0, "2"))
        await self._set("of an unknown kind", 99, "x", ("a", 0, "2"))
        configs = [alter_configs.AlterableConfig("segment.bytes", "2000000")]
        resources = [alter_configs.AlterConfigsResource(2, "w", configs)]
        await self._ask("replaces", apis.ALTER_CONFIGS, alter_configs.AlterConfigsRequest(resources))
        resources = [alter_configs.AlterConfigsResource(2, "w", [])]
        await self._ask("replaces by nothing", apis.ALTER_CONFIGS, alter_configs.AlterConfigsRequest(resources))

    # Elections and moves

    async def _elect(self, what: str, kind: int, *at: tuple[str, int]) -> None:
        wanted = [elect_leaders.TopicPartitions(topic, [partition]) for topic, partition in at]
        message = elect_leaders.ElectLeadersRequest(kind, wanted or None, 60_000)
        await self._ask(what, apis.ELECT_LEADERS, message)

    async def _elections(self) -> None:
        await self._elect("preferred, needless", 0, ("t", 0))
        await self._elect("unclean, needless", 1, ("t", 0))
        await self._elect("of unknown ones", 0, ("no", 0), ("t", 9))
        await self._elect("of all", 0)
        await self._beat(0, "wants to be fenced", want_fence=True)
        await self._elect("preferred, who is fenced", 0, ("t", 0))
        await self._beat(0, "comes back")
        await self._alter("takes it back in", [0, 1, 2], leader=1, epochs=(1, 6))
        await self._elect("preferred", 0, ("t", 0))

    async def _move(self, what: str, replicas: list[int] | None, topic: str = "w", partition: int = 0) -> None:
        found = alter_partition_reassignments.ReassignablePartition(partition, replicas)
        message = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[alter_partition_reassignments.ReassignableTopic(topic, [found])]
        )
        await self._ask(what, apis.ALTER_PARTITION_REASSIGNMENTS, message)
        listed = list_partition_reassignments.ListPartitionReassignmentsRequest()
        await self._ask(f"after {what}", apis.LIST_PARTITION_REASSIGNMENTS, listed)

    async def _moves(self) -> None:
        await self._move("of an unknown topic", [0], topic="no")
        await self._move("of an unknown partition", [0], partition=5)
        await self._move("to an unknown broker", [42])
        await self._move("to nobody", [])
        await self._move("cancelled, though there is none", None)
        await self._move("begins", [1])
        await self._move("cancelled", None)
        await self._move("begins again", [2, 1])
        await self._move("reordered", [1, 2, 0], topic="t")

    # The rest

    async def _others(self) -> None:
        for epoch in (self._epochs[0], 4):
            message: Any = allocate_producer_ids.AllocateProducerIdsRequest(0, epoch)
            await self._ask("", apis.ALLOCATE_PRODUCER_IDS, message)
        wanted = [("t", 0, directories(3)[0]), ("w", 0, directories(3)[1]), ("w", 7, directories(3)[1])]
        found = [
            assign_replicas_to_dirs.DirectoryData(
                at,
                [assign_replicas_to_dirs.TopicData(self._ids[topic], [assign_replicas_to_dirs.PartitionData(index)])],
            )
            for topic, index, at in wanted
        ]
        for one in found:
            message = assign_replicas_to_dirs.AssignReplicasToDirsRequest(3, self._epochs[3], [one])
            await self._ask("", apis.ASSIGN_REPLICAS_TO_DIRS, message)
        await self._features()
        for entity, key, value, remove in quotas():
            parts = [alter_client_quotas.EntityData(kind, name) for kind, name in entity]
            entry = alter_client_quotas.EntryData(parts, [alter_client_quotas.OpData(key, value, remove)])
            await self._ask(f"{entity} {key}", apis.ALTER_CLIENT_QUOTAS,
                            alter_client_quotas.AlterClientQuotasRequest([entry]))  # fmt: skip
        upsertion = alter_user_scram_credentials.ScramCredentialUpsertion
        for user, mechanism, iterations in (("ann", 1, 4096), ("ann", 1, 100), ("ann", 1, 100_000), ("", 1, 4096),
                                            ("ann", 9, 4096)):  # fmt: skip
            message = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
                upsertions=[upsertion(user, mechanism, iterations, b"salt", bytes(32))]
            )
            await self._ask(f"{user} {mechanism} {iterations}", apis.ALTER_USER_SCRAM_CREDENTIALS, message)
        deletion = alter_user_scram_credentials.ScramCredentialDeletion
        for user in ("ann", "ann"):
            message = alter_user_scram_credentials.AlterUserScramCredentialsRequest([deletion(user, 1)])
            await self._ask(f"removes {user}", apis.ALTER_USER_SCRAM_CREDENTIALS, message)

    async def _features(self) -> None:
        for name, level, kind in (
            *(("metadata.version", 29, 1), ("metadata.version", 29, 2), ("no.such", 0, 1)),
            *(("metadata.version", 30, 2), ("no.such", 1, 1), ("group.version", 2, 1), ("group.version", 0, 1)),
            *(("group.version", 0, 2), ("group.version", 1, 2), ("group.version", 1, 1), ("group.version", -1, 1)),
            *(("group.version", 1, 7), ("eligible.leader.replicas.version", 0, 2)),
            ("eligible.leader.replicas.version", 1, 1),
        ):
            update = update_features.FeatureUpdateKey(name, level, upgrade_type=kind)
            message = update_features.UpdateFeaturesRequest(60_000, [update])
            await self._ask(f"{name} {level} {kind}", apis.UPDATE_FEATURES, message)

    async def _departures(self) -> None:
        await self._beat(2, "wants to stop", want_shut_down=True)
        await self._beat(2, "wants to stop still", want_shut_down=True)
        await self._beat(3, "loses a directory", offline_log_dirs=directories(3)[:1])
        await self._register(2, "after a clean shutdown", incarnation_id=bytes([50]) * 16,
                             previous_broker_epoch=self._epochs[2])  # fmt: skip
        await self._beat(2, "is back")
        for what, states in (
            ("unknown", [delete_topics.DeleteTopicState("no")]),
            ("by an unknown id", [delete_topics.DeleteTopicState(None, bytes([9]) * 16)]),
            ("by neither name nor id", [delete_topics.DeleteTopicState(None)]),
            ("by name and id", [delete_topics.DeleteTopicState("t", self._ids["t"])]),
            ("t", [delete_topics.DeleteTopicState("t")]),
            ("w by id", [delete_topics.DeleteTopicState(None, self._ids["w"])]),
        ):
            await self._ask(what, apis.DELETE_TOPICS, delete_topics.DeleteTopicsRequest(states, timeout_ms=60_000))
        for broker_id in (3, 3):
            await self._ask("", apis.UNREGISTER_BROKER, unregister_broker.UnregisterBrokerRequest(broker_id))
        await self._beat(3, "after it was unregistered")


def directories(broker_id: int) -> list[bytes]:
    """The log directories of a broker; the last broker has two."""
    return [bytes([100 + broker_id, number]) * 8 for number in range(2 if broker_id == 3 else 1)]


def assigned(index: int, replicas: Sequence[int]) -> create_topics.CreatableReplicaAssignment:
    return create_topics.CreatableReplicaAssignment(index, replicas)


def manual(name: str, *replicas: Sequence[int], config: dict[str, Any] | None = None) -> create_topics.CreatableTopic:
    """A topic with an assignment of its own."""
    configs = [create_topics.CreatableTopicConfig(key, value) for key, value in (config or {}).items()]
    return create_topics.CreatableTopic(name, -1, -1, [assigned(*one) for one in enumerate(replicas)], configs)


def partitions(name: str, count: int, *replicas: Sequence[int]) -> create_partitions.CreatePartitionsTopic:
    found = [create_partitions.CreatePartitionsAssignment(one) for one in replicas]
    return create_partitions.CreatePartitionsTopic(name, count, found)


def quotas() -> Iterator[tuple[list[tuple[str, str | None]], str, float, bool]]:
    """Alterations of quotas: entity, key, value, whether it is removed."""
    user: list[tuple[str, str | None]] = [("user", "ann")]
    yield user, "producer_byte_rate", 1000.0, False
    yield user, "producer_byte_rate", 1000.5, False
    yield user, "producer_byte_rate", -1.0, False
    yield user, "no_such_rate", 1.0, False
    yield user, "producer_byte_rate", 0.0, True
    yield [("user", None), ("client-id", "c")], "controller_mutation_rate", 5.0, False
    yield [("ip", "127.0.0.1")], "connection_creation_rate", 5.0, False
    yield [("ip", "no host")], "connection_creation_rate", 5.0, False
    yield [("moon", "x")], "producer_byte_rate", 5.0, False
    yield [], "producer_byte_rate", 5.0, False


def _plain(value: Any, names: dict[bytes, str]) -> Any:
    """A response without what differs by chance: topic ids become names, and addresses of objects disappear."""
    if isinstance(value, dict):
        return {key: _plain(one, names) for key, one in value.items() if key != "throttle_time_ms"}
    if isinstance(value, list | tuple):
        plain = [_plain(one, names) for one in value]
        return sorted(plain, key=repr) if plain and isinstance(plain[0], dict) else plain
    if isinstance(value, bytes | memoryview):
        return names.get(bytes(value), bytes(value).hex())
    return re.sub(r"@[0-9a-f]+", "@", value) if isinstance(value, str) else value
