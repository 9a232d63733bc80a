"""Facts about requests of admins that name nothing, or a thing twice, or a name that is none."""

from __future__ import annotations

import uuid
from typing import Any

from tests.wire_responses.admin import created, topic
from tests.wire_responses.edges import NAME
from tests.wire_responses.probe import Probe, message

TIMEOUT_MS = 20_000
TOPIC_KIND, BROKER_KIND = 2, 4


def admin(probe: Probe) -> None:
    """All of them."""
    probe.say("edges of requests of admins")
    _topics(probe)
    _settings(probe)
    _replicas(probe)
    _names(probe)


def _topics(probe: Probe) -> None:
    def make(*wanted: dict[str, Any], timeout_ms: int = TIMEOUT_MS) -> Any:
        return message("CreateTopics", timeout_ms=timeout_ms, validate_only=True, topics=list(wanted))

    repeated = topic("x")
    repeated["configs"] = [{"name": "retention.ms", "value": value} for value in ("1", "2")]
    assigned = topic("x", -1, -1, assignments={0: [0]})
    assigned["assignments"] *= 2
    cases = {
        "of none": make(),
        "a setting twice": make(repeated),
        "a partition assigned twice": make(assigned),
        "with timeout 0, checked only": make(topic("x"), timeout_ms=0),
        "with timeout -1, checked only": make(topic("x"), timeout_ms=-1),
        "named __consumer_offsets": make(topic("__consumer_offsets")),
        "an empty setting": make(topic("x", configs={"": "1"})),
        "an empty value": make(topic("x", configs={"retention.ms": ""})),
        "an empty list": make(topic("x", configs={"cleanup.policy": ""})),
        "a factor at its largest": make(topic("x", 1, 2**15 - 1)),
        "a factor at its smallest": make(topic("x", 1, -(2**15))),
    }
    for label, request in cases.items():
        probe.case(f"CreateTopics {label}", probe.controller, 7, request, created)
    grow = message("CreatePartitions", timeout_ms=TIMEOUT_MS, validate_only=True, topics=[])
    probe.case("CreatePartitions of none", probe.controller, 3, grow)
    wanted = {"name": NAME, "count": 5, "assignments": None}
    late = message("CreatePartitions", timeout_ms=-1, validate_only=True, topics=[wanted])
    probe.case("CreatePartitions with timeout -1, checked only", probe.controller, 3, late)
    for name in ("", "a b", ".."):
        bad = message("CreatePartitions", timeout_ms=TIMEOUT_MS, topics=[wanted | {"name": name}])
        probe.case(f"CreatePartitions of topic name {name!r}", probe.controller, 3, bad)
    gone = message("DeleteTopics", timeout_ms=TIMEOUT_MS, topics=[])
    probe.case("DeleteTopics of none", probe.controller, 6, gone)
    for name in ("", "a b", ".."):
        bad = message("DeleteTopics", timeout_ms=TIMEOUT_MS, topics=[{"name": name}])
        probe.case(f"DeleteTopics of topic name {name!r}", probe.controller, 6, bad)
    unknown = {"name": None, "topic_id": uuid.UUID(int=9).bytes}
    twice = message("DeleteTopics", timeout_ms=TIMEOUT_MS, topics=[unknown, unknown])
    probe.case("DeleteTopics an unknown id twice", probe.controller, 6, twice)


def _settings(probe: Probe) -> None:
    def describe(*resources: tuple[int, str, list[str] | None], **more: Any) -> Any:
        wanted = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in resources
        ]
        return message("DescribeConfigs", resources=wanted, **more)

    def described(found: Any) -> Any:
        return [
            (
                one.error_code,
                one.error_message,
                one.resource_type,
                one.resource_name,
                sorted(
                    (
                        item.name,
                        str(item.value),
                        item.config_source,
                        [(s.name, s.value, s.source) for s in item.synonyms],
                    )
                    for item in one.configs
                ),
            )
            for one in found.results
        ]

    one_key = (TOPIC_KIND, NAME, ["retention.ms"])
    cases = {
        "of nothing": describe(),
        "no keys": describe((TOPIC_KIND, NAME, [])),
        "unknown keys": describe((TOPIC_KIND, NAME, ["nope", ""])),
        "a key twice": describe((TOPIC_KIND, NAME, ["retention.ms", "retention.ms"])),
        "a resource twice": describe(one_key, one_key),
        "two keys of a resource twice": describe(one_key, (TOPIC_KIND, NAME, ["segment.ms"])),
        "an empty topic": describe((TOPIC_KIND, "", ["retention.ms"])),
        "a topic named ..": describe((TOPIC_KIND, "..", ["retention.ms"])),
        "a broker that is no number": describe((BROKER_KIND, "x", ["log.retention.ms"])),
        "a negative broker": describe((BROKER_KIND, "-1", ["log.retention.ms"])),
        "synonyms": describe(
            (TOPIC_KIND, NAME, ["retention.ms", "cleanup.policy", "min.insync.replicas", "segment.bytes"]),
            include_synonyms=True,
        ),
        "synonyms of a broker": describe(
            (BROKER_KIND, "0", ["log.retention.ms", "log.cleaner.threads", "num.partitions"]), include_synonyms=True
        ),
        "synonyms of all brokers": describe((BROKER_KIND, "", None), include_synonyms=True),
    }
    for label, request in cases.items():
        probe.case(f"DescribeConfigs edge: {label}", 0, 4, request, described)
    for api, version in (("AlterConfigs", 2), ("IncrementalAlterConfigs", 1)):
        probe.case(f"{api} of nothing", 0, version, message(api, resources=[]))
        for kind, name in ((TOPIC_KIND, ".."), (BROKER_KIND, ""), (BROKER_KIND, "0"), (BROKER_KIND, " 0")):
            wanted = {"resource_type": kind, "resource_name": name, "configs": []}
            request = message(api, resources=[wanted], validate_only=True)
            probe.case(f"{api} no settings of {kind}/{name!r}", 0, version, request)


def _replicas(probe: Probe) -> None:
    def move(*partitions: tuple[int, list[int] | None], name: str = NAME, timeout_ms: int = TIMEOUT_MS) -> Any:
        items = [{"partition_index": at, "replicas": ids} for at, ids in partitions]
        topics = [{"name": name, "partitions": items}]
        return message("AlterPartitionReassignments", timeout_ms=timeout_ms, topics=topics)

    cases = {
        "of nothing": message("AlterPartitionReassignments", timeout_ms=TIMEOUT_MS, topics=[]),
        "of a topic's nothing": move(),
        "a partition twice": move((0, None), (0, None)),
        "good and bad": move((0, [0, 1, 2]), (1, [9])),
        "empty name": move((0, [0]), name=""),
        "negative partition": move((-1, [0])),
        "cancelling an unknown partition": move((9, None)),
        "cancelling an unknown topic": move((0, None), name="nope"),
        "timeout -1": move((0, None), timeout_ms=-1),
    }
    for label, request in cases.items():
        probe.case(f"AlterPartitionReassignments edge: {label}", probe.controller, 0, request, _reassigned)
    listed = {
        "of nothing": [],
        "of a topic's nothing": [{"name": NAME, "partition_indexes": []}],
        "a partition twice": [{"name": NAME, "partition_indexes": [0, 0]}],
        "empty name": [{"name": "", "partition_indexes": [0]}],
    }
    for label, topics in listed.items():
        request = message("ListPartitionReassignments", timeout_ms=TIMEOUT_MS, topics=topics)
        probe.case(f"ListPartitionReassignments {label}", probe.controller, 0, request)

    def elect(*partitions: int, name: str = NAME) -> Any:
        named = [{"topic": name, "partitions": list(partitions)}]
        return message("ElectLeaders", election_type=0, timeout_ms=TIMEOUT_MS, topic_partitions=named)

    twice = elect(0)
    twice.topic_partitions = [*twice.topic_partitions] * 2
    elections = {
        "of a topic's nothing": elect(),
        "a partition twice": elect(0, 0),
        "a topic twice": twice,
        "negative partition": elect(-1),
        "empty name": elect(0, name=""),
        "known and unknown": elect(0, 9),
    }
    for label, request in elections.items():
        probe.case(f"ElectLeaders edge: {label}", probe.controller, 2, request)

    def directories(topics: list[dict[str, Any]] | None) -> Any:
        return message("DescribeLogDirs", topics=topics)

    for label, topics in {
        "of nothing": [],
        "of a topic's nothing": [{"topic": NAME, "partitions": []}],
        "a partition twice": [{"topic": NAME, "partitions": [0, 0]}],
        "negative partition": [{"topic": NAME, "partitions": [-1]}],
    }.items():
        probe.case(f"DescribeLogDirs edge: {label}", 0, 4, directories(topics), _directories)

    def put(path: str, *partitions: int, name: str = NAME) -> Any:
        return message(
            "AlterReplicaLogDirs", dirs=[{"path": path, "topics": [{"name": name, "partitions": list(partitions)}]}]
        )

    for label, request in {
        "empty path": put("", 0),
        "a partition twice": put("/nowhere", 0, 0),
        "of a topic's nothing": put("/nowhere"),
        "negative partition": put("/nowhere", -1),
        "empty name": put("/nowhere", 0, name=""),
    }.items():
        probe.case(f"AlterReplicaLogDirs edge: {label}", 0, 2, request)


def _reassigned(found: Any) -> Any:
    items = [(one.name, item) for one in found.responses for item in one.partitions]
    results = [(name, item.partition_index, item.error_code, item.error_message) for name, item in items]
    return found.error_code, found.error_message, sorted(results, key=str)


def _directories(found: Any) -> Any:
    return found.error_code, [
        (one.error_code, sorted((t.name, [p.partition_index for p in t.partitions]) for t in one.topics))
        for one in found.results
    ]


def _names(probe: Probe) -> None:
    """Names of users and clients that ZooKeeper takes for no name."""
    for name in (".", ".."):
        for kind in ("user", "client-id"):
            entity = [{"entity_type": kind, "entity_name": name}]
            other = [{"entity_type": kind, "entity_name": f"beside {name}"}]
            ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
            entries = [{"entity": entity, "ops": ops}, {"entity": other, "ops": ops}]
            request = message("AlterClientQuotas", entries=entries)
            probe.case(f"AlterClientQuotas of {kind} {name}", 0, 1, request)
            ops = [{"key": "producer_byte_rate", "value": 0.0, "remove": True}]
            probe.ask(0, 1, message("AlterClientQuotas", entries=[{"entity": other, "ops": ops}]))
        secrets = {"mechanism": 1, "iterations": 4_096, "salt": b"salt", "salted_password": b"p" * 32}
        upsertions = [{"name": name} | secrets, {"name": f"beside {name}"} | secrets]
        request = message("AlterUserScramCredentials", deletions=[], upsertions=upsertions)
        probe.case(f"AlterUserScramCredentials of {name}", probe.controller, 0, request)
        asked = message("DescribeUserScramCredentials", users=[{"name": name}])
        probe.case(f"DescribeUserScramCredentials of {name}", 0, 0, asked)
        deletions = [{"name": f"beside {name}", "mechanism": 1}]
        probe.ask(probe.controller, 0, message("AlterUserScramCredentials", deletions=deletions, upsertions=[]))
    for label, entries in {
        "of nothing": [],
        "no ops": [{"entity": [{"entity_type": "user", "entity_name": "a"}], "ops": []}],
    }.items():
        probe.case(f"AlterClientQuotas edge: {label}", 0, 1, message("AlterClientQuotas", entries=entries))
