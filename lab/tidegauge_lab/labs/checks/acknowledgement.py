"""Checks of the labs about acknowledgement: the replicas waited for, refusals, and when a record can be read."""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Evidence, Placed, appended, committed, deaths, isr_changes, seconds_between
from tidegauge_lab.labs.model import Finding, no, yes
from tidegauge_lab.scenario.facts import brokers, numbers

ORDERS = TopicPartition("orders", 0)


def dead_follower(evidence: Evidence) -> Iterator[Finding]:
    """Look for a record that was written between a follower's death and its removal from the ISR."""
    changes = isr_changes(evidence, ORDERS)
    died = [(event, broker) for event, broker in deaths(evidence) if _was_follower(evidence, broker, event, changes)]
    if not died:
        yield no(
            "No follower of orders-0 has died or been paused while it was in the ISR",
            "kill broker 2, and write a record at once",
        )
        return
    event, broker = died[-1]
    yield yes(f"Broker {broker} went silent while it was an in-sync follower of orders-0")
    removal = next((one for one, isr in changes if one.place > event.place and broker not in isr), None)
    if removal is None:
        yield no(
            f"Broker {broker} is still in the ISR {_isr(evidence)}",
            "wait until its membership of the cluster has ended",
        )
        return
    written = next(appended(evidence, ORDERS, event.place, removal.place), None)
    if written is None:
        yield no(
            f"No record was written in the {seconds_between(event, removal)} in which broker {broker} was dead and "
            "still in the ISR",
            "start it, wait until it is in sync, and write a record right after the next kill",
        )
        return
    last = written.new - 1
    yield yes(f"Offset {last} was written {seconds_between(event, written)} later, while the ISR still had {broker}")
    passed = committed(evidence, ORDERS, written.new)
    if passed is None:
        yield no(f"The high watermark has not passed offset {last} yet", "look at `tidegauge explain orders-0`")
        return
    yield yes(
        f"The high watermark passed it {seconds_between(written, passed)} after it was written, when the ISR had "
        f"become {_ids(removal)}"
    )
    back = next((one for one, isr in changes if one.place > removal.place and broker in isr), None)
    later = next(appended(evidence, ORDERS, removal.place, back.place if back else len(evidence.events)), None)
    if later is None:
        yield no(f"No record was written without broker {broker} in the ISR", "write one more")
        return
    quick = committed(evidence, ORDERS, later.new)
    if quick is None:
        yield no(f"Offset {later.new - 1} is not committed", "look at `tidegauge explain orders-0`")
        return
    yield yes(
        f"Offset {later.new - 1}, written when the dead broker was out of the ISR, was committed after "
        f"{seconds_between(later, quick)}: all means the in-sync replicas"
    )


def too_few_in_sync(evidence: Evidence) -> Iterator[Finding]:
    """Look for a record that the shrinking ISR caught without an acknowledgement, and for none appended after that."""
    changes = isr_changes(evidence, ORDERS)
    sizes = [(one, len(isr)) for one, isr in changes]
    shrunk = next((one for one, size in sizes if size == 1), None)
    if not any(size == 2 for _, size in sizes):
        yield no("All three replicas of orders-0 have been in the ISR all the time", "kill broker 2")
        return
    with_two = next(one for one, size in sizes if size == 2)
    taken = [
        one
        for one in appended(evidence, ORDERS, with_two.place, shrunk.place if shrunk else len(evidence.events))
        if (done := committed(evidence, ORDERS, one.new)) is not None and (shrunk is None or done.place < shrunk.place)
    ]
    if not taken:
        yield no("No record was written and committed with two replicas in the ISR", "write one with acks=all")
        return
    yield yes(f"With two of three in sync, offset {taken[0].new - 1} was acknowledged: min.insync.replicas=2 is kept")
    if shrunk is None:
        yield no(
            f"The ISR is still {_isr(evidence)}", "hold the other follower, write a record, then kill that follower"
        )
        return
    stuck = [
        one
        for one in appended(evidence, ORDERS, with_two.place, shrunk.place)
        if (done := committed(evidence, ORDERS, one.new)) is None or done.place > shrunk.place
    ]
    if not stuck:
        yield no(
            "When the ISR shrank to one replica, every record was committed already: none was caught in between",
            "hold the second follower's fetches before you write, and kill it while the record waits",
        )
        return
    offset = stuck[-1].new - 1
    yield yes(
        f"Offset {offset} was appended while two were in sync, and the ISR became {_ids(shrunk)} before it was "
        "committed: the producer got an error, and the record is in the log"
    )
    grown = next((one for one, size in sizes if one.place > shrunk.place and size > 1), None)
    later = next(appended(evidence, ORDERS, shrunk.place, grown.place if grown else len(evidence.events)), None)
    if later is not None:
        yield no(
            f"Offset {later.new - 1} was appended with one replica in sync, so it was not written with acks=all",
            "stop this lab, start it again, and write all records with acks=all",
        )
        return
    yield yes(
        f"With {_ids(shrunk)} alone in sync nothing was appended: acks=all is refused before the append, with "
        "NOT_ENOUGH_REPLICAS"
    )


def one_round_late(evidence: Evidence) -> Iterator[Finding]:
    """Look for a record that every replica has, and no consumer may read yet."""
    facts = evidence.partition(ORDERS)
    leader = facts.replicas.get(facts.leader)
    if leader is None or leader.leo == 0:
        yield no("orders-0 is empty", "hold both followers, and write a record with acks=1")
        return
    last = leader.leo - 1
    yield yes(f"Offset {last} is in the log of the leader, broker {facts.leader}: log end offset {leader.leo}")
    if leader.hw > last:
        yield no(
            f"The high watermark is {leader.hw} already, so consumers read offset {last}",
            "hold both followers, write another record with acks=1, and let each follower do one round",
        )
        return
    lacking = [broker for broker in facts.assigned if _leo(evidence, broker) < leader.leo]
    if lacking:
        yield no(
            f"Offset {last} is not yet on {brokers(lacking)}, so the high watermark is {leader.hw}",
            "let each held follower do one round",
        )
        return
    free = [one for one in facts.assigned if one != facts.leader and one not in evidence.held.get(ORDERS, ())]
    if free:
        yield no(
            f"The followers on {brokers(free)} are not held, so the high watermark is about to move",
            "hold all followers",
        )
        return
    yield yes(
        f"Every replica has offset {last}, and the leader does not know: it has seen no fetch from offset {leader.leo}"
    )
    yield yes(f"The high watermark is {leader.hw}, so no consumer can read offset {last}")


def slow_follower(evidence: Evidence) -> Iterator[Finding]:
    """Look for a live follower that held a record back until the leader took it out of the ISR, and that came back."""
    changes = isr_changes(evidence, ORDERS)
    shrunk = next(evidence.of("isr", ORDERS, state="pending-shrink", cause="IsrExpiration"), None)
    if shrunk is None:
        yield no(f"The leader has taken no follower out of the ISR {_isr(evidence)}", _HOLD)
        return
    out = frozenset(shrunk.event.get("old", ())) - frozenset(shrunk.event.get("new", ()))
    slow = min(out)
    if any(broker == slow for _, broker in deaths(evidence)):
        yield no(f"Broker {slow} was dead or paused, and not slow", "start this lab again, and only hold its fetches")
        return
    yield yes(f"Broker {slow} was alive all the time, and broker {shrunk.broker}, the leader, took it out of the ISR")
    waited = [
        (one, done)
        for one in appended(evidence, ORDERS, 0, shrunk.place)
        if (done := committed(evidence, ORDERS, one.new)) is not None and done.place > shrunk.place
    ]
    if not waited:
        yield no("No record waited for it", f"start this lab again. {_HOLD.capitalize()}")
        return
    written, done = waited[0]
    yield yes(
        f"Offset {written.new - 1} was in the leader's log, and the high watermark was below it for "
        f"{seconds_between(written, done)}"
    )
    after = next(appended(evidence, ORDERS, done.place, len(evidence.events)), None)
    quick = None if after is None else committed(evidence, ORDERS, after.new)
    if after is None or quick is None:
        yield no(f"No record was written and committed without broker {slow}", "write another one")
        return
    yield yes(
        f"Offset {after.new - 1}, written without broker {slow} in the ISR, was committed after "
        f"{seconds_between(after, quick)}"
    )
    if not any(one.place > done.place and slow in isr for one, isr in changes):
        yield no(
            f"Broker {slow} is not back in the ISR {_isr(evidence)}",
            "release its fetches, and wait until it is in sync",
        )
        return
    yield yes(f"Broker {slow} is back in the ISR by itself: it fetched up to the leader's log end offset")


_HOLD = "hold the fetches of broker 2 of orders-0, and write a record with acks=all"


def _was_follower(evidence: Evidence, broker: int, died: Placed, changes: list[tuple[Placed, frozenset[int]]]) -> bool:
    """Return whether a broker died as a follower in the ISR."""
    isr = next((isr for one, isr in reversed(changes) if one.place < died.place), frozenset[int]())
    leaders = [one.event.get("leader") for one in evidence.of("election", ORDERS) if one.place < died.place]
    return broker in isr and bool(leaders) and leaders[-1] != broker


def _leo(evidence: Evidence, broker: int) -> int:
    replica = evidence.partition(ORDERS).replicas.get(broker)
    return -1 if replica is None else replica.leo


def _ids(change: Placed) -> str:
    return numbers(tuple(change.event.get("new", ())))


def _isr(evidence: Evidence) -> str:
    return numbers(evidence.partition(ORDERS).isr)
