"""Explain who may lead a partition whose ISR is too small or empty, by eligible leader replicas (KIP-966). Pure.

Source: PartitionChangeBuilder.electLeader, isValidNewLeader and canElectLastKnownLeader;
ReplicationControlManager.handleBrokerUncleanShutdown.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge_client.explanation_facts import Facts
from tidegauge_client.explanation_rules import RULE_ELIGIBLE, RULE_LAST_LEADER, RULE_UNCLEAN, RULE_UNCLEAN_RESTART
from tidegauge_client.sentences import Sentence


def has_eligible_leaders(facts: Facts) -> bool:
    """Whether a partition has an empty ISR and remembers who may lead, or who led last."""
    return not facts.isr and bool(facts.elr or facts.last_known_elr)


def explain_without_isr(facts: Facts) -> Iterator[Sentence]:
    """Say who may lead a partition without a leader and an ISR, and who may not."""
    usable = [one for one in facts.replicas if one in facts.live and one not in facts.offline]
    ready = [one for one in facts.replicas if one in facts.elr and one in usable]
    if ready:
        text = (
            f"There is no leader in epoch {facts.leader_epoch}, though broker {ready[0]}, an eligible leader, is alive"
        )
        changes = "the controller elects by itself; if it stays so, look at its log"
        yield Sentence("leader", f"{text}: an election is due.", RULE_ELIGIBLE, changes, ready[0])
        return
    if facts.unclean and usable:
        text = f"There is no leader. No eligible replica is alive, but broker {usable[0]} may lead, uncleanly: due."
        yield Sentence("leader", text, RULE_UNCLEAN, "the controller elects by itself", usable[0])
        return
    if facts.elr:
        yield Sentence(
            "leader", "There is no leader, the ISR is empty, and no eligible replica is alive.", RULE_ELIGIBLE
        )
    else:
        yield Sentence("leader", "There is no leader, the ISR is empty, and no replica is eligible.", RULE_ELIGIBLE)
    for one in facts.elr:
        text = f"Broker {one} is eligible: it has every committed record, and leads again if it ended in order."
        yield Sentence("leader", text, RULE_UNCLEAN_RESTART, f"start broker {one}", one)
    yield from _last_leader(facts, usable)
    for one in facts.replicas:
        if one not in facts.elr and one not in facts.last_known_elr:
            yield _not_eligible(facts, one, is_usable=one in usable)


def _last_leader(facts: Facts, usable: list[int]) -> Iterator[Sentence]:
    """Say what the last known leader is good for."""
    for one in facts.last_known_elr:
        changes = f"start broker {one}: committed records that it lacks are lost"
        if facts.elr:
            text = f"Broker {one} led last: it is elected once no replica is eligible any more, whatever it has."
        elif one in usable:
            text, changes = f"Broker {one} led last and is alive: an unclean election is due.", ""
        else:
            text = f"Broker {one} led last: it is elected when it returns, whatever it has."
        yield Sentence("leader", text, RULE_LAST_LEADER, changes, one)


def _not_eligible(facts: Facts, broker: int, *, is_usable: bool) -> Sentence:
    at = facts.at
    if not is_usable:
        text = f"Broker {broker} is not alive and not eligible: it does not lead when it returns."
        return Sentence("leader", text, RULE_UNCLEAN_RESTART, "", broker)
    text = f"Broker {broker} is alive and not eligible, so committed records may be missing there."
    unclean = f"tidegauge elect-leaders --election-type unclean --topic {at.topic} --partition {at.partition}"
    changes = f"{unclean}: committed records that it lacks are lost"
    return Sentence("leader", text, RULE_UNCLEAN_RESTART, changes, broker)


def explain_beside_isr(facts: Facts) -> Iterator[Sentence]:
    """Say which replicas of a partition with a leader may lead though they are not in the ISR."""
    for one in facts.elr:
        text = (
            f"Broker {one} is not in the ISR and is eligible: it has every committed record, and is elected if the ISR "
            "becomes empty and it has not crashed."
        )
        yield Sentence("leader", text, RULE_ELIGIBLE)
