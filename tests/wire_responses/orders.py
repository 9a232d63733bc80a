"""Facts about requests that are wrong in two ways at once, or beside the rule of their version: which error it is."""

from __future__ import annotations

from typing import Any

from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import FOLLOWER, LEADER, create, fetch, fetched

NAME = "probe-orders"
UNKNOWN_ID = b"\7" * 16


def orders(probe: Probe) -> None:
    """All of them, on a topic of their own."""
    probe.say("which of two errors a request has")
    topic_id = bytes(create(probe, NAME).topic_id)
    _topics(probe)
    _metadata(probe, topic_id)
    _records(probe, topic_id)
    _tokens(probe)


def _topics(probe: Probe) -> None:
    def ask(**fields: Any) -> Any:
        topic = {"name": NAME, "num_partitions": -1, "replication_factor": -1} | fields
        return message("CreateTopics", timeout_ms=30_000, topics=[topic], validate_only=True)

    both = {"num_partitions": 1, "assignments": [{"partition_index": 0, "broker_ids": [0]}]}
    null = {"configs": [{"name": "retention.ms", "value": None}, {"name": "segment.ms", "value": None}]}
    cases = {
        "that exists, with counts and an assignment": ask(**both),
        "that exists, with a null setting": ask(**null),
        "with null settings, counts and an assignment": ask(name="new", **both, **null),
        "that exists, with an assignment of partition 1 alone": ask(
            assignments=[{"partition_index": 1, "broker_ids": [0]}]
        ),
    }
    for label, request in cases.items():
        probe.case(f"orders: CreateTopics of a topic {label}", probe.controller, 7, request)
    elsewhere = ask(**both)
    probe.case("orders: CreateTopics of a topic that exists, at another broker", probe.other, 7, elsewhere)


def _metadata(probe: Probe, topic_id: bytes) -> None:
    def ask(*topics: dict[str, Any]) -> Any:
        return message("Metadata", topics=list(topics), allow_auto_topic_creation=False)

    by_id = {"topic_id": topic_id, "name": None}
    for version in (10, 11):
        request = ask({"topic_id": topic_id, "name": NAME}, {"name": NAME})
        probe.case(f"orders: Metadata v{version} with an id", LEADER, version, request, _shape)
        probe.case(
            f"orders: Metadata v{version} without a name", LEADER, version, ask({"name": None}, {"name": NAME}), _shape
        )
    cases = {
        "an id and a name": ask(by_id, {"name": NAME}),
        "an id and a name that no topic can have": ask(by_id, {"name": ".."}),
        "an unknown id and a name": ask({"topic_id": UNKNOWN_ID, "name": None}, {"name": NAME}),
        "an id beside another topic's name": ask({"topic_id": topic_id, "name": "nope"}),
    }
    for label, request in cases.items():
        probe.case(f"orders: Metadata v12 with {label}", LEADER, 12, request, _shape)


def _shape(found: Any) -> Any:
    topics = [(one.name, one.error_code, any(one.topic_id), len(one.partitions)) for one in found.topics]
    return len(found.brokers), bool(found.cluster_id), found.controller_id >= 0, topics


def _records(probe: Probe, topic_id: bytes) -> None:
    def deletion(broker: int, offset: int) -> None:
        topics = [{"name": NAME, "partitions": [{"partition_index": 0, "offset": offset}]}]
        request = message("DeleteRecords", timeout_ms=5_000, topics=topics)
        probe.case(f"orders: DeleteRecords below offset {offset} at broker {broker}", broker, 2, request)

    for offset in (-2, -(2**63)):
        deletion(LEADER, offset)
        deletion(FOLLOWER, offset)
    for at in (0, 9):
        topics = [{"name": NAME, "partitions": [{"partition_index": at, "timestamp": -1, "max_num_offsets": -1}]}]
        request = message("ListOffsets", replica_id=-1, topics=topics)
        probe.case(f"orders: ListOffsets v0 of -1 offsets of partition {at}", LEADER, 0, request)
    for version in (12, 16, 17):
        named = NAME if version == 12 else topic_id
        request = fetch(topic=named, isolation_level=9, session_id=77, session_epoch=-1)
        probe.case(
            f"orders: Fetch v{version} at isolation level 9 that ends a session", LEADER, version, request, fetched
        )
    request = fetch(topic=topic_id, replica_state={"replica_id": 99, "replica_epoch": -1})
    probe.case("orders: Fetch v17 of a follower that has no replica", LEADER, 17, request, fetched)


def _tokens(probe: Probe) -> None:
    cases = {
        "a name without a type": {"owner_principal_type": "", "owner_principal_name": "a"},
        "a type without a name": {"owner_principal_type": "Group", "owner_principal_name": ""},
        "neither": {"owner_principal_type": None, "owner_principal_name": None},
        "both": {"owner_principal_type": "Group", "owner_principal_name": "a"},
    }
    for label, owner in cases.items():
        request = message("CreateDelegationToken", max_lifetime_ms=-1, **owner)
        probe.case(f"orders: CreateDelegationToken of {label}", LEADER, 3, request)
