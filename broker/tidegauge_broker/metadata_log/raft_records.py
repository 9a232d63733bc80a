"""Converts between values of the Raft node (``tidegauge_controller.raft.values``) and records of the metadata log."""

from __future__ import annotations

from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.kraft.control_messages import voters_record
from tidegauge.kafka.kraft.control_messages.kraft_version_record import KRaftVersionRecord as KRaftVersionMessage
from tidegauge.kafka.kraft.control_messages.leader_change_message import LeaderChangeMessage
from tidegauge.kafka.kraft.control_messages.leader_change_message import Voter as ChangeVoter
from tidegauge_broker.metadata_log.batches import MetadataBatch, control_batch, data_batch
from tidegauge_controller.raft.values import (
    Batch,
    ControlRecord,
    Endpoint,
    KRaftVersionRecord,
    LeaderChange,
    ReplicaKey,
    Voter,
    VoterSet,
    VotersRecord,
)


def encode_batch(batch: Batch) -> bytes:
    """Return a batch's bytes; the payload of data is record values."""
    if batch.control:
        messages = [to_message(record) for record in batch.control]
        return control_batch(messages, batch.base_offset, batch.epoch, batch.timestamp_ms)
    assert isinstance(batch.payload, (list, tuple))
    return data_batch(batch.payload, batch.base_offset, batch.epoch, batch.timestamp_ms)


def to_batch(read: MetadataBatch) -> Batch:
    """Return a batch in the Raft node's form, with record values.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, a control batch has a record that belongs into snapshots.
    """
    header = read.header
    control = tuple(from_message(message) for message in read.control)
    payload = None if header.is_control else read.values
    return Batch(header.base_offset, header.next_offset, header.leader_epoch, control, payload, header.max_timestamp_ms)


def to_message(record: ControlRecord) -> Any:
    """Return the message of a control record.

    A LeaderChange is written in version 0, without directories, under every kraft.version, as Kafka 4.3.1 does: its
    ``ControlRecordUtils.deserializeLeaderChangeMessage`` reads each as version 0, regardless of the record's version.
    """
    match record:
        case LeaderChange():
            voters = [ChangeVoter(key.id) for key in record.voters]
            granting = [ChangeVoter(key.id) for key in record.granting_voters]
            return LeaderChangeMessage(leader_id=record.leader_id, voters=voters, granting_voters=granting)
        case KRaftVersionRecord():
            return KRaftVersionMessage(kraft_version=record.version)
        case VotersRecord():
            return voters_message(record.voter_set)


def voters_message(voter_set: VoterSet) -> voters_record.VotersRecord:
    """Return a voter set's message, in the order of voter ids."""
    return voters_record.VotersRecord(voters=[_voter_message(voter) for voter in voter_set.voters.values()])


def _voter_message(voter: Voter) -> voters_record.Voter:
    return voters_record.Voter(
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id or NIL_UUID,
        endpoints=[voters_record.Endpoint(*endpoint) for endpoint in voter.endpoints],
        kraft_version_feature=voters_record.KRaftVersionFeature(voter.lowest_version, voter.highest_version),
    )


def from_message(message: Any) -> ControlRecord:
    """Return the control record of a message.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the message is the header or footer of a snapshot, or names a voter twice.
    """
    match message:
        case LeaderChangeMessage():
            return LeaderChange(message.leader_id, _keys(message.voters), _keys(message.granting_voters))
        case KRaftVersionMessage():
            return KRaftVersionRecord(message.kraft_version)
        case voters_record.VotersRecord():
            voter_set = VoterSet.of(_voter(voter) for voter in message.voters)
            if len(voter_set) != len(message.voters):
                raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "A VotersRecord names a voter twice")
            return VotersRecord(voter_set)
        case _:
            text = f"A {type(message).__name__} is in the log; it belongs into snapshots"
            raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, text)


def _keys(voters: Any) -> tuple[ReplicaKey, ...]:
    return tuple(ReplicaKey(voter.voter_id, _directory(voter.voter_directory_id)) for voter in voters)


def _directory(uuid: bytes) -> bytes | None:
    return None if uuid == NIL_UUID else bytes(uuid)


def _voter(voter: voters_record.Voter) -> Voter:
    feature = voter.kraft_version_feature
    assert feature is not None  # not nullable on the wire
    return Voter(
        ReplicaKey(voter.voter_id, _directory(voter.voter_directory_id)),
        tuple(Endpoint(one.name, one.host, one.port) for one in voter.endpoints),
        feature.min_supported_version,
        feature.max_supported_version,
    )
