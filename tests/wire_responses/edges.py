"""Facts about requests for records that name nothing, or a thing twice, or carry the numbers at the end of a range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.wire_responses.batches import batch
from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import FOLLOWER, LEADER, create, fetch, fetched, produce, produced

NAME = "probe-edges"
TIMEOUT_MS = 20_000
LARGEST = 2**63 - 1


def records(probe: Probe) -> None:
    """All of them, on a topic of their own."""
    probe.say("edges of requests for records")
    create(probe, NAME)
    _produces(probe)
    _fetches(probe)
    _sessions(probe)
    _offsets(probe)
    _deletions(probe)
    _producers(probe)


def _produces(probe: Probe) -> None:
    def ask(*topics: dict[str, Any], acks: int = -1, **more: Any) -> Any:
        return message("Produce", acks=acks, timeout_ms=5_000, topic_data=list(topics), **more)

    def data(*partitions: int, name: str = NAME) -> dict[str, Any]:
        return {"name": name, "partition_data": [{"index": at, "records": batch()} for at in partitions]}

    for version in (3, 9, 11):
        probe.case(f"Produce v{version} of nothing", LEADER, version, ask(), produced)
        probe.case(f"Produce v{version} of a topic's nothing", LEADER, version, ask(data()), produced)
    probe.case("Produce a partition and one that is led elsewhere", LEADER, 9, ask(data(0, 1)), produced)
    probe.case("Produce known and unknown topics", LEADER, 9, ask(data(0), data(0, name="nope")), produced)
    probe.case("Produce a negative partition", LEADER, 9, ask(data(-1)), produced)
    probe.case("Produce an empty topic name", LEADER, 9, ask(data(0, name="")), produced)
    probe.case("Produce to __consumer_offsets", LEADER, 9, ask(data(0, name="__consumer_offsets")), _codes)
    for timeout_ms in (0, -1):
        request = produce(batch(), topic=NAME)
        request.timeout_ms = timeout_ms
        probe.case(f"Produce timeout {timeout_ms} acks 1", LEADER, 9, _with_acks(request, 1), produced)
    probe.case("Produce empty transactional id", LEADER, 9, ask(data(0), transactional_id=""), produced)


def _with_acks(request: Any, acks: int) -> Any:
    request.acks = acks
    return request


def _codes(found: Any) -> Any:
    return [item.error_code for one in found.responses for item in one.partition_responses]


def _fetches(probe: Probe) -> None:
    def twice(request: Any) -> Any:
        request.topics[0].partitions = [*request.topics[0].partitions] * 2
        return request

    def topic_twice(request: Any) -> Any:
        request.topics = [*request.topics] * 2
        return request

    topic_id = bytes(probe.topic(NAME).topic_id)
    names: dict[str, Callable[[Any], Any]] = {"a partition twice": twice, "a topic twice": topic_twice}
    for label, change in names.items():
        for version in (4, 12):
            probe.case(f"Fetch v{version} {label}", LEADER, version, change(fetch(topic=NAME)), fetched)
            request = change(fetch(topic=NAME, session_epoch=0))
            if version >= 7:
                probe.case(f"Fetch v{version} {label}, in a session", LEADER, version, request, _results)
        probe.case(f"Fetch v16 {label}", LEADER, 16, change(fetch(topic=topic_id)), fetched)
    for version in (4, 12, 16):
        probe.case(f"Fetch v{version} of nothing", LEADER, version, fetch(()), fetched)
    empty = fetch(topic=NAME)
    empty.topics[0].partitions = []
    probe.case("Fetch of a topic's nothing", LEADER, 12, empty, fetched)
    numbers = {
        "max_wait_ms=-1": fetch(topic=NAME, max_wait_ms=-1),
        "min_bytes=-1": fetch(topic=NAME, min_bytes=-1),
        "min_bytes=0": fetch(topic=NAME, min_bytes=0),
        "max_bytes=-1": fetch(topic=NAME, max_bytes=-1),
        "partition_max_bytes=-1": fetch(topic=NAME, partition_max_bytes=-1),
        "an offset beyond all": fetch(topic=NAME, offset=LARGEST),
        "an offset below all": fetch(topic=NAME, offset=-LARGEST),
        "a negative partition": fetch((-1,), topic=NAME),
        "an empty name": fetch(topic=""),
        "an epoch below all": fetch(topic=NAME, epoch=-2),
        "isolation level 9": fetch(topic=NAME, isolation_level=9),
        "replica id 99": fetch(topic=NAME, replica_id=99),
        "replica id -3": fetch(topic=NAME, replica_id=-3),
    }
    for label, request in numbers.items():
        probe.case(f"Fetch {label}", LEADER, 12, request, fetched)
    probe.case("Fetch v16 with an id of zeros", LEADER, 16, fetch(topic=bytes(16)), fetched)


def _results(found: Any) -> Any:
    return found.error_code, bool(found.session_id), [len(one.partitions) for one in found.responses]


def _sessions(probe: Probe) -> None:
    def say(name: str, request: Any, version: int = 12, broker: int = LEADER) -> Any:
        return probe.case(f"session edge: {name}", broker, version, request, _results)

    say("epoch -1 without an id", fetch(topic=NAME, session_epoch=-1))
    say("epoch 1 without an id", fetch(topic=NAME, session_epoch=1))
    say("epoch -5", fetch(topic=NAME, session_epoch=-5))
    say("id -1", fetch(topic=NAME, session_id=-1, session_epoch=1))
    say("epoch 0 with an id that is unknown", fetch(topic=NAME, session_id=77, session_epoch=0))
    say("epoch -1 with an id that is unknown", fetch(topic=NAME, session_id=77, session_epoch=-1))
    say("of nothing", fetch((), session_epoch=0))
    made = probe.ask(LEADER, 12, fetch(topic=NAME, session_epoch=0)).session_id
    say("at another broker", fetch((), session_id=made, session_epoch=1), broker=FOLLOWER)
    unknown = [{"topic": "nope", "partitions": [0]}, {"topic": NAME, "partitions": [9]}]
    say("forgets what is not in it", fetch((), session_id=made, session_epoch=1, forgotten_topics_data=unknown))
    both = fetch(topic=NAME, session_id=made, session_epoch=2)
    both.forgotten_topics_data = fetch(
        (), forgotten_topics_data=[{"topic": NAME, "partitions": [0]}]
    ).forgotten_topics_data
    say("names and forgets one", both)
    say("after that", fetch((), session_id=made, session_epoch=3))
    say("an epoch of the past", fetch((), session_id=made, session_epoch=2))
    say("a negative epoch", fetch((), session_id=made, session_epoch=-2))


def _offsets(probe: Probe) -> None:
    def ask(*partitions: dict[str, Any], topic: str = NAME, **more: Any) -> Any:
        topics = [{"name": topic, "partitions": list(partitions)}]
        return message("ListOffsets", topics=topics, **{"replica_id": -1} | more)

    latest = {"partition_index": 0, "timestamp": -1}
    cases = {
        "of nothing": message("ListOffsets", replica_id=-1, topics=[]),
        "of a topic's nothing": ask(),
        "at the largest time": ask({"partition_index": 0, "timestamp": LARGEST}),
        "at time -7": ask({"partition_index": 0, "timestamp": -7}),
        "at the smallest time": ask({"partition_index": 0, "timestamp": -(2**63)}),
        "of a negative partition": ask({"partition_index": -1, "timestamp": -1}),
        "of an empty name": ask(latest, topic=""),
        "at isolation level 9": ask(latest, isolation_level=9),
        "with an epoch below all": ask(latest | {"current_leader_epoch": -2}),
        "of two times of a partition": ask(latest, {"partition_index": 0, "timestamp": -2}),
        "of a name with a space": ask(latest, topic="a b"),
    }
    for label, request in cases.items():
        for version in (1, 9):
            if "epoch" in label and version < 4:
                continue
            probe.case(f"ListOffsets v{version} {label}", LEADER, version, request)
    item = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}

    def ends(*partitions: dict[str, Any], topic: str = NAME) -> Any:
        topics = [{"topic": topic, "partitions": list(partitions)}]
        return message("OffsetForLeaderEpoch", replica_id=-2, topics=topics)

    epochs = {
        "of nothing": message("OffsetForLeaderEpoch", replica_id=-2, topics=[]),
        "of a topic's nothing": ends(),
        "a partition twice": ends(item, item),
        "unknown topic": ends(item, topic="nope"),
        "empty name": ends(item, topic=""),
        "epoch -2": ends(item | {"leader_epoch": -2}),
        "current epoch -2": ends(item | {"current_leader_epoch": -2}),
        "two epochs of a partition": ends(item, item | {"leader_epoch": 7}),
        "negative partition": ends(item | {"partition": -1}),
    }
    for label, request in epochs.items():
        probe.case(f"OffsetForLeaderEpoch {label}", LEADER, 4, request)


def _deletions(probe: Probe) -> None:
    def ask(*partitions: tuple[int, int], topic: str = NAME, timeout_ms: int = TIMEOUT_MS) -> Any:
        items = [{"partition_index": at, "offset": offset} for at, offset in partitions]
        topics = [{"name": topic, "partitions": items}]
        return message("DeleteRecords", timeout_ms=timeout_ms, topics=topics)

    cases = {
        "of nothing": message("DeleteRecords", timeout_ms=TIMEOUT_MS, topics=[]),
        "of a topic's nothing": ask(),
        "a partition twice": ask((0, 0), (0, 0)),
        "two offsets of a partition": ask((0, 0), (0, 10**6)),
        "of partitions here and elsewhere": ask((0, 0), (1, 0)),
        "negative partition": ask((-1, 0)),
        "empty name": ask((0, 0), topic=""),
        "of __consumer_offsets": ask((0, 0), topic="__consumer_offsets"),
        "at the largest offset": ask((0, LARGEST)),
        "with timeout -1": ask((0, 0), timeout_ms=-1),
    }
    for label, request in cases.items():
        probe.case(f"DeleteRecords {label}", LEADER, 2, request, _sorted_results)
    twice = ask((0, 0))
    twice.topics = [*twice.topics] * 2
    probe.case("DeleteRecords a topic twice", LEADER, 2, twice, _sorted_results)


def _sorted_results(found: Any) -> Any:
    return sorted((one.name, sorted(map(str, one.partitions))) for one in found.topics)


def _producers(probe: Probe) -> None:
    def ask(*partitions: int, name: str = NAME) -> Any:
        return message("DescribeProducers", topics=[{"name": name, "partition_indexes": list(partitions)}])

    cases = {
        "of nothing": message("DescribeProducers", topics=[]),
        "of a topic's nothing": ask(),
        "a partition twice": ask(0, 0),
        "negative partition": ask(-1),
        "empty name": ask(0, name=""),
    }
    for label, request in cases.items():
        probe.case(f"DescribeProducers {label}", LEADER, 0, request)
