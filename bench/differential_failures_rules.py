"""Which shipped scenarios Apache Kafka can play, and what must be the same when it and Tidegauge have played one. Pure.

A scenario can be played where its steps are made of what happens to processes and networks: kill, stop, SIGSTOP,
SIGCONT, start, no way to ZooKeeper, power loss; elections and produces are Kafka's own requests, and clients of groups
and transactions are real Kafka clients. ``why_not`` says for each of the others what it needs beside that.

Each ``expect`` of a scenario is a moment at which both clusters are looked at once they have come to rest. Compared is
the whole partition, not only what the scenario expects there: ``fields_of``. ``EXPLAINED`` are differences that stay,
each with its reason; everything else fails the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegauge_client.cluster_file import KRAFT_MODE
from tidegauge_lab.scenario import Scenario
from tidegauge_lab.scenario import facts as show
from tidegauge_lab.scenario.facts import Facts
from tidegauge_lab.scenario.fault_steps import FaultStep
from tidegauge_lab.scenario.model import TRUNCATION_RULE
from tidegauge_lab.scenario.quorum_steps import QUORUM_STEPS
from tidegauge_lab.scenario.share_steps import SHARE_STEPS

TODAY = "kip-320"
PLAYED = frozenset(
    {
        "create_topic",
        "produce",
        "wait_answer",
        "kill",
        "stop",
        "pause",
        "resume",
        "start",
        "isolate",
        "heal",
        "elect",
        "sync",
        "drop_unsynced",
        "wait_leader",
        "wait_isr",
        "wait_hw",
        "wait_leo",
        "wait_epoch",
        "wait_checkpoint",
        "wait_lso",
        "wait_controller",
        "expect",
        "start_consumer",
        "consume",
        "busy",
        "poll",
        "commit",
        "wait_commit",
        "close_consumer",
        "kill_consumer",
        "wait_group",
        "expect_group",
        "start_producer",
        "begin_transaction",
        "send",
        "send_offsets",
        "commit_transaction",
        "abort_transaction",
        "wait_producer",
        "kill_producer",
        "pause_client",
        "resume_client",
        "wait_transaction",
        "expect_transaction",
        "expect_read",
        "expect_producers",
        "expect_hanging",
        "abort_hanging",
    }
)
"""Verbs that both clusters can play."""
OF_KRAFT = frozenset(step.verb for step in (*SHARE_STEPS, *QUORUM_STEPS))
"""Verbs about share groups and the quorum, which both clusters can play in KRaft mode."""
OF_CONSUMER_PROTOCOL = frozenset({"wait_consumer_error"})
"""Verbs of groups that this comparison does not read (``why_not_in_kraft``)."""
INSIDE_A_BROKER = frozenset(
    {"hold_fetch", "step_fetch", "hold_requests", "wait_held", "release_requests", "inject_error", "inject_disk"}
)
"""Verbs that are switches inside of Tidegauge's brokers."""
OF_ZOOKEEPER_SIDES = frozenset({"isolate", "heal", "wait_controller"})
"""Verbs for which a side in KRaft mode would need a gate before its controllers."""
LEFT_OUT = {
    "wait_event": "looks into the event log of Tidegauge's brokers; what it waits for shows in the replicas' logs",
    "verify": "the accountant reads Tidegauge's directories; every record of every replica is compared all the same",
}
"""Verbs that change nothing, and are passed over on both sides, with the reason."""
TOO_SLOW = {
    "rebalance-storm": "its outcome depends on a client that joins within max.poll.interval.ms, which beside two "
    "clusters on one machine it may not"
}
"""Scenarios that can be played, and do not end the same way each time on a busy machine, on either side."""
NOT_THERE = "not there"

Fields = dict[str, str]


def why_not(scenario: Scenario) -> str:
    """Return why Apache Kafka 3.9 can't play a scenario; empty if it can."""
    if scenario.mode == KRAFT_MODE:
        return "it needs KRaft mode, and this comparison has a cluster in ZooKeeper mode"
    return _why_not(scenario, PLAYED)


def _why_not(scenario: Scenario, played: frozenset[str]) -> str:
    """Return why no process of Apache Kafka can play a scenario; else empty."""
    rule = scenario.settings.get(TRUNCATION_RULE, TODAY)
    if rule != TODAY:
        return f"its rule is {rule}, which Apache Kafka does not have any more"
    verbs = {step.verb for step in scenario.steps}
    if inside := sorted(verbs & INSIDE_A_BROKER):
        return f"no switch inside of a broker of Apache Kafka does what {', '.join(inside)} do"
    if strange := sorted(verbs - played - OF_CONSUMER_PROTOCOL - LEFT_OUT.keys()):
        return f"{', '.join(strange)} can't be played on Apache Kafka"
    if scenario.name in TOO_SLOW:
        return TOO_SLOW[scenario.name]
    if any(step.fault["from"] != "zookeeper" for step in scenario.steps if isinstance(step, FaultStep)):
        return "a process of Apache Kafka can be partitioned from ZooKeeper alone"
    return ""


def why_not_in_kraft(scenario: Scenario) -> str:
    """Return why a scenario is not played in KRaft mode; empty if it is."""
    if scenario.zookeeper_only:
        return "it is a story of ZooKeeper mode"
    if why := _why_not(scenario, PLAYED | OF_KRAFT):
        return why
    if any((getattr(step, "settings", None) or {}).get("group.protocol") == "consumer" for step in scenario.steps):
        return "a group is read from records of the classic protocol here, and its group has others (KIP-848)"
    verbs = sorted({step.verb for step in scenario.steps} & OF_ZOOKEEPER_SIDES)
    return f"{', '.join(verbs)} would need a gate between each node and the controllers" if verbs else ""


def is_about_the_quorum(scenario: Scenario) -> bool:
    """Return whether the number of controllers matters to a scenario."""
    return any(isinstance(step, QUORUM_STEPS) for step in scenario.steps)


def sorted_out(scenarios: Sequence[Scenario]) -> tuple[list[Scenario], dict[str, str]]:
    """Return the played scenarios, and the reasons against the others."""
    reasons = {one.name: why_not(one) for one in scenarios}
    return [one for one in scenarios if not reasons[one.name]], {name: why for name, why in reasons.items() if why}


def fields_of(facts: Facts, responses: Mapping[str, str], readable: Sequence[str] | None) -> Fields:
    """Return the compared fields of a partition at one moment, as text.

    Args:
        facts: its actual state.
        responses: of producers so far, by value.
        readable: what a consumer reads from the leader; None if there is none that responds.
    """
    found = {
        "leader": show.leader_name(facts.leader),
        "leader epoch": str(facts.epoch),
        "ISR": show.numbers(facts.isr),
        "readable": "no leader responds" if readable is None else ", ".join(readable),
    }
    for broker_id in facts.assigned:
        found |= {f"broker {broker_id}: {name}": value for name, value in _of_replica(facts, broker_id)}
    return found | {f"response to {value}": state for value, state in responses.items()}


def _of_replica(facts: Facts, broker_id: int) -> Iterator[tuple[str, str]]:
    yield "log", show.records(facts.logs.get(broker_id, ()))
    replica = facts.replicas.get(broker_id)
    if replica is None:
        yield "role", "does not respond, or has no replica"
        return
    yield "role", replica.role
    yield "leader epoch", str(replica.leader_epoch)
    yield "LEO", str(replica.leo)
    yield "HW", str(replica.hw)
    yield "LSO", str(replica.lso)
    yield "epoch cache", show.epochs(replica.epochs)


class Explained(NamedTuple):
    """A difference that stays, at the moments and in the fields whose name fits; either value is a pattern too."""

    name: str
    theirs: str
    ours: str
    why: str


EXPLAINED: tuple[Explained, ...] = (
    Explained(
        r"restart-within-session, .*: start of broker 1",
        "refused while its former session lives",
        "started",
        "a broker that is started before its former session has ended: Kafka's ends with NodeExists, and is started "
        "again here once the session has ended; Tidegauge's waits for that (docs/not-emulated.md)",
    ),
    Explained(
        r"elr-saves, line 33, .*: broker 0: epoch cache",
        r"\[Epoch=0, Offset=0\]",
        "none",
        "a broker that starts reads the metadata log while it registers: as long as it has not read what its "
        "registration did, it leads in its former epoch again, and notes that; here Kafka's did for half a second",
    ),
    Explained(
        r"(elr-all-unclean, line 31|unclean-election, line 28), .*: broker 2: (HW|LSO)",
        "0|1",
        "0|1",
        "a broker that was killed starts with the high watermark of its checkpoint, written every 5 s: this one "
        "was killed moments after the record was committed, and there is no leader of which it could learn more",
    ),
)
"""Which of them are met depends on who is faster; so one that is not met is no error."""


@dataclass(slots=True)
class Verdict:
    """The result of the comparison.

    Attributes:
        compared: how many fields.
        differences: each with both values, not explained.
        explained: how many differences each reason explains.
    """

    compared: int = 0
    differences: list[str] = field(default_factory=list)
    explained: dict[str, int] = field(default_factory=dict)

    def add(self, other: Verdict) -> None:
        """Take in another one."""
        self.compared += other.compared
        self.differences += other.differences
        for why, count in other.explained.items():
            self.explained[why] = self.explained.get(why, 0) + count


def compared(
    theirs: Mapping[str, Fields], ours: Mapping[str, Fields], explained: Sequence[Explained] = EXPLAINED
) -> Verdict:
    """Compare the fields of both at each moment of one scenario.

    Args:
        theirs: the fields of Apache Kafka, by the name of the moment.
        ours: the fields of Tidegauge.
        explained: differences that stay.
    """
    verdict = Verdict()
    for moment in dict.fromkeys((*theirs, *ours)):
        there, here = theirs.get(moment, {}), ours.get(moment, {})
        for name in dict.fromkeys((*there, *here)):
            verdict.compared += 1
            pair = there.get(name, NOT_THERE), here.get(name, NOT_THERE)
            if pair[0] == pair[1]:
                continue
            reason = _reason(f"{moment}: {name}", pair, explained)
            if reason:
                verdict.explained[reason] = verdict.explained.get(reason, 0) + 1
            else:
                verdict.differences.append(f"{moment}: {name}\n    Kafka:     {pair[0]}\n    Tidegauge: {pair[1]}")
    return verdict


def report(total: Verdict, scenarios: int) -> int:
    """Print what the comparison of some scenarios found; return the exit code."""
    for why, count in sorted(total.explained.items()):
        print(f"explained, {count} times: {why}")
    for difference in total.differences:
        print(difference)
    print(f"failures: {scenarios} scenarios, {total.compared} fields compared, {len(total.differences)} differ")
    return 1 if total.differences else 0


def _reason(name: str, pair: tuple[str, str], explained: Sequence[Explained]) -> str:
    """Return why a difference stays; empty if nothing says so."""
    return next(
        (
            one.why
            for one in explained
            if re.fullmatch(one.name, name) and re.fullmatch(one.theirs, pair[0]) and re.fullmatch(one.ours, pair[1])
        ),
        "",
    )
