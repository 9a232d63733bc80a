"""Checks of the labs about loss: a record that only the leader had, and one that a truncation rule took from all."""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.counted import counted
from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Evidence, Placed, StoredRecord, appended, committed, deaths
from tidegauge_lab.labs.model import Finding, no, yes
from tidegauge_lab.scenario.facts import brokers

ORDERS = TopicPartition("orders", 0)
CURED = TopicPartition("cured", 0)


def acknowledged_by_the_leader_alone(evidence: Evidence) -> Iterator[Finding]:
    """Look for a record that only the leader had, and that it truncated when it came back as a follower."""
    truncated = next(_truncations_of_former_leaders(evidence, ORDERS), None)
    alone = _only_at_its_leader(evidence, ORDERS)
    if alone is None and truncated is None:
        yield no(
            "Every record of orders-0 was fetched by a follower before the leader died, or the leader never died",
            "hold both followers, write a record with acks=1, and kill broker 1",
        )
        return
    if truncated is None:
        yield no(
            "No former leader of orders-0 has truncated its log",
            "kill the leader while it alone has the record, write another one, and start it again",
        )
        return
    lost = truncated.new
    yield yes(f"Broker {truncated.broker} had written offset {lost} as the leader, and no follower had fetched it")
    yield yes(f"When it came back it truncated its log from {truncated.old} to {truncated.new}")
    now = _record_at(evidence, ORDERS, lost)
    if now is None:
        yield no(f"Nothing has been written at offset {lost} since", "write another record")
        return
    leader = evidence.partition(ORDERS).leader
    yield yes(f"Offset {lost} is now {now.value!r}, written under leader epoch {now.leader_epoch} by broker {leader}")
    lacking = [one for one in evidence.partition(ORDERS).assigned if now not in evidence.records_of(ORDERS, one)]
    if lacking:
        yield no(f"That record is not yet on {brokers(lacking)}", "start dead brokers, and wait until all are in sync")
        return
    yield yes(
        "All three replicas agree: the cluster is healthy, and the first record of that offset is on none of them"
    )


def truncated_or_not(evidence: Evidence) -> Iterator[Finding]:
    """Look for a committed record that is lost in orders-0, and for one that lived through the same in cured-0."""
    taken = _truncated_below_what_was_committed(evidence, ORDERS)
    if taken is None:
        yield no(
            "No replica of orders-0 has truncated a record that was committed",
            "let both followers fetch the record and the high watermark pass it, keep broker 0 from hearing of that, "
            "and kill the leader",
        )
        return
    yield yes(
        f"Broker {taken.broker} truncated orders-0 from {taken.old} to {taken.new}, its own high watermark, though "
        f"offset {taken.new} was committed: every replica had it"
    )
    now = _record_at(evidence, ORDERS, taken.new)
    if now is None or now.leader_epoch == 0:
        yield no(
            f"Offset {taken.new} of orders-0 is not lost",
            f"kill the new leader before broker {taken.broker} can fetch it again, and write another record",
        )
        return
    yield yes(f"Offset {taken.new} of orders-0 is {now.value!r} now: the committed record is on no replica")
    changes = [one for one in evidence.of("election", CURED) if one.event.get("strategy") == "offline"]
    if len(changes) < 2:
        yield no(
            f"cured-0 has lost {counted(len(changes), 'leader')} so far",
            "do the same with a topic `cured` after a restart with replica.truncation.rule=kip-320",
        )
        return
    before = committed(evidence, CURED, 1)
    if before is None or before.place > changes[0].place:
        yield no("Offset 0 of cured-0 was not committed when its first leader died", "do the same steps as with orders")
        return
    kept = _record_at(evidence, CURED, 0)
    if kept is None or kept.leader_epoch != 0 or _truncated_below_what_was_committed(evidence, CURED) is not None:
        yield no("Offset 0 of cured-0 is lost too", "start the cluster with replica.truncation.rule=kip-320")
        return
    yield yes(
        f"cured-0 lost the same two leaders, and offset 0 is still {kept.value!r} of leader epoch 0: a follower "
        "truncates where epochs diverge, and here none did"
    )


def _truncations_of_former_leaders(evidence: Evidence, at: TopicPartition) -> Iterator[Placed]:
    """Yield truncations of own, uncommitted appends of a former leader."""
    for one in evidence.of("truncation", at):
        own = [
            done for done in appended(evidence, at, 0, one.place) if done.broker == one.broker and done.new > one.new
        ]
        passed = committed(evidence, at, one.new + 1)
        if own and (passed is None or passed.place > one.place or passed.broker != one.broker):
            yield one


def _only_at_its_leader(evidence: Evidence, at: TopicPartition) -> Placed | None:
    """Return the last append that no follower had when its leader died."""
    for died, broker in deaths(evidence):
        own = [one for one in appended(evidence, at, 0, died.place) if one.broker == broker]
        if not own:
            continue
        others = [
            one.new
            for one in evidence.of("log_end_offset", at, cause="FetchResponse")
            if one.place < died.place and one.broker != broker
        ]
        if own[-1].new > max(others, default=0):
            return own[-1]
    return None


def _truncated_below_what_was_committed(evidence: Evidence, at: TopicPartition) -> Placed | None:
    """Return a truncation below an earlier high watermark of a leader."""
    for one in evidence.of("truncation", at):
        passed = committed(evidence, at, one.new + 1)
        if passed is not None and passed.place < one.place:
            return one
    return None


def _record_at(evidence: Evidence, at: TopicPartition, offset: int) -> StoredRecord | None:
    """Return the record at an offset of the leader's log."""
    return next((one for one in evidence.leaders_records(at) if one.offset == offset), None)
