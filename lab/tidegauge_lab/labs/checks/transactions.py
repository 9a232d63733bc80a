"""Checks of the labs about transactions: the epoch that fences a producer, and the last stable offset."""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.counted import counted
from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Evidence, Placed, appended, seconds_between
from tidegauge_lab.labs.model import Finding, no, yes

ORDERS = TopicPartition("orders", 0)


def fenced(evidence: Evidence) -> Iterator[Finding]:
    """Look for a transaction that a newer producer of the same id aborted, and for one that the newer one committed."""
    begun = list(evidence.of("transaction", None, new="Ongoing"))
    if not begun:
        yield no("No transaction has been begun", "write one record in a transaction, and leave it open")
        return
    old = begun[0]
    name = old.event.get("transactional_id")
    yield yes(f"A producer of {name} began a transaction in producer epoch {_epoch(old)}")
    aborted = next(
        (one for one in _of(evidence, name) if one.place > old.place and one.event.get("new") == "PrepareAbort"), None
    )
    if aborted is None:
        yield no("No other producer has taken its place", "start a second producer with the same transactional.id")
        return
    if _epoch(aborted) <= _epoch(old):
        yield no("It aborted its transaction itself", "leave it open, and start a second producer with the same id")
        return
    yield yes(
        f"Another producer of {name} raised the epoch to {_epoch(aborted)}, and that aborted the open transaction"
    )
    done = [
        one
        for one in _of(evidence, name)
        if one.place > aborted.place and one.event.get("new") == "CompleteCommit" and _epoch(one) > _epoch(old)
    ]
    if not done:
        yield no("The newer producer has not committed anything", "commit a transaction with it")
        return
    yield yes(f"The newer producer committed in epoch {_epoch(done[-1])}")
    late = [one for one in _of(evidence, name) if one.place > aborted.place and _epoch(one) <= _epoch(old)]
    if late:
        yield no(f"Epoch {_epoch(old)} did something after that, which must not happen", "report it")
        return
    records = [one.value for one in evidence.leaders_records(ORDERS)]
    yield yes(
        f"Epoch {_epoch(old)} has done nothing since. The log has {counted(len(records), 'record')}, and readers of "
        "committed data leave out the aborted transaction's"
    )


def held_readers(evidence: Evidence) -> Iterator[Finding]:
    """Look for a last stable offset that an open transaction held, and that its end let go."""
    held = next((one for one in evidence.of("last_stable_offset", ORDERS) if _is_behind(one)), None)
    if held is None:
        yield no(
            "The last stable offset of orders-0 has been the high watermark all the time",
            "write a record in a transaction, and leave the transaction open",
        )
        return
    yield yes(f"An open transaction held the last stable offset at {held.new}, where its first record is")
    behind = next(appended(evidence, ORDERS, held.place, len(evidence.events)), None)
    if behind is None:
        yield no("No record was written behind it", "write one, outside of any transaction")
        return
    yield yes(f"Offset {behind.new - 1}, of another producer, was written behind it")
    facts = evidence.partition(ORDERS)
    leader = facts.replicas.get(facts.leader)
    if leader is None or leader.lso < leader.hw:
        stands = "unknown" if leader is None else f"{leader.lso}, and the high watermark {leader.hw}"
        yield no(
            f"The last stable offset is still {stands}: readers of committed data get nothing behind it",
            "end the transaction: by its producer, by a new one of the same id, or by its timeout",
        )
        return
    ended = [one for one in evidence.of("transaction") if str(one.event.get("new")).startswith("Complete")]
    free = next((one for one in ended if one.place > behind.place), None)
    if free is None:
        yield no("No transaction has ended", "look at `tidegauge list-transactions`")
        return
    yield yes(
        f"{free.event.get('transactional_id')} was ended ({free.event.get('new')}) {seconds_between(behind, free)} "
        f"later, and the last stable offset is the high watermark {leader.hw} again"
    )


def _is_behind(one: Placed) -> bool:
    return one.new < int(one.event.get("high_watermark", 0))


def _of(evidence: Evidence, name: object) -> Iterator[Placed]:
    return evidence.of("transaction", None, transactional_id=name)


def _epoch(one: Placed) -> int:
    return int(one.event.get("producer_epoch", -1))
