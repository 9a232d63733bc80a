"""quorum-state: Kafka 4.3.1's files are read and written byte for byte (FileQuorumStateStore)."""

import json

import pytest
from tests.unit.metadata_log.kafka_files import kafka_files

from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge_broker.metadata_log.quorum_state import (
    CorruptQuorumState,
    QuorumStateFile,
    decode_quorum_state,
    encode_quorum_state,
)
from tidegauge_controller.raft.values import ElectionState, ReplicaKey

FILES = sorted(name for name in kafka_files() if name.startswith("quorum-state/"))


@pytest.mark.parametrize("name", FILES)
def test_kafkas_files_are_written_byte_for_byte(name: str):
    data = kafka_files()[name].data
    found = decode_quorum_state(data)
    assert encode_quorum_state(found.state, found.version, found.voters) == data


def test_a_vote_has_the_directory_of_the_replica_in_version_1():
    """KIP-853: a vote is given to a node and a directory."""
    voted = ReplicaKey(100, uuid_of("ERERERERQRGRERERERERAA"))
    assert decode_quorum_state(kafka_files()["quorum-state/node-102.json"].data) == QuorumStateFile(
        ElectionState(6, 100, voted), 1
    )


def test_version_0_names_the_static_voters():
    """KIP-595: QuorumStateData version 0 with three static voters."""
    text = (
        '{"clusterId":"","leaderId":-1,"leaderEpoch":3,"votedId":2,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )
    state = ElectionState(3, None, ReplicaKey(2))
    assert encode_quorum_state(state, 0, [1, 2, 3]).decode() == text
    assert decode_quorum_state(text.encode()) == QuorumStateFile(state, 0, (1, 2, 3))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data_version": 2}, "data_version is 2"),
        ({"data_version": None}, "data_version must be a number"),
        ({"leaderEpoch": -1}, "leaderEpoch must be a number from 0"),
        ({"leaderEpoch": 2**31}, "leaderEpoch must be a number"),
        ({"votedId": True}, "votedId must be a number"),
        ({"votedDirectoryId": "short"}, "a UUID has 22 characters"),
        ({"votedId": -1}, "votedDirectoryId names a directory"),
        ({"data_version": 0, "currentVoters": [1]}, "currentVoters must be a list of objects"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(change: dict[str, object], reason: str):
    fields = json.loads(kafka_files()["quorum-state/node-102.json"].data) | change
    with pytest.raises(CorruptQuorumState, match=reason):
        decode_quorum_state(json.dumps(fields).encode())


@pytest.mark.parametrize("data", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_object_are_refused(data: bytes):
    with pytest.raises(CorruptQuorumState, match="it is not"):
        decode_quorum_state(data)
