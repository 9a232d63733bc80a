"""Explain a share partition (KIP-932): which record is where, why, until when. Facts in, sentences out. Pure.

Rules (as in ``explanation``): every sentence follows from the facts and names its rule. An unknown fact is called
unknown. A sentence about time names an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from tidegauge.counted import counted
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import NO_START_OFFSET
from tidegauge_client.group_explanation import OffsetsPartition
from tidegauge_client.sentences import Sentence
from tidegauge_client.share_records_explanation import explain_records
from tidegauge_client.share_sentences import (
    RULE_FENCED,
    RULE_INITIALIZED,
    RULE_KEPT,
    RULE_LEADER,
    RULE_LOAD,
    RULE_MIN_ISR,
    RULE_REFUSED,
    RULE_RESET,
    RULE_STATE_COORDINATOR,
    RULE_STATE_TOPIC,
    RULE_UNWRITTEN,
    named,
)
from tidegauge_client.share_views import BrokerShares, KeptShare, LedShare

_OPEN = "active"


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """The known facts of a share partition.

    Attributes:
        leader: of the partition; None: there is none.
        held: the partition of __share_group_state that holds the state; None: there is none.
        live: registered brokers.
        shares: what brokers have of the share partition, by id, as far as they have the Lab service and respond.
    """

    group_id: str
    at: TopicPartition
    leader: int | None
    leader_epoch: int
    held: OffsetsPartition | None
    live: frozenset[int] = frozenset()
    shares: Mapping[int, BrokerShares] = field(default_factory=dict[int, BrokerShares])

    @property
    def name(self) -> str:
        """The share partition, as it is named on the command line."""
        return f"share:{self.group_id}/{self.at}"

    def led_by(self, broker: int | None) -> LedShare | None:
        """Return the share partition at a broker; None if absent or silent."""
        found = None if broker is None else self.shares.get(broker)
        return next((one for one in found.led if one.at == self.at), None) if found is not None else None

    @property
    def led(self) -> LedShare | None:
        """The share partition at the leader."""
        return self.led_by(self.leader)

    @property
    def kept(self) -> KeptShare | None:
        """The state at the share coordinator."""
        held = self.held
        found = None if held is None or held.leader is None else self.shares.get(held.leader)
        return None if found is None else next((one for one in found.kept if one.at == self.at), None)


def explain_share(facts: ShareFacts) -> list[Sentence]:
    """Explain the leader, those that take themselves for it, the durable state, and the records in flight."""
    sentences = [*_leader(facts), *_others(facts), *_state(facts)]
    led = facts.led
    return sentences if led is None or led.state != _OPEN else [*sentences, *explain_records(led)]


# The leader


def _leader(facts: ShareFacts) -> Iterator[Sentence]:
    at, leader, led = facts.at, facts.leader, facts.led
    if leader is None:
        yield Sentence(
            "leader",
            f"{at} has no leader: no member of group {facts.group_id} gets records of it.",
            RULE_LEADER,
            f"a leader of {at}: `tidegauge explain {at}`",
        )
        return
    where = f"Broker {leader} leads {at} in epoch {facts.leader_epoch}"
    if leader not in facts.shares:
        yield Sentence(
            "leader",
            f"{where}. It does not respond to the lab, so its records in flight are not known here.",
            RULE_LEADER,
            f"a response of broker {leader}, which needs lab.enable=true: `tidegauge explain {at}`",
        )
    elif led is None:
        yield Sentence(
            "leader",
            f"{where} and has nothing in flight: it has not loaded the share partition. No member has fetched it since "
            "that epoch began, its last session has ended, or its state cannot be loaded.",
            RULE_LOAD,
            "the next fetch of a member",
        )
    elif led.leader_epoch != facts.leader_epoch:
        yield Sentence(
            "leader",
            f"{where}. Its share partition is of epoch {led.leader_epoch}, and is being dropped.",
            RULE_LOAD,
            "the next fetch of a member",
        )
    elif led.state != _OPEN:
        yield Sentence(
            "leader",
            f"{where}, and is still loading the state of the share partition; {_waiting(led)}.",
            RULE_LOAD,
            "a response of the share coordinator",
        )
    else:
        yield Sentence(
            "leader",
            f"{where}, and serves the share partition with state epoch {led.state_epoch}; {_waiting(led)}.",
            RULE_LEADER,
        )


def _waiting(led: LedShare) -> str:
    if not led.waiting_fetches:
        return "no fetch of a member waits"
    number = counted(led.waiting_fetches, "fetch", "fetches")
    return f"{number} of members {'waits' if led.waiting_fetches == 1 else 'wait'}"


def _others(facts: ShareFacts) -> Iterator[Sentence]:
    for broker in sorted(facts.shares):
        led = None if broker == facts.leader else facts.led_by(broker)
        if led is not None:
            yield Sentence(
                "zombie",
                f"Broker {broker} takes itself for the leader, in epoch {led.leader_epoch}, and serves the share "
                "partition: what members get from it others may get too, and its writes are refused once a leader "
                "of a later epoch has read the state.",
                RULE_FENCED,
                f"the end of its isolation: `tidegauge explain {facts.at}`",
            )


# The state


def _state(facts: ShareFacts) -> Iterator[Sentence]:
    held, kept = facts.held, facts.kept
    if held is None:
        yield Sentence(
            "state",
            f"There is no __share_group_state yet, so {facts.name} has no state.",
            RULE_STATE_TOPIC,
            "a member of a share group",
        )
        return
    if held.leader is None:
        yield Sentence(
            "state",
            f"{held.at}, which holds the state, has no leader: {held.living(facts.live)}. Acknowledgements wait, and "
            "unloaded state cannot be loaded.",
            RULE_STATE_COORDINATOR,
            f"a leader of {held.at}: `tidegauge explain {held.at}`",
        )
        return
    where = f"Broker {held.leader}, which leads {held.at}, is the share coordinator"
    found = facts.shares.get(held.leader)
    refusal = "" if found is None else next(iter((found.refusals or {}).values()), "")
    if found is None:
        yield Sentence(
            "state",
            f"{where}. It does not respond to the lab, so the state is not known here.",
            RULE_STATE_COORDINATOR,
            f"a response of broker {held.leader}, which needs lab.enable=true",
        )
    elif refusal:
        yield Sentence(
            "state",
            f"{where}, and the state is out of service: {refusal}.",
            RULE_REFUSED,
            "the group's offset of the partition set again, without members: kafka-share-groups.sh --reset-offsets",
        )
    elif kept is None:
        yield Sentence(
            "state",
            f"{where}, and has no state of the share partition: it was never initialized, or is being loaded.",
            RULE_INITIALIZED,
            "a member that subscribes to the topic",
        )
    else:
        yield from _kept(facts, kept, where)
    if held.shortage:
        yield Sentence(
            "state",
            f"Nothing that members say can be written: {held.shortage}.",
            RULE_MIN_ISR,
            f"more replicas in sync: `tidegauge explain {held.at}`",
        )


def _kept(facts: ShareFacts, kept: KeptShare, where: str) -> Iterator[Sentence]:
    led = facts.led
    epochs = f"state epoch {kept.state_epoch}, leader epoch {kept.leader_epoch}"
    if kept.start_offset == NO_START_OFFSET:
        reset = "" if led is None else f" {led.auto_offset_reset}, which made it {led.start_offset} here"
        yield Sentence(
            "state",
            f"{where} and has no start offset yet ({epochs}): share.auto.offset.reset decides{reset}. Another leader "
            "would decide again.",
            RULE_RESET,
            "the first acknowledgement or release",
        )
    else:
        states = {state: [one for one in kept.records if one.state == state] for state in _DURABLE}
        parts = [f"{state} {named(records)}" for state, records in states.items() if records]
        yield Sentence(
            "state",
            f"{where} and keeps the start offset {kept.start_offset} ({epochs}) and "
            f"{'no records beside it' if not parts else 'these records: ' + '; '.join(parts)}. This is what a new "
            "leader would know.",
            RULE_KEPT,
        )
    if led is not None and led.unwritten_count:
        yield Sentence(
            "state",
            f"{counted(led.unwritten_count, 'write')} of the leader {'is' if led.unwritten_count == 1 else 'are'} not "
            "written yet: the acknowledgements in them have no response.",
            RULE_UNWRITTEN,
            f"a response of broker {facts.held.leader if facts.held else None}",
        )


_DURABLE = ("available", "acknowledged", "archived")
