"""Facts about records: Produce, Fetch with its sessions, ListOffsets, OffsetForLeaderEpoch, InitProducerId."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Any

from tests.wire_responses.batches import CONTROL, TIME_MS, TRANSACTIONAL, ZSTD, batch, message_set
from tests.wire_responses.probe import SILENCE_SECONDS, Probe, message

TOPIC = "probe"
ASSIGNMENT = ([0, 1, 2], [1, 2, 0], [2, 0, 1])
LEADER, FOLLOWER = 0, 1
"""Of partition 0."""
MANY = 1 << 20
COORDINATOR_LOAD_IN_PROGRESS = 14
"""A broker has no block of producer ids yet."""


def create(probe: Probe, name: str = TOPIC) -> Any:
    """Create a topic with a leader on each broker, for one the topic that most parts use; return its metadata."""
    replicas = [{"partition_index": at, "broker_ids": ids} for at, ids in enumerate(ASSIGNMENT)]
    wanted = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": replicas, "configs": []}
    probe.ask(probe.controller, 7, message("CreateTopics", timeout_ms=30_000, topics=[wanted]))
    return probe.topic(name)


def produce(records: bytes | None, *, topic: str = TOPIC, partition: int = 0, acks: int = -1, **more: Any) -> Any:
    """Return a Produce request for one partition."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return message("Produce", acks=acks, timeout_ms=5_000, topic_data=data, **more)


def produced(response: Any) -> Any:
    """Return the partitions of a Produce response."""
    return [item for topic in response.responses for item in topic.partition_responses]


def fetch(
    partitions: Sequence[int] = (0,), *, topic: str | bytes = TOPIC, offset: int = 0, epoch: int = -1, **more: Any
) -> Any:
    """Return a Fetch request; it waits for nothing unless it says so."""
    limit_bytes = more.pop("partition_max_bytes", MANY)
    wanted = [
        {
            "partition": at,
            "fetch_offset": offset,
            "current_leader_epoch": epoch,
            "partition_max_bytes": limit_bytes,
        }
        for at in partitions
    ]
    named = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": MANY} | more
    return message("Fetch", topics=[named | {"partitions": wanted}] if partitions else [], **settings)


def fetched(response: Any) -> Any:
    """Return the partitions of a Fetch response, with the records' size."""
    found = []
    for topic in response.responses:
        for item in topic.partitions:
            size = "null" if item.records is None else len(item.records)
            aborted = "null" if item.aborted_transactions is None else len(item.aborted_transactions)
            offsets = (item.high_watermark, item.last_stable_offset, item.log_start_offset)
            leader = item.current_leader
            hint = None if leader is None or leader.leader_id < 0 else (leader.leader_id, leader.leader_epoch)
            diverging = None if item.diverging_epoch is None else item.diverging_epoch
            found.append((item.partition_index, item.error_code, offsets, size, aborted, hint, diverging))
    session = "session" if response.session_id else 0
    return response.error_code, session, found, len(response.node_endpoints)


def produces(probe: Probe) -> None:
    """Produce, in Kafka's order of checks."""
    probe.say("Produce")
    for acks in (-1, 1, 2):
        probe.case(f"Produce acks {acks}", LEADER, 9, produce(batch(), acks=acks), produced)
    for version in (9, 10, 11):
        probe.case(f"Produce v{version} not leader", FOLLOWER, version, produce(batch()))
    probe.case("Produce unknown topic", LEADER, 9, produce(batch(), topic="nope"), produced)
    probe.case("Produce unknown partition", LEADER, 9, produce(batch(), partition=99), produced)
    damaged = bytearray(batch())
    damaged[20] ^= 1
    refused = {
        "empty records": b"",
        "two batches": batch() * 2,
        "bad crc": bytes(damaged),
        "magic 1": batch(magic=1),
        "magic 3": batch(magic=3),
        "truncated": batch()[:-3],
        "control batch": batch(attributes=CONTROL),
        "too large": batch((b"x" * 1_100_000,)),
        "transactional without id": batch(producer_id=1, epoch=0, sequence=0, attributes=TRANSACTIONAL),
        "sequence without producer": batch(sequence=3),
        "record count": batch()[:57] + struct.pack(">i", 5) + batch()[61:],
    }
    for name, records in refused.items():
        probe.case(f"Produce {name}", LEADER, 9, produce(records), produced)
    probe.case("Produce zstd in v6", LEADER, 6, produce(batch(attributes=ZSTD)), produced)
    for version in (0, 1, 2):
        for magic in (0, 1):
            response = probe.ask(LEADER, version, produce(message_set(b"old", magic), partition=0))
            codes = response if isinstance(response, str) else [item.error_code for item in produced(response)]
            probe.note(f"Produce v{version} magic {magic}", codes)
    probe.case("Produce v3 message set", LEADER, 3, produce(message_set(b"old", 1)), produced)
    for version in (3, 5, 7, 8):
        probe.case(f"Produce v{version}", LEADER, version, produce(batch(), partition=0), _success)
    for name, request in {
        "null records": produce(None),
        "null records in v2": produce(None),
    }.items():
        peer = probe.new_peer(LEADER)
        version = 2 if name.endswith("v2") else 9
        probe.note(f"Produce {name}", peer.ask(version, request, SILENCE_SECONDS))
        peer.close()
    _acks_zero(probe)


def _success(response: Any) -> Any:
    return [(item.error_code, item.base_offset >= 0, item.log_start_offset) for item in produced(response)]


def _acks_zero(probe: Probe) -> None:
    peer = probe.new_peer(LEADER)
    peer.send(9, produce(batch(), acks=0))
    metadata = message("Metadata", topics=[])
    expected = peer.send(12, metadata)
    responded = struct.unpack(">i", (peer.frame() or bytes(4))[:4])[0]
    probe.note("Produce acks 0: the first response belongs to the next request", responded == expected)
    peer.close()
    peer = probe.new_peer(LEADER)
    peer.send(9, produce(batch(), acks=0, topic="nope"))
    probe.note("Produce acks 0 with an error", "closed" if peer.frame() is None else "open")
    peer.close()


def producers(probe: Probe) -> None:
    """InitProducerId without a transactional id, and idempotent produce."""
    probe.say("InitProducerId")

    def init(**more: Any) -> Any:
        return message("InitProducerId", **{"transactional_id": None, "transaction_timeout_ms": 60_000} | more)

    probe.again(lambda: probe.ask(LEADER, 4, init()), COORDINATOR_LOAD_IN_PROGRESS)
    for version in range(6):
        probe.case(f"InitProducerId v{version}", LEADER, version, init())
    probe.case("InitProducerId empty transactional id", LEADER, 4, init(transactional_id=""))
    probe.case("InitProducerId id without epoch", LEADER, 4, init(producer_id=5))
    probe.case("InitProducerId epoch without id", LEADER, 4, init(producer_epoch=5))
    probe.case("InitProducerId id and epoch without transactional id", LEADER, 4, init(producer_id=5, producer_epoch=1))
    mine = probe.ask(LEADER, 4, init()).producer_id
    steps = (
        ("sequence 0", 0, 0),
        ("sequence 0 again", 0, 0),
        ("gap", 0, 5),
        ("epoch up with sequence 1", 1, 1),
        ("epoch up with sequence 0", 1, 0),
        ("old epoch", 0, 1),
        ("next sequence", 1, 1),
        ("older duplicate", 1, 0),
    )
    first = None
    for name, epoch, sequence in steps:
        request = produce(batch(producer_id=mine, epoch=epoch, sequence=sequence))
        response = probe.ask(LEADER, 9, request)
        [item] = produced(response)
        first = item.base_offset if first is None else first
        place = item.base_offset - first if item.base_offset >= 0 else "none"
        probe.note(f"idempotent {name}", (item.error_code, place, item.error_message))
    unknown = batch(producer_id=987_654, epoch=0, sequence=7)
    probe.case("idempotent unknown producer with sequence 7", LEADER, 9, produce(unknown), _success)


def fetches(probe: Probe) -> None:
    """Fetch without sessions."""
    probe.say("Fetch")
    end = fetched(probe.ask(LEADER, 12, fetch()))[2][0][2][0]
    probe.case("Fetch v12 of an empty partition", 1, 12, fetch((1,)), fetched)
    for version in (4, 5, 7, 10, 11, 12):
        probe.case(f"Fetch v{version} of the end", LEADER, version, fetch(offset=end), _without_offsets)
        probe.case(f"Fetch v{version} at a follower", FOLLOWER, version, fetch(offset=0), _errors)
    for version in (0, 1, 2, 3):
        probe.case(f"Fetch v{version} of an empty partition", 1, version, fetch((1,)), fetched)
    probe.case("Fetch out of range", LEADER, 12, fetch(offset=10**6), fetched)
    probe.case("Fetch at offset -1", LEADER, 12, fetch(offset=-1), fetched)
    probe.case("Fetch unknown topic", LEADER, 12, fetch(topic="nope"), fetched)
    probe.case("Fetch unknown partition", LEADER, 12, fetch((99,)), fetched)
    probe.case("Fetch unknown topic in v3", LEADER, 3, fetch(topic="nope"), fetched)
    probe.case("Fetch v13 unknown id", LEADER, 13, fetch(topic=uuid.uuid4().bytes), fetched)
    topic_id = bytes(probe.topic(TOPIC).topic_id)
    for version in (13, 15, 16, 17):
        probe.case(f"Fetch v{version} by id", LEADER, version, fetch(topic=topic_id, offset=end), _without_offsets)
        probe.case(f"Fetch v{version} unknown partition by id", LEADER, version, fetch((99,), topic=topic_id), fetched)
    probe.case("Fetch newer epoch", LEADER, 12, fetch(epoch=99), fetched)
    probe.case("Fetch newer epoch at a follower", FOLLOWER, 12, fetch(epoch=99), fetched)
    probe.case("Fetch v10 newer epoch at a follower", FOLLOWER, 10, fetch(epoch=99), fetched)
    probe.case("Fetch v16 newer epoch", LEADER, 16, fetch(epoch=99, topic=topic_id), fetched)
    whole = [("partition_max_bytes", 1), ("max_bytes", 1), ("max_bytes", 0), ("partition_max_bytes", 0)]
    for field, limit in whole:
        some = probe.ask(LEADER, 12, fetch(**{field: limit}))
        probe.note(f"Fetch {field}={limit} returns a batch", fetched(some)[2][0][3] > 1)
    for isolation in (0, 1, 2):
        request = fetch(offset=end, isolation_level=isolation)
        probe.case(f"Fetch isolation level {isolation}", LEADER, 12, request, _without_offsets)
    probe.case("Fetch debug consumer", LEADER, 12, fetch(offset=end, replica_id=-2), _without_offsets)
    probe.case("Fetch debug consumer at a follower", FOLLOWER, 12, fetch(offset=0, replica_id=-2), _errors)
    probe.case("Fetch v10 debug consumer at a follower", FOLLOWER, 10, fetch(offset=0, replica_id=-2), _errors)
    probe.case("Fetch diverging epoch is not told to consumers", LEADER, 12, _diverging(end), _without_offsets)
    _waits_in_order(probe, end)


def _diverging(end: int) -> Any:
    request = fetch(offset=end)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    return request


def _without_offsets(response: Any) -> Any:
    code, session, partitions, endpoints = fetched(response)
    kept = [(at, error, size, aborted, hint) for at, error, _, size, aborted, hint, _ in partitions]
    return code, session, kept, endpoints


def _errors(response: Any) -> Any:
    code, session, partitions, _ = fetched(response)
    return code, session, [(at, error) for at, error, *_ in partitions]


def _waits_in_order(probe: Probe, end: int) -> None:
    peer = probe.new_peer(LEADER)
    slow = peer.send(12, fetch(offset=end, max_wait_ms=700))
    quick = peer.send(12, message("Metadata", topics=[]))
    numbers = [struct.unpack(">i", (peer.frame() or bytes(4))[:4])[0] for _ in range(2)]
    probe.note("a Metadata request behind a Fetch that waits has its response after it", numbers == [slow, quick])
    peer.close()


def sessions(probe: Probe) -> None:
    """Fetch sessions (KIP-227)."""
    probe.say("fetch sessions")
    topic_id = bytes(probe.topic(TOPIC).topic_id)

    def say(name: str, request: Any, version: int = 12) -> Any:
        return probe.case(f"session: {name}", LEADER, version, request, _without_offsets)

    end = fetched(probe.ask(LEADER, 12, fetch()))[2][0][2][0]
    made = say("epoch 0 makes one", fetch(offset=end, session_epoch=0))
    mine = made.session_id
    say("nothing is new", fetch(offset=end, session_id=mine, session_epoch=1))
    say("no partitions named", fetch((), session_id=mine, session_epoch=2))
    probe.ask(LEADER, 9, produce(batch()))
    say("after a produce", fetch((), session_id=mine, session_epoch=3))
    say("the same records again", fetch((), session_id=mine, session_epoch=4))
    say("an epoch again", fetch((), session_id=mine, session_epoch=4))
    say("an epoch too far", fetch((), session_id=mine, session_epoch=99))
    say("unknown session", fetch((), session_id=mine ^ 1, session_epoch=5))
    say("ids in a session of names", fetch((), session_id=mine, session_epoch=5), 13)
    gone = [{"topic": TOPIC, "partitions": [0]}]
    say("everything forgotten", fetch((), session_id=mine, session_epoch=5, forgotten_topics_data=gone))
    say("after everything was forgotten", fetch((), session_id=mine, session_epoch=6))
    other = say("ids", fetch(topic=topic_id, offset=end, session_epoch=0), 13).session_id
    say("names in a session of ids", fetch((), session_id=other, session_epoch=1))
    say("unknown topic added", fetch(topic="nope", session_id=other, session_epoch=1))
    say("a new one in place of the old", fetch(offset=end, session_id=other, session_epoch=0))
    say("the old is closed", fetch((), session_id=other, session_epoch=1), 13)
    last = probe.ask(LEADER, 12, fetch(offset=end, session_epoch=0)).session_id
    say("epoch -1 closes", fetch(offset=end, session_id=last, session_epoch=-1))
    say("closed", fetch((), session_id=last, session_epoch=1))
    say("unknown topic", fetch(topic="nope", session_epoch=0))
    say("unknown id", fetch(topic=uuid.uuid4().bytes, session_epoch=0), 13)


def offsets(probe: Probe) -> None:
    """ListOffsets and OffsetForLeaderEpoch, on a topic whose offsets are known."""
    probe.say("ListOffsets")
    name = "probe-offsets"
    replicas = [{"partition_index": at, "broker_ids": ids} for at, ids in enumerate(ASSIGNMENT)]
    wanted = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": replicas}
    segment = [{"name": "segment.bytes", "value": "150"}]
    probe.ask(probe.controller, 7, message("CreateTopics", timeout_ms=30_000, topics=[wanted | {"configs": segment}]))
    probe.topic(name)
    for step in (0, 10, 5, 20):
        probe.ask(LEADER, 9, produce(batch((b"a", b"b"), timestamp_ms=TIME_MS + step), topic=name))

    def ask(timestamp: int, *, partition: int = 0, topic: str = name, **more: Any) -> Any:
        item = {"partition_index": partition, "timestamp": timestamp}
        if "current_leader_epoch" in more:
            item["current_leader_epoch"] = more.pop("current_leader_epoch")
        if "max_num_offsets" in more:
            item["max_num_offsets"] = more.pop("max_num_offsets")
        return message("ListOffsets", topics=[{"name": topic, "partitions": [item]}], **{"replica_id": -1} | more)

    def listed(response: Any) -> Any:
        return [item for one in response.topics for item in one.partitions]

    times = (-1, -2, -3, -4, -5, -6, 0, TIME_MS, TIME_MS + 5, TIME_MS + 7, TIME_MS + 20, TIME_MS + 21)
    for version in (1, 4, 6, 7, 8, 9):
        for timestamp in times:
            label = timestamp if timestamp < TIME_MS else f"T+{timestamp - TIME_MS}"
            probe.case(f"ListOffsets v{version} time {label}", LEADER, version, ask(timestamp), listed)
    for timestamp in (-1, -2, -3, -4, 0, TIME_MS, 2 * TIME_MS, 2**62):
        for count in (-1, 0, 1, 2, 9):
            request = ask(timestamp, max_num_offsets=count)
            label = {TIME_MS: "T", 2 * TIME_MS: "far away"}.get(timestamp, timestamp)
            probe.case(f"ListOffsets v0 time {label} count {count}", LEADER, 0, request, listed)
    probe.case("ListOffsets v0 of an empty partition", 1, 0, ask(-1, partition=1, max_num_offsets=9), listed)
    probe.case("ListOffsets v0 time 0 of an empty partition", 1, 0, ask(0, partition=1, max_num_offsets=9), listed)
    probe.case("ListOffsets v0 not leader", FOLLOWER, 0, ask(-1), listed)
    probe.case("ListOffsets v0 unknown topic", LEADER, 0, ask(-1, topic="nope"), listed)
    probe.case("ListOffsets v0 debug consumer at a follower", FOLLOWER, 0, ask(-1, replica_id=-2), listed)
    for replica in (-2, -3):
        probe.case(f"ListOffsets replica id {replica}", LEADER, 7, ask(-1, replica_id=replica), listed)
        probe.case(f"ListOffsets replica id {replica} at a follower", FOLLOWER, 7, ask(-1, replica_id=replica), listed)
    probe.case("ListOffsets of an empty partition, largest time", 1, 9, ask(-3, partition=1), listed)
    probe.case("ListOffsets of an empty partition, time 0", 1, 9, ask(0, partition=1), listed)
    for version in (1, 5, 9):
        probe.case(f"ListOffsets v{version} not leader", FOLLOWER, version, ask(-1), listed)
        probe.case(f"ListOffsets v{version} unknown topic", LEADER, version, ask(-1, topic="nope"), listed)
        probe.case(f"ListOffsets v{version} unknown partition", LEADER, version, ask(-1, partition=9), listed)
    for epoch in (0, 9, -1):
        probe.case(f"ListOffsets current epoch {epoch}", LEADER, 9, ask(-1, current_leader_epoch=epoch), listed)
    probe.case("ListOffsets at a follower, newer epoch", FOLLOWER, 9, ask(-1, current_leader_epoch=9), listed)
    twice = ask(-1)
    twice.topics[0].partitions = [*twice.topics[0].partitions] * 2
    for version in (0, 1, 9):
        probe.case(f"ListOffsets v{version} partition named twice", LEADER, version, twice, listed)
    _epochs(probe, name)


def _epochs(probe: Probe, name: str) -> None:
    def ask(epoch: int, current: int = -1, partition: int = 0, replica_id: int = -2) -> Any:
        item = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        topics = [{"topic": name, "partitions": [item]}]
        return message("OffsetForLeaderEpoch", replica_id=replica_id, topics=topics)

    def ended(response: Any) -> Any:
        return [item for one in response.topics for item in one.partitions]

    for version in range(5):
        probe.case(f"OffsetForLeaderEpoch v{version}", LEADER, version, ask(0), ended)
    probe.case("OffsetForLeaderEpoch newer than all", LEADER, 4, ask(99), ended)
    probe.case("OffsetForLeaderEpoch -1", LEADER, 4, ask(-1), ended)
    probe.case("OffsetForLeaderEpoch current epoch too new", LEADER, 4, ask(0, 99), ended)
    probe.case("OffsetForLeaderEpoch not leader", FOLLOWER, 4, ask(0), ended)
    probe.case("OffsetForLeaderEpoch unknown partition", LEADER, 4, ask(0, partition=99), ended)
    probe.case("OffsetForLeaderEpoch of an empty partition", 1, 4, ask(0, partition=1), ended)
    probe.case("OffsetForLeaderEpoch debug consumer at a follower", FOLLOWER, 4, ask(0, replica_id=-1), ended)
