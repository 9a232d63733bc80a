"""The records of Apache Kafka 3.9.1: read by ours, and written by ours byte for byte (tests/kafka_log_dir)."""

from pathlib import Path

import pytest
from tests.kafka_log_dir import log_of
from tests.unit.coordinator.harness import Harness

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import (
    DeleteGroup,
    DescribeGroup,
    GroupState,
    OffsetDelete,
    OffsetFetch,
    Protocol,
)
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers, patch
from tidegauge_broker.coordinator.loading import Loader
from tidegauge_broker.coordinator.offsets import CommittedOffset
from tidegauge_broker.coordinator.record_codec import NO_SEQUENCE, Record, UnknownKey, batch_of, read_batches
from tidegauge_broker.coordinator.records import (
    OFFSETS_BASE_SEQUENCE,
    WITH_TOPIC_ID,
    GroupKey,
    OffsetKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
)

LOGS = [log_of(f"__consumer_offsets-{partition}") for partition in (0, 1)]
T0 = TopicPartition("t", 0)


def stored_batches(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return [data[header.position : header.position + header.size_bytes] for header in iterate_headers(data)]


def at(batch: bytes, offset: int, epoch: int = 0) -> bytes:
    placed = bytearray(batch)
    patch(placed, 0, offset, epoch)
    return bytes(placed)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_every_record_that_kafka_wrote_is_written_the_same(path):
    seen = 0
    for batch in read_batches(path.read_bytes()):
        if batch.header.is_control:
            continue
        for key, value in batch.records:
            name = read_key(key)
            if isinstance(name, OffsetKey):
                assert offset_key(name.group_id, name.topic_partition) == key
                assert value is None or offset_value(read_offset(value)) == value
            else:
                assert isinstance(name, GroupKey)
                assert group_key(name.group_id) == key
                assert value is None or group_value(read_group(value)) == value
            seen += 1
    assert seen in {10, 20}


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_every_plain_batch_that_kafka_wrote_is_written_the_same(path):
    """Commits have base sequence 0 although they have no producer; records of groups and tombstones have -1."""
    sequences = set()
    for stored, batch in zip(stored_batches(path), read_batches(path.read_bytes()), strict=True):
        header = batch.header
        if header.is_control or header.is_transactional:
            continue
        is_commit = isinstance(read_key(batch.records[0][0]), OffsetKey) and batch.records[0][1] is not None
        sequence = OFFSETS_BASE_SEQUENCE if is_commit else NO_SEQUENCE
        records = [Record(key, value) for key, value in batch.records]
        written = batch_of(records, header.max_timestamp_ms, sequence, compression=0)
        assert at(written, header.base_offset) == stored
        sequences.add(header.base_sequence)
    assert sequences == {-1, 0}


def test_the_known_bytes_of_keys_and_values():
    assert offset_key("g", T0) == bytes.fromhex("0001 0001 67 0001 74 00000000")
    with_metadata = CommittedOffset(2, 0, "meta", 0x1A202A73A7C)
    assert offset_value(with_metadata) == bytes.fromhex("0003 0000000000000002 00000000 0004 6d657461 000001a202a73a7c")
    bare = CommittedOffset(5, -1, "", 0x1A202A73B6B)
    assert offset_value(bare) == bytes.fromhex("0003 0000000000000005 ffffffff 0000 000001a202a73b6b")
    assert group_key("g") == bytes.fromhex("0002 0001 67")


def test_a_broker_of_kafka_4_writes_the_topics_id():
    """Value version 4 is flexible, and has the id as a tagged field; one that is not known is left out."""
    committed = CommittedOffset(7, 3, "m", 100, topic_id=bytes(range(16)))
    with_id = offset_value(committed, WITH_TOPIC_ID)
    assert with_id == bytes.fromhex(
        "0004 0000000000000007 00000003 02 6d 0000000000000064 01 00 10 000102030405060708090a0b0c0d0e0f"
    )
    assert read_offset(with_id) == committed
    without = offset_value(committed._replace(topic_id=NIL_UUID), WITH_TOPIC_ID)
    assert without == bytes.fromhex("0004 0000000000000007 00000003 02 6d 0000000000000064 00")
    expiring = committed._replace(expire_timestamp_ms=250)
    assert offset_value(expiring, WITH_TOPIC_ID) == offset_value(expiring), "version 1 has no field for it"


def test_an_expiration_time_of_its_own_takes_value_version_1():
    value = offset_value(CommittedOffset(7, 3, "m", 100, 250))
    assert value == bytes.fromhex("0001 0000000000000007 0001 6d 0000000000000064 00000000000000fa")
    assert read_offset(value) == CommittedOffset(7, -1, "m", 100, 250)


def test_older_and_newer_values_are_read():
    assert read_offset(bytes.fromhex("0000 0000000000000007 0001 6d 0000000000000064")) == CommittedOffset(
        7, -1, "m", 100
    )
    assert read_offset(bytes.fromhex("0004 0000000000000007 00000003 02 6d 0000000000000064 00")) == CommittedOffset(
        7, 3, "m", 100
    )
    group = read_group(
        bytes.fromhex(
            "0000 0008 636f6e73756d6572 00000002 0001 70 0001 6d 00000001 0001 6d 0000 0000 00000064 00000000 00000000"
        )
    )
    # Version 0 has no rebalance timeout: the session timeout stands for it (readGroupMessageValue).
    assert (group.generation, group.members[0].rebalance_timeout, group.current_state_timestamp) == (2, 100, -1)


def test_a_key_of_a_newer_broker_is_skipped_and_an_unknown_value_is_an_error():
    assert read_key(bytes.fromhex("0003 0001 67")) == UnknownKey(3)
    with pytest.raises(TidegaugeError, match="unknown version 5"):
        read_offset(bytes.fromhex("0005 0000"))
    with pytest.raises(TidegaugeError, match="no version"):
        read_key(b"\0")
    with pytest.raises(TidegaugeError, match="not a OffsetCommitKey"):
        read_key(bytes.fromhex("0001 0009 67"))


def test_kafkas_log_is_loaded():
    """The transactional commit of 9, logged after the commit of 7, counts since its marker is a COMMIT."""
    loader = Loader(1)
    loader.replay(LOGS[1].read_bytes())
    groups = {group.group_id: group for group in loader.loaded(0).groups}
    assert sorted(groups) == ["pend", "sg57308", "tg66156"]
    assert (groups["sg57308"].state, groups["sg57308"].generation) == (GroupState.EMPTY, 3)
    offsets = {name: group.offsets.get(T0) for name, group in groups.items()}
    assert [offsets["tg66156"].offset, offsets["pend"].offset, offsets["sg57308"]] == [9, 7, None]
    assert not any(group.offsets.pending_transactional for group in groups.values())


def test_the_same_story_gives_the_same_bytes():
    """Group rg10712 of __consumer_offsets-0, from its first commit to its deletion, request by request."""
    name, member = "rg10712", "raw-7953af75-7c87-42f4-bd21-ed2f8cf8b3f6"
    kafka = stored_batches(LOGS[0])[3:]
    start_ms = 1795340990000
    broker = Harness(now_ms=start_ms, group_initial_rebalance_delay_ms=500)

    def clock(ms: int) -> None:
        broker.after(1795340000000 + ms - broker.now_ms)

    fields = {
        "group": name,
        "protocols": (Protocol("range", b"m"), Protocol("rr", b"n")),
        "client_id": "raw",
        "requires_known_member_id": True,
        "rebalance_timeout_ms": 10000,
    }
    clock(995780)
    assert broker.committed(broker.commit(1, group=name)) is ErrorCode.NONE
    clock(995783)
    assert broker.committed(broker.commit(1, group=name, group_instance_id="i9")) is ErrorCode.NONE
    clock(995792)
    broker.uuids = [member.removeprefix("raw-")]
    assert broker.joined(broker.join(**fields)).error is ErrorCode.MEMBER_ID_REQUIRED
    parked = broker.join(member, **fields)
    clock(996292)
    assert broker.joined(parked).generation == 1
    clock(996315)
    broker.sync(member, 1, [(member, b"A1")], group=name)
    clock(996319)
    assert broker.joined(broker.join(member, **fields)).generation == 2
    clock(996323)
    broker.sync(member, 2, [(member, b"A1")], group=name)
    clock(996414)
    broker.leave(member, group=name)
    clock(996425)
    assert broker.ask(DeleteGroup(name)).error is ErrorCode.NONE

    offsets = [header.base_offset for path in [LOGS[0]] for header in iterate_headers(path.read_bytes())][3:]
    written = [at(batch, offset) for batch, offset in zip(broker.log, offsets, strict=True)]
    assert [batch.hex() for batch in written] == [batch.hex() for batch in kafka]


def test_the_same_requests_get_the_same_responses():  # noqa: PLR0915 - one script, in its order
    """The errors of Apache Kafka 3.9.1 to the same script, in its order."""
    e = ErrorCode
    broker = Harness(group_initial_rebalance_delay_ms=500)
    fields = {"requires_known_member_id": True, "rebalance_timeout_ms": 10000, "client_id": "raw"}
    two = (Protocol("range", b"m"), Protocol("rr", b"n"))

    def commit(member="", generation=-1, instance=None, metadata="", group="g"):
        fields = {"member_id": member, "generation": generation, "group_instance_id": instance, "metadata": metadata}
        return broker.committed(broker.commit(1, group=group, **fields))

    def join(member="", **changes):
        return broker.join(member, **(fields | changes))

    assert commit("x", 5, group="never") is e.ILLEGAL_GENERATION
    assert broker.heartbeat("x") is e.UNKNOWN_MEMBER_ID
    assert broker.heartbeat("x", group="") is e.INVALID_GROUP_ID
    assert broker.joined(join(session_timeout_ms=100)).error is e.INVALID_SESSION_TIMEOUT
    assert broker.joined(join("zzz")).error is e.UNKNOWN_MEMBER_ID
    assert broker.joined(join(protocols=())).error is e.INCONSISTENT_GROUP_PROTOCOL
    assert commit("x", 5) is e.UNKNOWN_MEMBER_ID  # the failed JoinGroup has created the group
    assert commit() is e.NONE
    assert commit(instance="i9") is e.NONE
    assert commit("x", 3) is e.UNKNOWN_MEMBER_ID
    assert commit(metadata="m" * 4097) is e.OFFSET_METADATA_TOO_LARGE
    first = broker.joined(join(protocols=two))
    assert (first.error, first.generation, first.leader, first.members) == (e.MEMBER_ID_REQUIRED, -1, "", ())
    m1 = first.member_id
    parked = join(m1, protocols=two)
    assert commit() is e.UNKNOWN_MEMBER_ID
    assert broker.heartbeat(m1, 0) is e.REBALANCE_IN_PROGRESS
    assert broker.joined(join(protocols=(Protocol("zzz", b"m"),))).error is e.INCONSISTENT_GROUP_PROTOCOL
    assert broker.joined(join(protocol_type="connect")).error is e.INCONSISTENT_GROUP_PROTOCOL
    broker.after(500)
    joined = broker.joined(parked)
    assert (joined.generation, joined.protocol_type, joined.protocol_name, joined.leader) == (
        1,
        "consumer",
        "range",
        m1,
    )
    assert [member[:2] for member in joined.members] == [(m1, None)]
    assert broker.heartbeat(m1, 1) is e.NONE
    assert broker.heartbeat(m1, 2) is e.ILLEGAL_GENERATION
    assert broker.heartbeat("nobody", 2) is e.UNKNOWN_MEMBER_ID
    assert commit(m1, 1) is e.REBALANCE_IN_PROGRESS
    assert commit() is e.UNKNOWN_MEMBER_ID
    assert broker.synced(broker.sync(m1, 2)).error is e.ILLEGAL_GENERATION
    names = {"protocol_type": "consumer", "protocol_name": "rr"}
    assert broker.synced(broker.sync(m1, 1, **names)).error is e.INCONSISTENT_GROUP_PROTOCOL
    assert broker.synced(broker.sync("no", 2)).error is e.UNKNOWN_MEMBER_ID
    described = broker.ask(DescribeGroup("g"))
    assert (described.error, described.state, described.protocol_type) == (e.NONE, "CompletingRebalance", "consumer")
    assert (described.protocol_name, described.members[0].metadata) == ("", b"")
    synced = broker.synced(broker.sync(m1, 1, [(m1, b"A1")]))
    assert (synced.error, synced.protocol_type, synced.protocol_name, synced.assignment) == (
        e.NONE,
        "consumer",
        "range",
        b"A1",
    )
    assert broker.synced(broker.sync(m1, 1, [(m1, b"ZZ")])).assignment == b"A1"
    again = broker.joined(join(m1, protocols=two))
    assert (again.generation, again.leader) == (2, m1)
    assert broker.joined(join(m1, protocols=two)).generation == 2
    broker.sync(m1, 2, [(m1, b"A1")])
    assert broker.ask(DeleteGroup("g")).error is e.NON_EMPTY_GROUP
    assert broker.ask(DeleteGroup("missing")).error is e.GROUP_ID_NOT_FOUND
    assert broker.ask(OffsetFetch("nogroup", (T0,))).offsets[T0] == (-1, -1, "", e.NONE)
    pending = broker.joined(join(protocols=two)).member_id
    assert broker.heartbeat(pending, 2) is e.UNKNOWN_MEMBER_ID
    assert broker.leave(pending).members[0].error is e.NONE
    assert [member.error for member in broker.leave("q").members] == [e.UNKNOWN_MEMBER_ID]
    assert broker.leave("q", group="nogroup").error is e.NONE
    assert broker.leave(m1).members[0].error is e.NONE
    assert broker.heartbeat(m1, 2) is e.UNKNOWN_MEMBER_ID
    assert broker.ask(DeleteGroup("g")).error is e.NONE


def test_offset_delete_refuses_what_the_members_read():
    broker = Harness()
    ids = broker.stable_group()
    other = TopicPartition("other", 0)
    broker.commit(1, member_id=ids[0], generation=1)
    broker.commit(1, other, member_id=ids[0], generation=1)
    result = broker.ask(OffsetDelete("g", (T0, other)))
    assert result.partitions == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, other: ErrorCode.NONE}
