"""Input, plan and output of ``reassign-partitions``: Kafka's files, moves and sentences. Pure.

A *move* of a partition has sources, the brokers that hold its replicas now, and destinations, the brokers that get one;
the throttles follow from it.

Source: ReassignPartitionsCommand (KIP-455, KIP-569).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tidegauge.assignment import assign_replicas
from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.metadata import BrokerInfo
from tidegauge_client.ongoing_reassignment import OngoingReassignment

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER_THROTTLES = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)
"""Settings that --verify and --cancel remove from brokers, also the throttle of moves between log directories."""
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
RUN_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
ANY_DIRECTORY = "any"
_INT32_MAX = 2**31 - 1

Replicas = Mapping[TopicPartition, Sequence[int]]


class Move(NamedTuple):
    """A partition's replicas, and the brokers that get new ones."""

    sources: frozenset[int]
    destinations: frozenset[int]


class State(NamedTuple):
    """The progress of a partition."""

    current: tuple[int, ...]
    target: tuple[int, ...]
    done: bool


# Files


def _document(text: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise _refused(f"{what} is not valid JSON: {problem}") from None
    if not isinstance(document, dict):
        raise _refused(f"{what} is no JSON object")
    version = document.get("version", 1)
    if version != 1:
        raise _refused(f"Not supported version field value {version}")
    return document


def _refused(text: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_REQUEST, text)


def parse_reassignment(text: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Read the targets in a reassignment file.

    Raises:
        TidegaugeError: INVALID_REQUEST, in Kafka's words if it has some.
    """
    entries = _document(text, "The reassignment").get("partitions")
    if not isinstance(entries, list) or not entries:
        raise _refused("Partition reassignment list cannot be empty")
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    twice: list[TopicPartition] = []
    for entry in entries:
        at, replicas = _entry(entry)
        if at in targets:
            twice.append(at)
        targets[at] = replicas
    if twice:
        raise _refused(f"Partition reassignment contains duplicate topic partitions: {_joined(twice)}")
    empty = [at for at, replicas in targets.items() if not replicas]
    if empty:
        raise _refused(f"Partition replica list cannot be empty: {_joined(empty)}")
    doubled = {
        at: sorted({replica for replica in replicas if replicas.count(replica) > 1})
        for at, replicas in targets.items()
        if len(set(replicas)) != len(replicas)
    }
    if doubled:
        shown = ". ".join(f"{at} contains multiple entries for {_joined(ids)}" for at, ids in doubled.items())
        raise _refused(f"Partition replica lists may not contain duplicate entries: {shown}")
    return targets


def _entry(entry: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    match entry:
        case {"topic": str(topic), "partition": int(partition), "replicas": list(replicas)} if all(
            isinstance(number, int) and abs(number) <= _INT32_MAX for number in (partition, *replicas)
        ):
            directories = entry.get("log_dirs", [ANY_DIRECTORY] * len(replicas))
            if not isinstance(directories, list) or len(directories) != len(replicas):
                raise _refused(
                    f"Size of replicas list {replicas} is different from size of log dirs list {directories} for "
                    f"partition {topic}-{partition}"
                )
            if set(directories) - {ANY_DIRECTORY}:
                raise _refused("Moves between the log directories of a broker are not supported: log_dirs must be any")
            return TopicPartition(topic, partition), tuple(replicas)
    raise _refused(f"{json.dumps(entry)} does not name topic, partition and replicas")


def parse_topics(text: bytes) -> list[str]:
    """Read the topics in a file of topics to move.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    match _document(text, "The list of topics").get("topics"):
        case list(entries) if all(isinstance(one, dict) and isinstance(one.get("topic"), str) for one in entries):
            topics = [entry["topic"] for entry in entries]
        case _:
            raise _refused('The list of topics must have the form {"topics": [{"topic": "t"}], "version": 1}')
    twice = sorted({topic for topic in topics if topics.count(topic) > 1})
    if twice:
        raise _refused(f"List of topics to reassign contains duplicate entries: {_joined(twice)}")
    return topics


def parse_broker_list(text: str) -> list[int]:
    """Read a list such as ``1,2,3``.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    try:
        ids = [int(part) for part in text.split(",")]
    except ValueError:
        raise _refused(f"The broker list {text!r} must be ids with commas between them") from None
    twice = sorted({one for one in ids if ids.count(one) > 1})
    if twice:
        raise _refused(f"Broker list contains duplicate entries: {_joined(twice)}")
    return ids


def document_of(replicas: Replicas) -> dict[str, Any]:
    """Return replicas in the form of a reassignment file."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "replicas": list(members),
                "log_dirs": [ANY_DIRECTORY] * len(members),
            }
            for at, members in sorted(replicas.items())
        ],
    }


def compact(document: Mapping[str, Any]) -> str:
    """Return a document on one line, as Kafka prints it."""
    return json.dumps(document, separators=(",", ":"))


# Plans


def propose(
    current: Replicas, brokers: Sequence[BrokerInfo], numbers: Iterable[tuple[int, int]], *, rack_aware: bool
) -> dict[TopicPartition, tuple[int, ...]]:
    """Propose replicas for all partitions of these topics as if they were created on these brokers now.

    Args:
        current: the current replicas, which give the counts.
        brokers: the brokers to use.
        numbers: start and shift of Kafka's algorithm, a pair for each topic.
        rack_aware: whether racks count.

    Raises:
        TidegaugeError: INVALID_REPLICATION_FACTOR, or INVALID_REQUEST: not all brokers have racks.
    """
    racks = {broker.rack for broker in brokers}
    if rack_aware and None in racks and len(racks) > 1:
        raise _refused(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    endpoints = [
        Endpoint(broker.id, broker.host, broker.port, broker.rack if rack_aware else None)
        for broker in sorted(brokers, key=lambda broker: broker.id)
    ]
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic, (start, shift) in zip(sorted({at.topic for at in current}), numbers, strict=False):
        partitions = sorted(at for at in current if at.topic == topic)
        factor = len(current[partitions[0]])
        planned = assign_replicas(endpoints, len(partitions), factor, start=start, shift=shift)
        proposed.update(zip(partitions, planned.values(), strict=True))
    return proposed


def moves_of(
    ongoing: Mapping[TopicPartition, OngoingReassignment], current: Replicas, targets: Replicas
) -> dict[TopicPartition, Move]:
    """Return the reassignments in progress and the proposed ones, as moves."""
    moves = {
        at: Move(frozenset(one.replicas) - frozenset(one.adding_replicas), frozenset(one.adding_replicas))
        for at, one in ongoing.items()
    }
    for at, target in targets.items():
        sources = moves[at].sources if at in moves else frozenset(current[at])
        moves[at] = Move(sources, frozenset(target) - sources)
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, dict[str, str]]:
    """Return the throttles of topics: sources for leaders, destinations for followers."""
    found: dict[str, dict[str, str]] = {}
    for topic in sorted({at.topic for at in moves}):
        own = [(at.partition, move) for at, move in sorted(moves.items()) if at.topic == topic]
        found[topic] = {
            LEADER_REPLICAS: _joined(sorted(f"{partition}:{one}" for partition, move in own for one in move.sources)),
            FOLLOWER_REPLICAS: _joined(
                sorted(f"{partition}:{one}" for partition, move in own for one in move.destinations)
            ),
        }
    return found


def moving_brokers(moves: Mapping[TopicPartition, Move]) -> list[int]:
    """Return all brokers that take part in a move."""
    return sorted({one for move in moves.values() for one in (*move.sources, *move.destinations)})


# Sentences


def _joined(parts: Iterable[object]) -> str:
    return ",".join(str(part) for part in parts)


def plural(count: int) -> str:
    """Return Kafka's plural ``s``, or nothing for one."""
    return "" if count == 1 else "s"


def state_line(at: TopicPartition, state: State) -> str:
    """Return what ``--verify`` prints about a partition."""
    if not state.done:
        return f"Reassignment of partition {at} is still in progress."
    if state.current == state.target:
        return f"Reassignment of partition {at} is completed."
    return (
        f"There is no active reassignment of partition {at}, but replica set is {_joined(state.current)} rather than "
        f"{_joined(state.target)}."
    )


def ongoing_line(at: TopicPartition, one: OngoingReassignment) -> str:
    """Return what ``--list`` prints about a partition."""
    adding = f" adding: {_joined(one.adding_replicas)}." if one.adding_replicas else ""
    removing = f" removing: {_joined(one.removing_replicas)}." if one.removing_replicas else ""
    return f"{at}: replicas: {_joined(one.replicas)}.{adding}{removing}"
