"""Checks of the labs about a cluster in KRaft mode: the quorum of controllers, and eligible leader replicas."""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Evidence, Placed, appended, isr_changes
from tidegauge_lab.labs.model import Finding, no, yes
from tidegauge_lab.scenario.facts import brokers

ORDERS = TopicPartition("orders", 0)
CONTROLLERS = 3
MIN_ISR = 2
_CONTROLLER = "controller-"
_ENDS = frozenset({"kill", "pause", "stop"})
_BEGINS = frozenset({"start", "resume"})


def majority_lost(evidence: Evidence) -> Iterator[Finding]:
    """Look for a time without a majority of controllers, in which records were written, and for its end."""
    lost = _majority_lost(evidence)
    if lost is None:
        yield no(
            "A majority of the three controllers has run all the time",
            "kill two controllers, such as 3001 and 3002",
        )
        return
    yield yes("Two of three controllers were down, so that the third one had no majority")
    regained = next((one for one in evidence.of("controller", state="elected") if one.place > lost.place), None)
    end = len(evidence.events) if regained is None else regained.place
    written = next(appended(evidence, ORDERS, lost.place, end), None)
    if written is None and regained is None:
        yield no("No record has been written since", "write one to orders")
        return
    if written is None:
        yield no("No record was written meanwhile", "kill two controllers again, and write one to orders")
        return
    yield yes(f"Broker {written.broker} appended offset {written.new - 1} of orders-0: records need no controller")
    if regained is None:
        yield no("No controller leads the quorum", "start one of the two again")
        return
    yield yes(
        f"With a majority back, {_name(regained)} became the active controller, in epoch "
        f"{regained.event.get('controller_epoch')}"
    )
    later = next((one for one in evidence.of("election", strategy="initial") if one.place > regained.place), None)
    if later is None:
        yield no("It has created no topic so far", "create one, `tidegauge create-topic later`")
        return
    yield yes(f"It has created the topic {later.event.get('topic')}")


def _majority_lost(evidence: Evidence) -> Placed | None:
    """Return the last event that left two controllers down; None if none."""
    down: set[str] = set()
    found = None
    for one in evidence.of("fault"):
        process, action = str(one.event.get("process")), one.event.get("action")
        if not process.startswith(_CONTROLLER):
            continue
        if action in _ENDS and process not in down:
            down.add(process)
            if len(down) == CONTROLLERS // 2 + 1:
                found = one
        elif action in _BEGINS:
            down.discard(process)
    return found


def _name(one: Placed) -> str:
    return str(one.event.get("source", "")).replace("-", " ")


def eligible_leader(evidence: Evidence) -> Iterator[Finding]:
    """Look for a leader that was no member of the ISR, and has what the last member lost with its power."""
    alone = next(((one, isr) for one, isr in isr_changes(evidence, ORDERS) if len(isr) == 1), None)
    if alone is None:
        yield no(
            f"The ISR of orders-0 is {brokers(sorted(evidence.partition(ORDERS).isr))}",
            "kill broker 2, and stop broker 1",
        )
        return
    shrunk, [last] = alone
    yield yes(f"The ISR shrank to broker {last} alone, below min.insync.replicas")
    acknowledged = max(
        (one.new for one in evidence.of("high_watermark", ORDERS) if one.place < shrunk.place), default=0
    )
    if not acknowledged:
        yield no("No record had been acknowledged before", "start this lab again, and write a record first")
        return
    power = [one for one in evidence.of("fault", action="power-cut", broker=last) if one.place > shrunk.place]
    if not power:
        yield no(
            f"Broker {last} has its page cache still",
            f"kill broker {last}, and start it as after a power loss (start --after-power-cut)",
        )
        return
    yield yes(f"Broker {last} lost power, and what it had not flushed")
    later = [
        one for one in evidence.of("election", ORDERS) if one.place > shrunk.place and one.event.get("leader") != -1
    ]
    if not later:
        yield no(f"orders-0 has no leader: broker {last} is not eligible any more", "start broker 1")
        return
    leader = int(later[0].event.get("leader", -1))
    if later[0].event.get("strategy") == "unclean":
        yield no(
            f"Broker {leader} was elected uncleanly: there was no eligible leader",
            "start this lab again, and stop broker 1 in order",
        )
        return
    yield yes(f"Broker {leader}, which was not in the ISR, was elected cleanly: it was an eligible leader replica")
    kept = [one for one in evidence.leaders_records(ORDERS) if one.offset < acknowledged]
    if len(kept) < acknowledged:
        yield no(f"It lacks {acknowledged - len(kept)} acknowledged records", "report it")
        return
    yield yes(f"It has all that was acknowledged before: {', '.join(repr(one.value) for one in kept)}")
    behind = {0, 1, 2} - set(evidence.partition(ORDERS).isr)
    if behind:
        yield no(f"The ISR still lacks {brokers(sorted(behind))}", "start it, and wait until it is in sync")
        return
    yield yes("All three replicas are in sync again")
