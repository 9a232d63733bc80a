"""``explain`` on eligible leader replicas: who may lead, who may not, and by which rule of KIP-966."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegauge.partition import TopicPartition
from tidegauge_client.cli.explain import headline
from tidegauge_client.explanation import explain
from tidegauge_client.explanation_facts import Facts, Led, Remote
from tidegauge_client.explanation_modes import KRAFT
from tidegauge_client.explanation_rules import (
    RULE_ELIGIBLE,
    RULE_LAST_LEADER,
    RULE_UNCLEAN,
    RULE_UNCLEAN_RESTART,
)

ALONE = Facts(
    at=TopicPartition("orders", 0),
    replicas=(1, 2, 0),
    isr=(),
    leader=None,
    leader_epoch=4,
    live=frozenset({2}),
    min_isr=2,
    words=KRAFT,
    elr=(1,),
    last_known_elr=(1,),
)


def said(facts: Facts) -> list[tuple[str, str]]:
    return [(one.text, one.rule) for one in explain(facts) if one.about == "leader"]


def test_without_an_isr_each_replica_is_called_eligible_or_not() -> None:
    assert said(ALONE) == [
        ("There is no leader, the ISR is empty, and no eligible replica is alive.", RULE_ELIGIBLE),
        (
            "Broker 1 is eligible: it has every committed record, and leads again if it ended in order.",
            RULE_UNCLEAN_RESTART,
        ),
        (
            "Broker 1 led last: it is elected once no replica is eligible any more, whatever it has.",
            RULE_LAST_LEADER,
        ),
        ("Broker 2 is alive and not eligible, so committed records may be missing there.", RULE_UNCLEAN_RESTART),
        ("Broker 0 is not alive and not eligible: it does not lead when it returns.", RULE_UNCLEAN_RESTART),
    ]


def test_the_headline_of_an_empty_isr_says_so() -> None:
    assert headline(ALONE) == "orders-0: leader none, epoch 4, ISR (empty) of 1,2,0, HW and LEO unknown"


@pytest.mark.parametrize(
    ("live", "text"),
    [
        (frozenset({2}), "Broker 1 led last: it is elected when it returns, whatever it has."),
        (frozenset({1, 2}), "Broker 1 led last and is alive: an unclean election is due."),
    ],
)
def test_without_any_eligible_replica_the_last_leader_is_elected(live: frozenset[int], text: str) -> None:
    """Although unclean.leader.election.enable is false, as in Kafka 4.3."""
    found = said(replace(ALONE, live=live, elr=()))
    assert found[0][0] == "There is no leader, the ISR is empty, and no replica is eligible."
    assert (text, RULE_LAST_LEADER) in found


def test_a_live_eligible_replica_is_about_to_lead() -> None:
    text = "There is no leader in epoch 4, though broker 2, an eligible leader, is alive: an election is due."
    assert said(replace(ALONE, elr=(1, 2))) == [(text, RULE_ELIGIBLE)]


def test_with_unclean_elections_any_live_replica_is_about_to_lead() -> None:
    text = "There is no leader. No eligible replica is alive, but broker 2 may lead, uncleanly: due."
    assert said(replace(ALONE, unclean=True)) == [(text, RULE_UNCLEAN)]


def test_beside_an_isr_the_eligible_replica_is_named() -> None:
    led = Led(leo=5, hw=3, isr=(1,), maximal_isr=(1,), remotes={2: Remote(), 0: Remote()})
    facts = replace(ALONE, isr=(1,), leader=1, live=frozenset({1}), led=led, elr=(2,), last_known_elr=())
    assert said(facts)[1] == (
        "Broker 2 is not in the ISR and is eligible: it has every committed record, and is elected if the ISR becomes "
        "empty and it has not crashed.",
        RULE_ELIGIBLE,
    )
