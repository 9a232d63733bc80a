"""The part of the script of ``differential_transactions`` that moves the coordinator to another broker, twice.

Epochs that are exhausted and ids that have not been used for a week take too long to come by, so records that say so
are written to __transaction_state, as an admin client may; the next coordinator loads them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from tests.wire_responses.batches import TIME_MS
from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import produce, produced
from transaction_requests import NOT_YET, TOPIC, Transactional
from transaction_script import FIRST, SECOND, describe

from tidegauge_client.records import NewRecord, encode_batch

STATE_TOPIC = "__transaction_state"
ADMIN = "__admin_client"
PARTITION = {"topic": STATE_TOPIC, "partitions": [0]}
EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT, COMPLETE_ABORT = 0, 1, 2, 4, 5
EXHAUSTED, LAST = 32_766, 32_767
"""The epoch from which on a producer gets a new id, and the one to which only a fence raises."""
FIRST_ID = 700_000
UNKNOWN_ID = 105
TIMEOUT_MS = 30_000


def record(number: int, name: str, epoch: int, status: int, time_ms: int = 0) -> NewRecord:
    """Return a record of __transaction_state, with one partition unless it is over.

    Args:
        number: of the producer id.
        name: the transactional id.
        epoch: of the producer.
        status: the state's number.
        time_ms: of the last change and of the begin; 0: now.
    """
    encoded = name.encode()
    now_ms = time_ms or int(time.time() * 1000)
    topics = struct.pack(">i", 0)
    if status == EMPTY:
        topics = struct.pack(">i", -1)
    elif status in {ONGOING, PREPARE_COMMIT}:
        topics = struct.pack(f">ih{len(TOPIC)}sii", 1, len(TOPIC), TOPIC.encode(), 1, 0)
    value = struct.pack(">hqhib", 0, FIRST_ID + number, epoch, 60_000, status) + topics
    value += struct.pack(">qq", now_ms, -1 if status == EMPTY else now_ms)
    return NewRecord(value, key=struct.pack(f">hh{len(encoded)}s", 0, len(encoded), encoded), timestamp_ms=TIME_MS)


def _write(probe: Probe, *records: NewRecord) -> None:
    """Write records to __transaction_state: an admin client may."""
    request = produce(bytes(encode_batch(list(records))), topic=STATE_TOPIC)
    leader = _leader(probe)
    probe.case(f"Produce of {len(records)} records to an internal topic by a client", leader, 9, request, produced)
    peer = probe.new_peer(leader, ADMIN)
    probe.note(f"Produce of {len(records)} records to an internal topic by an admin client", [
        (one.error_code, one.error_message) for one in produced(peer.ask(9, request))
    ])  # fmt: skip
    peer.close()


def _leader(probe: Probe) -> int:
    [partition] = probe.topic(STATE_TOPIC).partitions
    return int(partition.leader_id)


def _move(probe: Probe) -> int:
    """Have another broker coordinate all transactional ids; return which one did before."""
    [partition] = probe.topic(STATE_TOPIC).partitions
    before = int(partition.leader_id)
    replicas = [*(one for one in partition.replica_nodes if one != before), before]
    items = [{"partition_index": 0, "replicas": replicas}]
    topics = [{"name": STATE_TOPIC, "partitions": items}]
    request = message("AlterPartitionReassignments", timeout_ms=TIMEOUT_MS, topics=topics)
    probe.ask(probe.controller, 0, request)

    def is_ordered() -> bool:
        [found] = probe.topic(STATE_TOPIC).partitions
        return bool(list(found.replica_nodes) == replicas)

    probe.wait_for(is_ordered, "the order of the replicas has changed")
    elect = message("ElectLeaders", election_type=0, timeout_ms=TIMEOUT_MS, topic_partitions=[PARTITION])
    probe.ask(probe.controller, 2, elect)
    probe.wait_for(lambda: _leader(probe) == replicas[0], "another broker leads")
    return before


def _state(probe: Probe, name: str) -> tuple[int, str]:
    """Return the error and the state of DescribeTransactions at the coordinator."""
    request = message("DescribeTransactions", transactional_ids=[name])
    [found] = probe.ask(_leader(probe), 0, request).transaction_states
    return found.error_code, found.transaction_state


def _granted(probe: Probe, name: str, ask: Callable[[], Any], at: int) -> tuple[int, int]:
    """Ask for a producer id, again while the broker has no block of ids; note and return the granted id."""
    found = probe.again(lambda: probe.ask(at, 4, ask()), *NOT_YET)
    probe.note(f"InitProducerId: {name}", found)
    return found.producer_id, found.producer_epoch


def failovers(probe: Probe) -> None:
    """Ask the next coordinator about ids: it knows what their last records say, and no more."""
    probe.say("another coordinator")
    names = ("moved-open", "moved-bumped", "moved-committed")
    opened, bumped, committed = (Transactional(probe, name) for name in names)
    for one in (opened, bumped, committed):
        one.begin()
    opened.added(FIRST)
    opened.written(2)
    old_epoch = bumped.epoch
    probe.case("InitProducerId: expects its epoch, before the move", bumped.coordinator, 4, bumped.expecting())
    committed.added(SECOND)
    committed.written(1, SECOND)
    committed.ended()
    _write(
        probe,
        record(0, "last-epoch", EXHAUSTED - 1, EMPTY),
        record(1, "exhausted", EXHAUSTED, EMPTY),
        record(2, "exhausted-expecting", EXHAUSTED, COMPLETE_COMMIT),
        record(3, "exhausted-open", EXHAUSTED, ONGOING),
        record(4, "fenced", LAST, COMPLETE_ABORT),
        record(5, "decided", 0, PREPARE_COMMIT),
    )
    before = _move(probe)
    probe.wait_for(lambda: _state(probe, "decided") == (0, "CompleteCommit"), "what was decided is complete")
    for version, request in (
        (4, opened.init()),
        (3, opened.add(SECOND)),
        (3, opened.add_offsets("g")),
        (3, opened.end()),
    ):
        kind = type(request).__name__
        probe.case(f"at the coordinator before: {kind}, v{version}", before, version, request)
    for one in (opened, bumped, committed):
        one.coordinator = _leader(probe)
        describe(probe, f"after the move: {one.id}", one)
    at = opened.coordinator
    probe.case("after the move: InitProducerId repeated", at, 4, bumped.expecting(epoch=old_epoch))
    probe.case("after the move: InitProducerId", at, 4, bumped.expecting(epoch=old_epoch + 1))
    opened.added(SECOND)
    opened.written(1, SECOND)
    opened.ended()
    describe(probe, "after the move: committed", opened)
    _exhausted(probe, at)


def _exhausted(probe: Probe, at: int) -> None:
    """Exhaust epochs: 32766 is the last that a producer gets; then comes a new producer id."""
    last = _seeded(probe, "last-epoch", 0, EXHAUSTED - 1)
    last.producer_id, last.epoch = _granted(probe, "raises to the last epoch", last.init, at)
    last.added(FIRST)
    last.written(1)
    last.ended()
    last.producer_id, last.epoch = _granted(probe, "after the last epoch", last.init, at)
    describe(probe, "with a new producer id", last)
    one = _seeded(probe, "exhausted", 1, EXHAUSTED)
    _granted(probe, "exhausted, expects nothing", one.init, at)
    probe.case("InitProducerId: exhausted, a repeat that had expected nothing", at, 4, one.expecting())
    other = _seeded(probe, "exhausted-expecting", 2, EXHAUSTED)
    probe.case("InitProducerId: exhausted, expects the epoch before", at, 4, other.expecting(epoch=EXHAUSTED - 1))
    _granted(probe, "exhausted, expects its epoch", other.expecting, at)
    _granted(probe, "exhausted, repeated", other.expecting, at)
    probe.case("InitProducerId: of the id before, not exhausted", at, 4, other.expecting(epoch=EXHAUSTED - 1))
    opened = _seeded(probe, "exhausted-open", 3, EXHAUSTED)
    probe.case("InitProducerId: exhausted, with an open transaction", at, 4, opened.init())
    opened.completed()
    describe(probe, "fenced in epoch 32767", opened)
    probe.case("EndTxn: of a producer that was fenced in epoch 32767", at, 3, opened.end())
    probe.case("InitProducerId: expects 32766 where 32767 is", at, 4, opened.expecting())
    _granted(probe, "exhausted, after its transaction", opened.init, at)
    fenced = _seeded(probe, "fenced", 4, LAST)
    _granted(probe, "32767, expects that", fenced.expecting, at)


def _seeded(probe: Probe, name: str, number: int, epoch: int) -> Transactional:
    one = Transactional(probe, name)
    one.producer_id, one.epoch = FIRST_ID + number, epoch
    return one


def expirations(probe: Probe) -> None:
    """Let an id expire that was not used for transactional.id.expiration.ms: it is forgotten, with a tombstone."""
    probe.say("ids expire")
    _write(probe, record(6, "expired", 3, COMPLETE_COMMIT, TIME_MS), record(7, "young", 3, COMPLETE_ABORT))
    _move(probe)
    probe.wait_for(lambda: _state(probe, "expired")[0] == UNKNOWN_ID, "the id has expired")
    expired, young = (_seeded(probe, name, number, 3) for name, number in (("expired", 6), ("young", 7)))
    describe(probe, "expired, and young", expired, young)
    at = expired.coordinator
    for version, request in ((3, expired.add(FIRST)), (3, expired.add_offsets("g")), (3, expired.end())):
        probe.case(f"of an expired id: {type(request).__name__}", at, version, request)
    _granted(probe, "of an expired id, expects its epoch", expired.expecting, at)
    _granted(probe, "of an expired id, expects nothing", expired.init, at)
    probe.case("InitProducerId: of a young id", at, 4, young.expecting())


PARTS: tuple[Callable[[Probe], None], ...] = (failovers, expirations)
"""In their order."""
