"""Facts about metadata, topics, records' deletion, elections, reassignments, log directories and the cluster."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import FOLLOWER, LEADER, TOPIC, fetch, fetched

TIMEOUT_MS = 20_000
FIRST_WITHOUT_CREATION = 4
"""First version of Metadata that can forbid the creation of unknown topics."""


def topic(name: str, partitions: int = 3, factor: int = -1, **more: Any) -> dict[str, Any]:
    """Return a topic of a CreateTopics request."""
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]
    assignments = [{"partition_index": at, "broker_ids": ids} for at, ids in more.pop("assignments", {}).items()]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": assignments,
        "configs": configs,
    }


def created(response: Any) -> Any:
    """Return a CreateTopics response's topics, without settings."""
    return [
        (one.error_code, one.error_message, one.num_partitions, one.replication_factor, any(one.topic_id))
        for one in sorted(response.topics, key=lambda found: found.name)
    ]


def metadata(probe: Probe) -> None:
    """Metadata in its versions."""
    probe.say("Metadata")

    def ask(names: Sequence[str | None] | None, **more: Any) -> Any:
        topics = None if names is None else [{"name": name} for name in names]
        return message("Metadata", topics=topics, **{"allow_auto_topic_creation": False} | more)

    def named(response: Any) -> Any:
        return sorted(one.name for one in response.topics if one.name in {TOPIC, "probe-offsets"})

    def one(response: Any) -> Any:
        for topic in response.topics:
            topic.partitions = sorted(topic.partitions, key=lambda item: item.partition_index)
        return list(response.topics)

    probe.case("Metadata v0, no topics named", 0, 0, ask([]), named)
    for version in (1, 4, 12):
        probe.case(f"Metadata v{version}, no topics named", 0, version, ask([]), named)
        probe.case(f"Metadata v{version}, all topics", 0, version, ask(None), named)
    for version in range(13):
        probe.case(f"Metadata v{version} of a topic", 0, version, ask([TOPIC]), one)
        unknown = "nope" if version >= FIRST_WITHOUT_CREATION else f"auto-{version}"
        probe.case(f"Metadata v{version} of an unknown topic", 0, version, ask([unknown]), one)
    created = ask(["auto-12"], allow_auto_topic_creation=True)
    probe.case("Metadata v12 that creates a topic", 0, 12, created, one)
    probe.case("Metadata v12 brokers", 0, 12, ask([]), lambda found: sorted(map(str, map(_broker, found.brokers))))
    probe.case("Metadata v12 cluster", 0, 12, ask([]), lambda found: found.cluster_id is not None)
    for version in (8, 10):
        asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
        request = ask([TOPIC], **asked)
        probe.case(f"Metadata v{version} with operations", 0, version, request, _operations)
    for name in ("a b", "", ".", "..", "x" * 249, "x" * 250, "a.b", "ä"):
        label = f"{name[:5]!r} of {len(name)}"
        probe.case(f"Metadata of topic name {label}", 0, 12, ask([name]), _without_names)
    probe.case("Metadata twice the same topic", 0, 12, ask([TOPIC, TOPIC]), lambda found: len(found.topics))
    by_id = message("Metadata", topics=[{"name": None, "topic_id": uuid.uuid4().bytes}])
    probe.case("Metadata v12 of an unknown id", 0, 12, by_id, one)
    known = bytes(probe.topic(TOPIC).topic_id)
    by_id = message("Metadata", topics=[{"name": None, "topic_id": known}])
    probe.case("Metadata v12 by id", 0, 12, by_id, one)
    by_both = message("Metadata", topics=[{"name": TOPIC, "topic_id": known}])
    probe.case("Metadata v12 by name and id", 0, 12, by_both, lambda found: [t.error_code for t in found.topics])
    for version in (10, 11):
        by_id = message("Metadata", topics=[{"name": TOPIC, "topic_id": known}])
        probe.case(f"Metadata v{version} with an id", 0, version, by_id, lambda found: type(found).__name__)
    absent = message("Metadata", topics=[{"name": None}])
    probe.case("Metadata v12 without name and id", 0, 12, absent, lambda found: [t.error_code for t in found.topics])


def _broker(found: Any) -> Any:
    return found.node_id, found.host, found.port > 0, found.rack


def _operations(found: Any) -> Any:
    return found.cluster_authorized_operations, [one.topic_authorized_operations for one in found.topics]


def _without_names(found: Any) -> Any:
    return [(one.error_code, len(one.partitions)) for one in found.topics]


def topics(probe: Probe) -> None:
    """CreateTopics, CreatePartitions, DeleteTopics."""
    probe.say("topics")

    def make(*wanted: dict[str, Any], only: bool = True) -> Any:
        return message("CreateTopics", timeout_ms=TIMEOUT_MS, validate_only=only, topics=list(wanted))

    def say(name: str, *wanted: dict[str, Any], version: int = 7, only: bool = True) -> None:
        probe.case(f"CreateTopics {name}", probe.controller, version, make(*wanted, only=only), created)

    probe.case("CreateTopics at another broker", probe.other, 7, make(topic("other")), created)
    say("new", topic("made"), only=False)
    say("again", topic("made"))
    say("checked only", topic("checked"))
    for name in ("a b", "", ".", "..", "x" * 249, "x" * 250, "ma_de", "ma.de", "__consumer_offsets_x"):
        say(f"name {name[:9]!r} of {len(name)}", topic(name))
    say("name that collides", topic("a.b"), topic("a_b"))
    for factor in (0, -2, 2, 99):
        say(f"factor {factor}", topic("x", factor=factor))
    for partitions in (0, -2, 1, 99):
        say(f"partitions {partitions}", topic("x", partitions=partitions))
    say("partitions and factor of the broker", topic("x", -1, -1))
    say("partitions and factor of the broker in v3", topic("x", -1, -1), version=3)
    say("named twice", topic("x"), topic("x"))
    say("one good, one bad", topic("good"), topic("bad", factor=99))
    assignments: dict[str, tuple[int, int, dict[int, list[int]]]] = {
        "valid": (-1, -1, {0: [0, 1], 1: [1, 2]}),
        "with a count": (2, -1, {0: [0, 1], 1: [1, 2]}),
        "with a factor": (-1, 2, {0: [0, 1], 1: [1, 2]}),
        "with gaps": (-1, -1, {0: [0], 2: [1]}),
        "not from 0": (-1, -1, {1: [0]}),
        "a broker twice": (-1, -1, {0: [0, 0]}),
        "unknown broker": (-1, -1, {0: [0, 9]}),
        "negative broker": (-1, -1, {0: [-1]}),
        "of different lengths": (-1, -1, {0: [0], 1: [1, 2]}),
        "no replicas": (-1, -1, {0: []}),
    }
    for name, (partitions, factor, replicas) in assignments.items():
        say(f"assignment {name}", topic("x", partitions, factor, assignments=replicas))
    say("unknown setting", topic("x", configs={"nope": "1"}))
    say("bad setting", topic("x", configs={"retention.ms": "x"}))
    probe.case(
        "CreateTopics null setting",
        probe.controller,
        7,
        make(topic("x", configs={"retention.ms": None})),
        created,
    )
    probe.case(
        "CreateTopics settings in the response",
        probe.controller,
        7,
        make(topic("x", configs={"retention.ms": "77"})),
        lambda found: [
            (one.name, one.value, one.config_source) for one in found.topics[0].configs if one.value == "77"
        ],
    )
    for version in (0, 1, 2, 4, 5, 6):
        say(f"v{version}", topic("made"), version=version)
    _partitions(probe)
    _deletions(probe)


def _partitions(probe: Probe) -> None:
    def ask(count: int, *, name: str = "made", assignments: list[list[int]] | None = None, only: bool = True) -> Any:
        replicas = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
        wanted = [{"name": name, "count": count, "assignments": replicas}]
        return message("CreatePartitions", timeout_ms=TIMEOUT_MS, validate_only=only, topics=wanted)

    def say(name: str, request: Any, version: int = 3) -> None:
        pick = lambda found: [(one.error_code, one.error_message) for one in found.results]  # noqa: E731  (a short pick)
        probe.case(f"CreatePartitions {name}", probe.controller, version, request, pick)

    probe.topic("made")
    for count in (-1, 0, 1, 3):
        say(f"to {count}", ask(count))
    say("of an unknown topic", ask(4, name="nope"))
    say("too few assignments", ask(5, assignments=[[0, 1, 2]]))
    say("too many assignments", ask(4, assignments=[[0, 1, 2], [1, 2, 0]]))
    say("another factor", ask(4, assignments=[[0]]))
    say("a broker twice", ask(4, assignments=[[0, 0, 1]]))
    say("unknown broker", ask(4, assignments=[[0, 1, 9]]))
    say("no replicas", ask(4, assignments=[[]]))
    say("checked only", ask(4))
    say("to 4", ask(4, only=False))
    twice = ask(9)
    twice.topics = [*twice.topics, *twice.topics]
    say("named twice", twice)
    for version in (0, 1, 2):
        say(f"v{version} fewer", ask(1), version)
    pick = lambda found: [(one.error_code, one.error_message) for one in found.results]  # noqa: E731
    probe.case("CreatePartitions at another broker", probe.other, 3, ask(9), pick)


def _deletions(probe: Probe) -> None:
    def ask(**more: Any) -> Any:
        return message("DeleteTopics", timeout_ms=TIMEOUT_MS, topics=[more])

    def say(name: str, request: Any, broker: int, version: int = 6) -> None:
        pick = lambda found: [(one.name, one.error_code, one.error_message) for one in found.responses]  # noqa: E731
        probe.case(f"DeleteTopics {name}", broker, version, request, pick)

    say("unknown", ask(name="nope"), probe.controller)
    say("at another broker", ask(name="made"), probe.other)
    say("unknown id", ask(name=None, topic_id=uuid.UUID(int=7).bytes), probe.controller)
    known = bytes(probe.topic("made").topic_id)
    both = message("DeleteTopics", timeout_ms=TIMEOUT_MS, topics=[{"name": "made", "topic_id": known}])
    say("by name and id", both, probe.controller)
    neither = message("DeleteTopics", timeout_ms=TIMEOUT_MS, topics=[{"name": None}])
    say("without name and id", neither, probe.controller)
    twice = message("DeleteTopics", timeout_ms=TIMEOUT_MS, topics=[{"name": "nope"}, {"name": "nope"}])
    say("named twice", twice, probe.controller)
    for version in (1, 3, 4, 5):
        request = message("DeleteTopics", timeout_ms=TIMEOUT_MS, topic_names=["nope"])
        say(f"v{version} unknown", request, probe.controller, version)
    say("by id", ask(name=None, topic_id=known), probe.controller)


def deleted_records(probe: Probe) -> None:
    """DeleteRecords."""
    probe.say("DeleteRecords")

    def ask(offset: int, partition: int = 0, name: str = "probe-offsets") -> Any:
        items = [{"partition_index": partition, "offset": offset}]
        return message("DeleteRecords", timeout_ms=TIMEOUT_MS, topics=[{"name": name, "partitions": items}])

    def said(found: Any) -> Any:
        return [item for one in found.topics for item in one.partitions]

    probe.case("DeleteRecords below 2", LEADER, 2, ask(2), said)
    probe.case("DeleteRecords below 1, which are deleted", LEADER, 2, ask(1), said)
    probe.case("DeleteRecords beyond the end", LEADER, 2, ask(10**6), said)
    probe.case("DeleteRecords -2", LEADER, 2, ask(-2), said)
    probe.case("DeleteRecords not leader", FOLLOWER, 2, ask(1), said)
    probe.case("DeleteRecords unknown topic", LEADER, 2, ask(1, name="nope"), said)
    probe.case("DeleteRecords unknown partition", LEADER, 2, ask(1, partition=9), said)
    probe.case("Fetch below the log start", LEADER, 12, fetch(topic="probe-offsets"), fetched)
    probe.case("DeleteRecords to the high watermark", LEADER, 2, ask(-1), said)
    for version in (0, 1):
        probe.case(f"DeleteRecords v{version}", LEADER, version, ask(-1), said)
    probe.ask(probe.controller, 7, _compacted())
    probe.topic("probe-compacted")
    probe.case("DeleteRecords of a compacted topic", LEADER, 2, ask(-1, name="probe-compacted"), said)


def _compacted() -> Any:
    wanted = topic("probe-compacted", -1, -1, assignments={0: [0, 1, 2]}, configs={"cleanup.policy": "compact"})
    return message("CreateTopics", timeout_ms=TIMEOUT_MS, topics=[wanted])


def elections(probe: Probe) -> None:
    """ElectLeaders and reassignments."""
    probe.say("elections and reassignments")

    def elect(wanted: dict[str, list[int]] | None, kind: int = 0) -> Any:
        named = None if wanted is None else [{"topic": name, "partitions": at} for name, at in wanted.items()]
        return message("ElectLeaders", election_type=kind, timeout_ms=TIMEOUT_MS, topic_partitions=named)

    def say(name: str, request: Any, version: int = 2, broker: int | None = None) -> None:
        probe.case(f"ElectLeaders {name}", probe.controller if broker is None else broker, version, request)

    for version in (0, 1, 2):
        say(f"v{version} not needed", elect({TOPIC: [0]}), version)
    say("unclean not needed", elect({TOPIC: [0]}, 1))
    say("unknown topic", elect({"nope": [0]}))
    say("unknown partition", elect({TOPIC: [99]}))
    say("of all", elect(None))
    say("unclean of all", elect(None, 1))
    say("of none", elect({}))
    say("of an unknown kind", elect({TOPIC: [0]}, 7))
    say("at another broker", elect({TOPIC: [0]}), broker=probe.other)
    say("v0 at another broker", elect({TOPIC: [0]}), 0, probe.other)
    probe.case("ElectLeaders of all at another broker", probe.other, 2, elect(None), lambda found: (
        found.error_code,
        {item.error_code for one in found.replica_election_results for item in one.partition_result},
    ))  # fmt: skip

    def reassign(replicas: list[int] | None, partition: int = 0, name: str = TOPIC) -> Any:
        items = [{"partition_index": partition, "replicas": replicas}]
        topics = [{"name": name, "partitions": items}]
        return message("AlterPartitionReassignments", timeout_ms=TIMEOUT_MS, topics=topics)

    changes: dict[str, list[int] | None] = {
        "unknown broker": [99],
        "a broker twice": [0, 0],
        "no replicas": [],
        "negative broker": [-1],
        "cancel none": None,
        "to where it is": [0, 1, 2],
    }
    for name, replicas in changes.items():
        probe.case(f"AlterPartitionReassignments {name}", probe.controller, 0, reassign(replicas))
    probe.case("AlterPartitionReassignments unknown topic", probe.controller, 0, reassign([0], name="nope"))
    probe.case("AlterPartitionReassignments unknown partition", probe.controller, 0, reassign([0], 99))
    probe.case("AlterPartitionReassignments at another broker", probe.other, 0, reassign([0, 1, 2]))
    every = message("ListPartitionReassignments", timeout_ms=TIMEOUT_MS, topics=None)
    named = [{"name": TOPIC, "partition_indexes": [0]}, {"name": "nope", "partition_indexes": [0]}]
    some = message("ListPartitionReassignments", timeout_ms=TIMEOUT_MS, topics=named)
    for name, request in {"all": every, "named": some}.items():
        probe.case(f"ListPartitionReassignments {name}", probe.controller, 0, request)
        probe.case(f"ListPartitionReassignments {name} at another broker", probe.other, 0, request)


def cluster(probe: Probe) -> None:
    """DescribeCluster, DescribeLogDirs, AlterReplicaLogDirs' refusals, DescribeProducers."""
    probe.say("cluster")
    for version in (0, 1):
        request = message("DescribeCluster", include_cluster_authorized_operations=version == 1)
        probe.case(f"DescribeCluster v{version}", 0, version, request, _cluster)
    for kind in (0, 2, 3):
        request = message("DescribeCluster", endpoint_type=kind)
        probe.case(f"DescribeCluster endpoint type {kind}", 0, 1, request)

    def dirs(wanted: dict[str, list[int]] | None) -> Any:
        topics = None if wanted is None else [{"topic": name, "partitions": at} for name, at in wanted.items()]
        return message("DescribeLogDirs", topics=topics)

    for version in range(5):
        probe.case(f"DescribeLogDirs v{version}", 0, version, dirs({TOPIC: [0]}), _directories)
    probe.case("DescribeLogDirs unknown topic", 0, 4, dirs({"nope": [0]}), _directories)
    probe.case("DescribeLogDirs all", 0, 4, dirs(None), lambda found: any(one.topics for one in found.results))

    def move(path: str, name: str = TOPIC, partition: int = 0) -> Any:
        topics = [{"name": name, "partitions": [partition]}]
        return message("AlterReplicaLogDirs", dirs=[{"path": path, "topics": topics}])

    for version in range(3):
        probe.case(f"AlterReplicaLogDirs v{version} unknown directory", 0, version, move("/nowhere"))
    probe.case("AlterReplicaLogDirs relative path", 0, 2, move("data"))
    probe.case("AlterReplicaLogDirs nothing", 0, 2, message("AlterReplicaLogDirs", dirs=[]))
    home = next(one.log_dir for one in probe.ask(0, 4, dirs({TOPIC: [0]})).results if one.topics)
    probe.case("AlterReplicaLogDirs to where it is", 0, 2, move(home))
    probe.case("AlterReplicaLogDirs unknown topic", 0, 2, move(home, "nope"))
    probe.case("AlterReplicaLogDirs unknown partition", 0, 2, move(home, partition=99))

    def producers(name: str, partition: int = 0) -> Any:
        return message("DescribeProducers", topics=[{"name": name, "partition_indexes": [partition]}])

    probe.case("DescribeProducers without any", LEADER, 0, producers("probe-offsets"))
    probe.case("DescribeProducers not leader", FOLLOWER, 0, producers(TOPIC))
    probe.case("DescribeProducers unknown topic", LEADER, 0, producers("nope"))
    probe.case("DescribeProducers unknown partition", LEADER, 0, producers(TOPIC, 99))
    probe.case("DescribeProducers topic name", LEADER, 0, producers("a b"))


def _cluster(found: Any) -> Any:
    brokers = [(one.broker_id, one.rack, one.port > 0) for one in sorted(found.brokers, key=lambda one: one.broker_id)]
    return found.error_code, found.endpoint_type, brokers, found.cluster_authorized_operations, found.controller_id >= 0


def _directories(found: Any) -> Any:
    return found.error_code, [
        (one.error_code, [(t.name, [(p.offset_lag, p.is_future_key) for p in t.partitions]) for t in one.topics])
        for one in found.results
        if one.topics
    ]
