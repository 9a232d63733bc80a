"""Checks of the labs about elections: unclean ones, preferred leaders, and the controller itself."""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Evidence, appended, deaths, isr_changes
from tidegauge_lab.labs.model import Finding, no, yes
from tidegauge_lab.scenario.facts import brokers

ORDERS = TopicPartition("orders", 0)


def unclean(evidence: Evidence) -> Iterator[Finding]:
    """Look for an unclean election that took from a consumer group what it had read."""
    election = next(evidence.of("election", ORDERS, strategy="unclean"), None)
    if election is None:
        yield no(
            "Every leader of orders-0 was elected from the ISR",
            "let broker 1 alone have records, kill it, and start broker 2",
        )
        return
    leader, epoch = int(election.event.get("leader", -1)), int(election.event.get("leader_epoch", -1))
    began = next(evidence.of("epoch", ORDERS, leader_epoch=epoch), None)
    start = -1 if began is None else int(began.event.get("start_offset", -1))
    before = [one.new for one in evidence.of("high_watermark", ORDERS) if one.place < election.place]
    top = max(before, default=0)
    if began is None or top <= start:
        yield no(
            f"Broker {leader} was elected without being in the ISR, and lacked nothing: its log ended at {start}",
            "start this lab again, and write records while broker 2 is dead",
        )
        return
    yield yes(f"Broker {leader} was elected in epoch {epoch} though it was not in the ISR: its log ended at {start}")
    yield yes(f"The high watermark had been {top}, so offsets {start} to {top - 1} were committed, and are lost")
    readers = {
        str(one.event.get("group"))
        for one in evidence.of("group", None, new="Stable")
        if one.place < election.place and str(one.event.get("group")) in evidence.groups
    }
    if not readers:
        yield no("No consumer group had read them", "start this lab again, and let group shop read before the election")
        return
    others = [one.value for one in evidence.leaders_records(ORDERS) if start <= one.offset < top]
    if len(others) < top - start:
        have = "has another record" if len(others) == 1 else "have other records"
        yield no(f"Only {len(others)} of these offsets {have} so far", "write at least five more records")
        return
    name = min(readers)
    committed_offset = evidence.groups[name].committed.get(ORDERS, 0)
    if committed_offset <= top:
        yield no(
            f"Group {name} is at offset {committed_offset}, and has not read on",
            f"let group {name} read what comes next",
        )
        return
    yield yes(
        f"These offsets now hold {', '.join(repr(value) for value in others)}. Group {name} went on and has committed "
        f"offset {committed_offset}"
    )


def preferred(evidence: Evidence) -> Iterator[Finding]:
    """Look for a broker that came back into the ISR, led nothing, and was elected again as the preferred leader."""
    partitions = sorted(at for at in evidence.partitions if at.topic == ORDERS.topic)
    preferred_at = {at: evidence.partition(at).assigned[0] for at in partitions}
    moved = {
        at: one
        for at in partitions
        for one in evidence.of("election", at)
        if one.event.get("leader") not in {preferred_at[at], -1}
    }
    if not moved:
        yield no("Every partition of orders has been led by its preferred leader all the time", "stop broker 1")
        return
    for at, one in moved.items():
        yield yes(
            f"{at} went from broker {preferred_at[at]}, its preferred leader, to {one.event.get('leader')} "
            f"({one.event.get('strategy')})"
        )
    waiting = [
        at
        for at, one in moved.items()
        if any(change.place > one.place and preferred_at[at] in isr for change, isr in isr_changes(evidence, at))
    ]
    if not waiting:
        yield no(
            f"The ISR still lacks {brokers(sorted({preferred_at[at] for at in moved}))}",
            "start it, and wait until it is in sync",
        )
        return
    yield yes(
        f"Its preferred leader came back into the ISR of {', '.join(map(str, waiting))}, and followed: a return alone "
        "moves no leadership"
    )
    elected = {at for at in waiting for _ in evidence.of("election", at, strategy="preferred", leader=preferred_at[at])}
    elsewhere = [at for at in partitions if evidence.partition(at).leader != preferred_at[at]]
    if elsewhere or not elected:
        lacking = elsewhere or waiting
        led = "is not led by its preferred leader" if len(lacking) == 1 else "are not led by their preferred leaders"
        yield no(f"{', '.join(map(str, lacking))} {led} by a preferred election", "elect the preferred leaders")
        return
    yield yes(
        f"A preferred election gave {', '.join(map(str, sorted(elected)))} back, each in a higher leader epoch: "
        + ", ".join(f"{at} in {evidence.partition(at).epoch}" for at in sorted(elected))
    )


def two_controllers(evidence: Evidence) -> Iterator[Finding]:
    """Look for a controller that was replaced while it was asleep, and that stepped down when it woke up."""
    elections = list(evidence.of("controller", state="elected"))
    if len(elections) < 2:
        yield no(
            f"Broker {evidence.controller} is the only controller that there has been, in controller epoch "
            f"{evidence.controller_epoch}",
            "pause broker 0",
        )
        return
    first, last = elections[0], elections[-1]
    silent = [one for one, broker in deaths(evidence) if broker == first.broker and one.place < last.place]
    if not silent or silent[-1].event.get("action") != "pause":
        yield no(
            f"Broker {first.broker} was not asleep when broker {last.broker} became the controller",
            "start this lab again, and pause the controller",
        )
        return
    yield yes(
        f"Broker {first.broker} was the controller in epoch {first.event.get('controller_epoch')}, and was paused"
    )
    yield yes(f"Broker {last.broker} took over in controller epoch {last.event.get('controller_epoch')}")
    resigned = [
        one
        for one in evidence.of("controller", state="resigned")
        if one.broker == first.broker and one.place > last.place
    ]
    if not resigned:
        yield no(f"Broker {first.broker} still believes that it is the controller", f"resume broker {first.broker}")
        return
    yield yes(f"When broker {first.broker} woke up it stepped down")
    moved = [one for one in evidence.of("election") if one.broker == first.broker and one.place > last.place]
    if moved:
        yield no(f"Broker {first.broker} decided an election after that, which must not happen", "report it")
        return
    yield yes(f"It has decided no election since: each one was made by broker {last.broker}")
    written = next(appended(evidence, ORDERS, resigned[-1].place, len(evidence.events)), None)
    if written is None:
        yield no("No record was written since", "write one to orders")
        return
    yield yes(f"Records are written: broker {written.broker} appended offset {written.new - 1} of orders-0")
