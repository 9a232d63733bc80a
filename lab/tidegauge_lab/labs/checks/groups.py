"""Checks of the labs about consumer groups: their coordinator, their rebalances, their commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tidegauge.counted import counted
from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Evidence, Placed, deaths, seconds_between
from tidegauge_lab.labs.model import Finding, no, yes
from tidegauge_lab.scenario.facts import numbers

ORDERS = TopicPartition("orders", 0)
SHIPPED = TopicPartition("shipped", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
SHOP, STORM, CALM, PICKING = "shop", "storm", "calm", "picking"
TWICE, NEVER = "at-least-once", "at-most-once"
_REPLICAS = 3


def one_offsets_replica(evidence: Evidence) -> Iterator[Finding]:
    """Look for a group that lost its only coordinator, and that lives through the same with three replicas."""
    without = next(evidence.of("election", OFFSETS, leader=-1), None)
    if without is None:
        yield no(
            "__consumer_offsets-0 has had a leader all the time, so group shop has had a coordinator",
            "let group shop read, and kill its coordinator",
        )
        return
    first = next((broker for one, broker in reversed(deaths(evidence)) if one.place < without.place), -1)
    yield yes(f"When broker {first} died, __consumer_offsets-0 had no leader: no other broker had a replica")
    assigned = evidence.partition(OFFSETS).assigned
    if len(assigned) < _REPLICAS:
        yield no(
            f"__consumer_offsets-0 still has one replica, on broker {numbers(assigned)}",
            "start that broker, and reassign the partition to brokers 1, 2 and 0",
        )
        return
    yield yes(f"It has {counted(len(assigned), 'replica')} now, on brokers {numbers(assigned)}")
    moved = _moved_coordinator(evidence)
    if moved is None:
        yield no("No coordinator has died since", "kill the coordinator of group shop once more")
        return
    yield yes(f"When its coordinator died again, broker {moved.broker} loaded the group and became its coordinator")
    group = evidence.groups.get(SHOP)
    written = [one for one in evidence.of("log_end_offset", OFFSETS) if one.place > moved.place]
    if group is None or not written:
        yield no("Group shop has committed nothing since", "let it read two more records")
        return
    yield yes(f"Group shop went on there: it has committed offset {group.committed.get(ORDERS, 0)} of orders-0")


def _moved_coordinator(evidence: Evidence) -> Placed | None:
    """Return when another broker became the coordinator after a death."""
    dead = deaths(evidence)
    for one in evidence.of("coordinator", OFFSETS, state="active"):
        before = [broker for died, broker in dead if died.place < one.place]
        if before and before[-1] != one.broker:
            return one
    return None


def storm_and_calm(evidence: Evidence) -> Iterator[Finding]:
    """Look for a group that rebalances and commits nothing, and for one whose member restarts without a rebalance."""
    stable = list(evidence.of("group", None, group=STORM, new="Stable"))
    left = [
        one for one in evidence.of("group", None, group=STORM, new="Empty") if one.event.get("cause") == "LeaveGroup"
    ]
    if len(left) < 2 or len(stable) < 2:
        yield no(
            f"Group storm has been left {counted(len(left), 'time')}",
            "let a consumer of group storm work longer than max.poll.interval.ms, twice",
        )
        return
    yield yes(f"Group storm was Stable {len(stable)} times and was left by its member {len(left)} times")
    storm = evidence.groups.get(STORM)
    committed = None if storm is None else storm.committed.get(ORDERS)
    if committed is not None and committed >= 0:
        yield no(f"Group storm has committed offset {committed}, so a commit came in time", "start this lab again")
        return
    yield yes("It has committed nothing: each consumer was out of the group when it wanted to commit")
    calm = evidence.groups.get(CALM)
    if calm is None or not any(member.instance_id for member in calm.members):
        yield no("Group calm has no static member", "run the consumer with group.instance.id in group calm")
        return
    member = next(one.instance_id for one in calm.members if one.instance_id)
    offset = calm.committed.get(ORDERS, 0)
    if offset < 2:
        yield no(f"Member {member} of group calm has committed offset {offset}", "run it twice, one record each time")
        return
    rebalances = list(evidence.of("group", None, group=CALM, new="PreparingRebalance"))
    if len(rebalances) != 1:
        yield no(
            f"Group calm rebalanced {counted(len(rebalances), 'time')}",
            "start this lab again, and restart within session.timeout.ms",
        )
        return
    yield yes(
        f"Member {member} of group calm committed up to offset {offset}, and the group is in generation "
        f"{calm.generation}: the restart cost no rebalance"
    )


def twice_and_never(evidence: Evidence) -> Iterator[Finding]:
    """Look for a record that was processed twice, and for one whose offset was committed and that never was."""
    orders = [one.value for one in evidence.leaders_records(ORDERS)]
    done = {
        group: [one.value for one in evidence.leaders_records(SHIPPED) if one.key == group] for group in (TWICE, NEVER)
    }
    for group in (TWICE, NEVER):
        if group not in evidence.groups:
            yield no(f"Group {group} has not committed anything", f"run shop.py for {group}, and let it crash")
            return
    never = evidence.groups[NEVER].committed.get(ORDERS, 0)
    skipped = [value for value in orders[:never] if value not in done[NEVER]]
    if not skipped:
        yield no(
            f"Group {NEVER} has processed all that it has committed: {counted(never, 'record')}",
            "let it commit first, and crash before it processes",
        )
        return
    yield yes(
        f"Group {NEVER} has committed offset {never} and never processed {_quoted(skipped)}, and does not read "
        f"{'it' if len(skipped) == 1 else 'them'} again"
    )
    twice = [value for value, count in Counter(done[TWICE]).items() if count > 1]
    if not twice:
        yield no(
            f"Group {TWICE} has processed {counted(len(done[TWICE]), 'record')}, none of them twice",
            "let it process first, crash before the commit, and run it again",
        )
        return
    yield yes(f"Group {TWICE} has processed {_quoted(twice)} twice")
    at_least = evidence.groups[TWICE].committed.get(ORDERS, 0)
    missing = [value for value in orders[:at_least] if value not in done[TWICE]]
    if missing:
        yield no(f"Group {TWICE} has committed offset {at_least} without {_quoted(missing)}", "start this lab again")
        return
    yield yes(f"It has committed offset {at_least}, and each record before that was processed")


def reconciled(evidence: Evidence) -> Iterator[Finding]:
    """Look for a group of the consumer protocol whose second member waited for the first, which went on meanwhile."""
    story = list(evidence.of("group", None, group=PICKING))
    if any(one.event.get("new") == "PreparingRebalance" for one in story):
        yield no(
            "Group picking rebalances as a whole: it speaks the classic protocol",
            "start this lab again, with group.protocol=consumer",
        )
        return
    joined = next((one for one in story if int(one.event.get("members", 0)) > 1), None)
    if joined is None:
        yield no("Group picking has never had two members", "run picking.py, whose consumers join one after the other")
        return
    yield yes(f"When the second member joined, the group came into epoch {joined.event.get('generation')}")
    waits = next((one for one in story if one.place >= joined.place and one.event.get("new") == "Reconciling"), None)
    stable = next(
        (one for one in story if waits and one.place > waits.place and one.event.get("new") == "Stable"), None
    )
    if waits is None or stable is None:
        yield no("Its members have not come to their new assignment", "let both consumers poll until they have it")
        return
    if stable.event.get("generation") != waits.event.get("generation"):
        yield no("A member left before the group was Stable", "start this lab again, and let both consumers poll")
        return
    yield yes(
        f"It was Reconciling for {seconds_between(waits, stable)}: the partition had to be given up before it was given"
    )
    yield yes("It was never in PreparingRebalance: no member had to give up what it keeps")


def _quoted(values: list[str | None]) -> str:
    return ", ".join(f"'{value}'" for value in values)
