"""The file ``quorum-state``: the epoch, leader and vote that a node of a quorum keeps, as one line of JSON.

Version 0 is written under kraft.version 0 and names the voters, but not the directory of the vote; version 1 is written
under kraft.version 1. -1 stands for no leader and for no vote, the zero UUID for no directory.
Source: ``org.apache.kafka.raft.FileQuorumStateStore``; ``QuorumStateData``; KIP-595, KIP-853.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge_controller.raft.values import LOWEST_KRAFT_VERSION, VOTERS_IN_LOG, ElectionState, ReplicaKey

FILE_NAME = "quorum-state"
_NONE = -1
_INT_MAX = 2**31 - 1


class CorruptQuorumState(Exception):
    """The file can't be understood; the text says why."""


class QuorumStateFile(NamedTuple):
    """The content of the file.

    Attributes:
        state: epoch, leader and vote.
        version: the version of the file, 0 or 1.
        voters: the ids of the voters in a file of version 0.
    """

    state: ElectionState
    version: int
    voters: tuple[int, ...] = ()


def encode_quorum_state(state: ElectionState, kraft_version: int, voters: Iterable[int] = ()) -> bytes:
    """Return the file's bytes.

    Args:
        state: epoch, leader and vote.
        kraft_version: the kraft.version that the node knows at the moment; it decides on the file's version.
        voters: the ids of the static voters, written under kraft.version 0 only.
    """
    leader_id = _NONE if state.leader_id is None else state.leader_id
    voted_id = _NONE if state.voted is None else state.voted.id
    fields: dict[str, object] = {"leaderId": leader_id, "leaderEpoch": state.epoch, "votedId": voted_id}
    if kraft_version == LOWEST_KRAFT_VERSION:
        listed = [{"voterId": voter} for voter in voters]
        fields = {"clusterId": "", **fields, "appliedOffset": 0, "currentVoters": listed}
    else:
        directory = None if state.voted is None else state.voted.directory_id
        fields["votedDirectoryId"] = uuid_text(directory or NIL_UUID)
    fields["data_version"] = min(kraft_version, VOTERS_IN_LOG)
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumStateFile:
    """Return the content of the file.

    Raises:
        CorruptQuorumState: it is no JSON object, has a version other than 0 and 1, or lacks or misuses a field.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise CorruptQuorumState(f"it is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise CorruptQuorumState("it is not a JSON object")
    version = _number(found, "data_version", least=0)
    if version not in {LOWEST_KRAFT_VERSION, VOTERS_IN_LOG}:
        raise CorruptQuorumState(f"data_version is {version}, known are {LOWEST_KRAFT_VERSION} and {VOTERS_IN_LOG}")
    leader_id = _number(found, "leaderId")
    voted_id = _number(found, "votedId")
    voted = None
    voters: tuple[int, ...] = ()
    if version == VOTERS_IN_LOG:
        directory = _directory(found)
        if voted_id == _NONE and directory is not None:
            raise CorruptQuorumState("votedDirectoryId names a directory, but votedId is -1")
        voted = None if voted_id == _NONE else ReplicaKey(voted_id, directory)
    else:
        voters = _voters(found)
        voted = None if voted_id == _NONE else ReplicaKey(voted_id)
    epoch = _number(found, "leaderEpoch", least=0)
    return QuorumStateFile(ElectionState(epoch, None if leader_id == _NONE else leader_id, voted), version, voters)


def _number(found: Mapping[str, Any], name: str, least: int = _NONE) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _INT_MAX:
        raise CorruptQuorumState(f"{name} must be a number from {least} to {_INT_MAX}, not {value!r}")
    return value


def _directory(found: Mapping[str, Any]) -> bytes | None:
    text = found.get("votedDirectoryId")
    try:
        directory = uuid_of(text if isinstance(text, str) else "")
    except ValueError as problem:
        raise CorruptQuorumState(f"votedDirectoryId is {text!r}: {problem}") from None
    return None if directory == NIL_UUID else directory


def _voters(found: Mapping[str, Any]) -> tuple[int, ...]:
    rows = found.get("currentVoters")
    if rows is None:
        return ()
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise CorruptQuorumState(f"currentVoters must be a list of objects, not {rows!r}")
    return tuple(_number(row, "voterId", least=0) for row in rows)
