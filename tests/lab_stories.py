"""Evidence for the checks of labs, written as a story: what brokers and the lab noted, and what replicas say now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.catalogue import lab_named
from tidegauge_lab.labs.evidence import Evidence
from tidegauge_lab.labs.model import judged, passes
from tidegauge_lab.scenario.facts import Facts, Replica

ORDERS = TopicPartition("orders", 0)


class Story:
    """Events one after the other, each later by 100 ms."""

    def __init__(self, partition: TopicPartition = ORDERS) -> None:
        self.events: list[dict[str, Any]] = []
        self._at = partition

    def note(self, source: str, kind: str, **fields: Any) -> Story:
        """Add an event of this story's partition."""
        return self.note_of_broker(source, kind, topic=self._at.topic, partition=self._at.partition, **fields)

    def note_of_broker(self, source: str, kind: str, **fields: Any) -> Story:
        """Add an event that is about no partition."""
        self.events.append({"time_ms": 100 * len(self.events), "source": source, "kind": kind, **fields})
        return self

    def elected(self, leader: int, epoch: int, isr: Sequence[int], strategy: str = "initial", by: int = 0) -> Story:
        """Add an election by a controller, and the ISR as the leader has it."""
        self.note(
            f"broker-{by}", "election", leader=leader, leader_epoch=epoch, isr=list(isr), strategy=strategy, cause="X"
        )
        return self.isr(leader, isr) if leader >= 0 else self

    def isr(self, leader: int, isr: Sequence[int]) -> Story:
        """Add a committed ISR."""
        return self.note(f"broker-{leader}", "isr", new=list(isr), state="committed")

    def leo(self, broker: int, old: int, new: int, cause: str = "Produce") -> Story:
        """Add a log end offset."""
        return self.note(f"broker-{broker}", "log_end_offset", old=old, new=new, cause=cause)

    def hw(self, broker: int, old: int, new: int) -> Story:
        """Add a high watermark."""
        return self.note(f"broker-{broker}", "high_watermark", old=old, new=new, cause="Fetch")

    def killed(self, broker: int, action: str = "kill") -> Story:
        """Add a fault of the lab."""
        return self.note_of_broker("lab", "fault", action=action, broker=broker)

    def truncated(self, broker: int, old: int, new: int) -> Story:
        """Add a truncation."""
        return self.note(f"broker-{broker}", "truncation", old=old, new=new)

    def group(self, name: str, new: str, cause: str = "JoinGroup", generation: int = 1) -> Story:
        """Add a state of a consumer group."""
        return self.note_of_broker("broker-1", "group", group=name, new=new, cause=cause, generation=generation)

    def transaction(self, new: str, epoch: int, name: str = "till-1") -> Story:
        """Add a state of a transactional id."""
        return self.note_of_broker("broker-2", "transaction", transactional_id=name, new=new, producer_epoch=epoch)

    def controller(self, broker: int, state: str, epoch: int) -> Story:
        """Add an election or the end of a controller."""
        return self.note_of_broker(f"broker-{broker}", "controller", state=state, controller_epoch=epoch)

    def at(self, topic: str, partition: int = 0) -> Story:
        """Return a story that goes on with the same events, of another partition."""
        other = Story(TopicPartition(topic, partition))
        other.events = self.events
        return other

    def evidence(self, **fields: Any) -> Evidence:
        """Return it as evidence."""
        return Evidence(events=self.events, **fields)


def facts(
    leader: int, leos: dict[int, int], hws: dict[int, int], isr: Sequence[int] = (1, 2, 0), epoch: int = 0
) -> Facts:
    """Return a partition's state."""
    replicas = {
        one: Replica("leader" if one == leader else "follower", epoch, leo, hws.get(one, 0))
        for one, leo in leos.items()
    }
    return Facts(leader, epoch, tuple(isr), replicas, {}, (1, 2, 0))


def said(name: str, evidence: Evidence) -> tuple[bool, str]:
    """Return whether a lab's check passes, and the last thing that it says."""
    findings = judged(lab_named(name), evidence)
    return passes(findings), findings[-1].text
