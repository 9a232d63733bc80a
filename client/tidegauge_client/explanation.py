"""Explain why a partition is as it is: facts in, sentences out, each with Kafka's rule. Pure.

Rules:
    1. Every sentence is derived from the given facts and names the rule from which it follows, as in Kafka's classes.
    2. An unknown fact is called unknown: nothing is assumed about a broker that did not respond.
    3. A sentence about time names an upper bound: when the change happens without any further event.
Source: Partition.maybeIncrementLeaderHW, isFollowerInSync, maybeShrinkIsr, PartitionLeaderElectionAlgorithms,
ReplicaStateMachine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidegauge.counted import counted
from tidegauge.in_sync import bounds_high_watermark, may_move, obstacle_to_joining
from tidegauge_client.eligible_explanation import explain_beside_isr, explain_without_isr, has_eligible_leaders
from tidegauge_client.explanation_facts import Facts, Led, Remote
from tidegauge_client.explanation_rules import (
    RULE_ACKS,
    RULE_ALTER,
    RULE_CAUGHT_UP,
    RULE_CONTROLLER,
    RULE_ELECTION,
    RULE_FAILED_DIRECTORY,
    RULE_FETCH,
    RULE_HW,
    RULE_JOIN,
    RULE_LAG,
    RULE_LATE,
    RULE_MIN_ISR,
    RULE_OFFSETS,
    RULE_PENDING,
    RULE_PROCESS,
    RULE_READ,
    RULE_REASSIGNMENT,
    RULE_REFUSED,
    RULE_TOPIC_ID,
    RULE_UNCLEAN,
    RULE_VERDICT,
    RULE_ZOOKEEPER,
)
from tidegauge_client.open_transaction_explanation import explain_open_transactions
from tidegauge_client.sentences import Sentence

LEADER_AND_ISR, ALTER_PARTITION = "LeaderAndIsr", "AlterPartition"


def explain(facts: Facts) -> list[Sentence]:
    """Explain the leader, the HW, each replica that is not in the ISR, and what clients see."""
    sentences = [*_leader(facts), *_refusals(facts), *_processes(facts), *_reassignment(facts)]
    if facts.led is not None:
        sentences += [
            *_high_watermark(facts, facts.led),
            *_out_of_sync(facts, facts.led),
            *_late(facts, facts.led),
            *_clients(facts, facts.led),
            *_transactions(facts, facts.led),
        ]
    explained = {one.subject for one in sentences if one.about in {"leader", "high-watermark", "isr"}}
    return [*sentences, *_silent_followers(facts, explained), *_health(facts), *_lab(facts)]


# The leader


def _reassignment(facts: Facts) -> Iterator[Sentence]:
    """Say what a reassignment in progress waits for."""
    if not facts.adding and not facts.removing:
        return
    target = tuple(broker for broker in facts.replicas if broker not in facts.removing)
    isr = facts.isr if facts.led is None else facts.led.isr
    missing = [broker for broker in target if broker not in isr]
    text = f"A reassignment to {_ids(target)} runs: {_ids(facts.replicas)} are assigned for now"
    if missing:
        yield Sentence(
            "reassignment",
            f"{text}, and {_brokers(missing)} must get into the ISR {_ids(isr)} first.",
            RULE_REASSIGNMENT,
            f"{_brokers(missing)} in sync, or `tidegauge reassign-partitions --cancel`",
        )
    else:
        yield Sentence("reassignment", f"{text}, and all of the target are in sync: it is ending.", RULE_REASSIGNMENT)


def _leader(facts: Facts) -> Iterator[Sentence]:
    if facts.leader is None:
        yield from _no_leader(facts)
    elif facts.led is not None:
        place = "the first" if facts.replicas[:1] == (facts.leader,) else "not the first"
        yield Sentence(
            "leader",
            f"Broker {facts.leader} leads in epoch {facts.leader_epoch}; it is {place} of the assignment "
            f"{_ids(facts.replicas)}.",
            RULE_ELECTION,
            ""
            if place == "the first"
            else "tidegauge elect-leaders --election-type preferred, when the first is in sync",
            facts.leader,
        )
        yield from explain_beside_isr(facts)
    elif facts.leader in facts.kafka:
        yield from _kafka_leads(facts, facts.leader)
    elif facts.leader in facts.silent:
        yield Sentence(
            "leader",
            f"Broker {facts.leader} leads in epoch {facts.leader_epoch} but does not respond: it is paused, "
            f"partitioned or has just died. While its {facts.words.membership} lasts the controller counts it as "
            "alive, and only a preferred election or a reassignment makes another one the leader.",
            facts.words.rule_alive,
            f"start, resume or heal broker {facts.leader}, or wait until its {facts.words.membership} expires",
            facts.leader,
        )
    elif facts.leader in facts.offline:
        yield Sentence(
            "leader",
            f"Broker {facts.leader} was the leader in epoch {facts.leader_epoch} and has its log offline: it serves "
            "the partition no more, and no other leader is elected yet.",
            RULE_FAILED_DIRECTORY,
            "the controller elects by itself, as soon as it is notified",
            facts.leader,
        )
    elif (refusal := facts.refusal(facts.leader, LEADER_AND_ISR)) is not None:
        yield Sentence(
            "leader",
            f"Broker {facts.leader} was elected in epoch {facts.leader_epoch} and does not lead: it refused the "
            f"controller's LeaderAndIsr with {refusal.error}.",
            RULE_REFUSED,
            "",
            facts.leader,
        )
    else:
        yield Sentence(
            "leader",
            f"Broker {facts.leader} was elected in epoch {facts.leader_epoch} and does not lead yet: "
            f"{facts.words.why_not_yet}.",
            facts.words.rule_leads,
            "",
            facts.leader,
        )


def _refusals(facts: Facts) -> Iterator[Sentence]:
    """Say which requests between controller and brokers were refused, and if the topic's id is not one."""
    for one in facts.refusals:
        if one.request == ALTER_PARTITION:
            yield Sentence(
                "refusal",
                f"The controller refused broker {one.broker}'s AlterPartition of leader epoch {one.leader_epoch} with "
                f"{one.error}, {_span(one.ago_ms)} ago: the ISR was not changed.",
                RULE_VERDICT,
                f"a {facts.words.news} that the broker accepts",
                one.broker,
            )
            continue
        ids = ""
        if one.topic_id and one.own_topic_id and one.topic_id != one.own_topic_id:
            ids = f" The request has the topic id {one.topic_id}, the replica's partition.metadata {one.own_topic_id}."
        yield Sentence(
            "refusal",
            f"Broker {one.broker} refused the controller's LeaderAndIsr of leader epoch {one.leader_epoch} with "
            f"{one.error}, {_span(one.ago_ms)} ago: it goes on as before.{ids}",
            RULE_REFUSED,
            "a LeaderAndIsr of the controller that the broker accepts",
            one.broker,
        )
    if facts.topic_ids.differ:
        yield Sentence(
            "refusal",
            f"The topic's id is not the same everywhere: {facts.topic_ids.listed}.",
            RULE_TOPIC_ID,
            "the id of the replicas in the topic's znode, and then a new controller (a tool that rewrites the znode "
            "must keep topic_id: KAFKA-14190)",
        )


def _processes(facts: Facts) -> Iterator[Sentence]:
    """Say how the processes of brokers that are down have ended."""
    for broker, end in sorted(facts.ends.items()):
        yield Sentence("process", f"{end}.", RULE_PROCESS, f"`tidegauge start {broker}`", broker)


def _silent_followers(facts: Facts, explained: Collection[int | str | None]) -> Iterator[Sentence]:
    """Say which other replicas are on registered brokers that do not respond; ``explained``: brokers named already."""
    for broker in facts.replicas:
        if broker not in facts.silent or broker in explained:
            continue
        isr = facts.isr if facts.led is None else facts.led.isr
        stays = ""
        if broker in isr:
            lags = "" if facts.led is None else ", or it has lagged for replica.lag.time.max.ms: acks=all waits for it"
            stays = f" It stays in the ISR {_ids(isr)} until its {facts.words.membership} ends{lags}."
        yield Sentence(
            "follower",
            f"Broker {broker} is {facts.words.is_member} and does not respond: it is paused, partitioned or has just "
            f"died.{stays}",
            facts.words.rule_alive,
            f"start, resume or heal broker {broker}, or wait until its {facts.words.membership} expires",
            broker,
        )


def _kafka_leads(facts: Facts, leader: int) -> Iterator[Sentence]:
    yield Sentence(
        "leader",
        f"Broker {leader}, an Apache Kafka broker, leads in epoch {facts.leader_epoch}. It can't be asked over "
        "gRPC, so its LEO, its HW and what it knows of its followers are not known here.",
        RULE_ELECTION,
        "Kafka's own tools ask it; what the others hold: tidegauge describe-topic --replicas",
        leader,
    )
    for broker, hw in sorted(facts.own_hws.items()):
        yield Sentence("follower", f"Broker {broker} follows it, and has the HW at {hw}.", RULE_LATE, "", broker)


def _health(facts: Facts) -> Iterator[Sentence]:
    """Say what keeps the controller from its work, if metadata say who it is."""
    if not facts.words.names_controller:
        return
    if facts.controller is None:
        yield Sentence(
            "health",
            "There is no active controller now: no leader is elected and no ISR changes until there is one.",
            RULE_CONTROLLER,
            "a live broker that reaches ZooKeeper becomes the controller by itself",
        )
    elif facts.controller in facts.silent:
        yield Sentence(
            "health",
            f"Broker {facts.controller} is the controller and does not respond: no leader is elected and no ISR "
            "changes until it does, or its session ends and another broker is the controller.",
            RULE_CONTROLLER,
            f"start, resume or heal broker {facts.controller}, or wait until its {facts.words.membership} expires",
            facts.controller,
        )
    if facts.settings_problem:
        yield Sentence(
            "health",
            "No broker that responds could read in ZooKeeper in time. As long as ZooKeeper does not respond no session "
            "ends, no leader is elected and no ISR changes; if it runs, and only these brokers can't reach it, their "
            "sessions end there.",
            RULE_ZOOKEEPER,
            "a ZooKeeper that responds",
        )
        yield Sentence(
            "health",
            f"The topic's settings are not known, so that min.insync.replicas is taken as {facts.min_isr}: "
            f"{facts.settings_problem}.",
            facts.words.rule_settings,
            "a ZooKeeper that responds",
        )


def _lab(facts: Facts) -> Iterator[Sentence]:
    """Say which faults and holds of the lab are in force."""
    for broker in sorted(facts.held):
        yield Sentence(
            "lab",
            f"The fetches of broker {broker} are held, so that it copies and acknowledges no records of {facts.at}.",
            RULE_FETCH,
            f"tidegauge step-fetch {facts.at} --broker {broker}, or hold-fetch {facts.at} --broker {broker} --release",
            broker,
        )
    for broker, count in facts.faulty.items():
        yield Sentence(
            "lab",
            f"{counted(count, 'fault')} of the lab {'is' if count == 1 else 'are'} in force in broker "
            f"{broker}: tidegauge faults shows which.",
            facts.words.rule_alive if broker == facts.leader else RULE_FETCH,
            "tidegauge faults --clear",
            broker,
        )


def _no_leader(facts: Facts) -> Iterator[Sentence]:
    usable = [one for one in facts.replicas if one in facts.live and one not in facts.offline]
    members = [one for one in facts.isr if one in usable]
    if members:
        yield Sentence(
            "leader",
            f"There is no leader in epoch {facts.leader_epoch}, though {_brokers(members)} of the ISR {_are(members)} "
            "registered: an election is due.",
            RULE_ELECTION,
            "the controller elects by itself; if it stays so, look at its log",
        )
        return
    if has_eligible_leaders(facts):
        yield from explain_without_isr(facts)
        return
    why = "; ".join(_whereabouts(facts, one) for one in facts.isr)
    if facts.unclean and usable:
        text = f"No member of the ISR {_ids(facts.isr)} can lead ({why}), but {_brokers(usable)} may, uncleanly: due."
        yield Sentence("leader", f"There is no leader. {text}", RULE_UNCLEAN, "the controller elects by itself")
        return
    yield Sentence(
        "leader",
        f"There is no leader: no member of the ISR {_ids(facts.isr)} can lead ({why}).",
        RULE_ELECTION,
        _what_brings_a_leader(facts),
    )
    unregistered = [one for one in facts.replicas if one not in facts.isr and one not in facts.live]
    if unregistered:
        alone = "may lead uncleanly" if facts.unclean else "does not lead: committed records may be missing there"
        yield Sentence(
            "leader",
            f"{_brokers(unregistered).capitalize()} {_are(unregistered)} not registered either, and not in the ISR: "
            f"one that returns alone {alone}.",
            RULE_UNCLEAN,
        )
    if usable:
        yield Sentence(
            "leader",
            f"{_brokers(usable).capitalize()} {_are(usable)} alive but not in the ISR, so committed records may be "
            "missing there.",
            RULE_UNCLEAN,
            f"tidegauge elect-leaders --election-type unclean --topic {facts.at.topic} --partition "
            f"{facts.at.partition}: what only the ISR has is lost",
        )


def _what_brings_a_leader(facts: Facts) -> str:
    """Return what makes a member of the ISR electable, if none is."""
    absent = [one for one in facts.isr if one not in facts.live]
    failed = [one for one in facts.isr if one in facts.live]
    ways = []
    if absent:
        one_of = "it" if len(absent) == 1 else "any one of them"
        ways.append(f"start {_brokers(absent)}: {one_of} is elected as soon as it is registered")
    if failed:
        ways.append(f"a healthy log directory, and a restart of {_brokers(failed)}")
    return "; or ".join(ways)


def _whereabouts(facts: Facts, broker: int) -> str:
    if broker not in facts.live:
        return f"broker {broker} is not registered"
    return f"broker {broker} has its log offline" if broker in facts.offline else f"broker {broker} is registered"


# The high watermark


def _high_watermark(facts: Facts, led: Led) -> Iterator[Sentence]:
    if led.hw >= led.leo:
        yield Sentence(
            "high-watermark",
            f"The HW is {led.hw}, the end of the leader's log: every replica that counts has all records.",
            RULE_HW,
        )
        return
    missing = led.leo - led.hw
    if not may_move(len(led.isr), facts.effective_min_isr):
        yield Sentence(
            "high-watermark",
            f"The HW is at {led.hw}, {missing} below the leader's LEO {led.leo}: the ISR {_ids(led.isr)} has "
            f"{len(led.isr)} of the {counted(facts.effective_min_isr, 'member')} that min.insync.replicas demands.",
            RULE_MIN_ISR,
            "a replica that joins the ISR, or a lower min.insync.replicas",
        )
        return
    holders = [one for one in led.remotes if _counts(facts, led, one) and _leo(led, one) < led.leo]
    lowest = min((_leo(led, one) for one in holders), default=led.leo)
    if lowest > led.hw:
        yield Sentence(
            "high-watermark",
            f"The HW is {led.hw} and may be {lowest} by what the leader knows: it moves with the next fetch.",
            RULE_HW,
        )
        return
    first = [one for one in holders if _leo(led, one) == lowest]
    yield Sentence(
        "high-watermark",
        f"The HW is at {led.hw}, {missing} below the leader's LEO {led.leo}: {_brokers(first)} "
        f"{'holds' if len(first) == 1 else 'hold'} it back.",
        RULE_HW,
    )
    for one in holders:
        yield _holder(facts, led, one)


def _counts(facts: Facts, led: Led, broker: int) -> bool:
    """Return whether the high watermark waits for a follower, by the known lag time."""
    progress = _Progress(broker, led.remotes[broker])
    lag_ms = _NO_LAG_KNOWN if facts.lag_ms is None else facts.lag_ms
    return bounds_high_watermark(progress, led.leo, led.maximal_isr, facts.live, 0, lag_ms)


class _Progress:
    """A follower's progress as the leader reported it, on a clock that reads 0 at the time of the report."""

    __slots__ = ("broker_id", "last_caught_up_time_ms", "log_end_offset")

    def __init__(self, broker_id: int, remote: Remote) -> None:
        self.broker_id = broker_id
        self.log_end_offset = -1 if remote.leo is None else remote.leo
        self.last_caught_up_time_ms = _NEVER if remote.caught_up_ago_ms is None else -remote.caught_up_ago_ms


_NEVER = -(2**62)
_NO_LAG_KNOWN = -1
"""A lag time within which no follower counts as caught up, for a leader that did not report its own."""


def _leo(led: Led, broker: int) -> int:
    known = led.remotes[broker].leo
    return -1 if known is None else known


def _holder(facts: Facts, led: Led, broker: int) -> Sentence:
    remote = led.remotes[broker]
    where = "has not fetched in this epoch" if remote.leo is None else f"has fetched up to {remote.leo}"
    subject = f"Broker {broker} {where}"
    if broker not in led.maximal_isr:
        wait_ms = _left_ms(facts, remote)
        return Sentence(
            "high-watermark",
            f"{subject}; it is not in the ISR but was caught up {_ago(remote)}: it counts for {_span(wait_ms)} more.",
            RULE_CAUGHT_UP,
            "its next fetches; or that time",
            broker,
            wait_ms,
        )
    if broker not in led.isr:
        text, rule, change, wait_ms = (
            "; it is about to join the ISR and counts already.",
            RULE_PENDING,
            "its fetches",
            None,
        )
    elif broker not in facts.live:
        text = "; it is no longer registered, and the controller is about to remove it from the ISR."
        rule, change, wait_ms = facts.words.rule_death, f"the controller's next {facts.words.news}", None
    else:
        return _lagging_member(facts, remote, broker, subject)
    return Sentence("high-watermark", subject + text, rule, change, broker, wait_ms)


def _lagging_member(facts: Facts, remote: Remote, broker: int, subject: str) -> Sentence:
    silent = ", and does not respond (if it has died, the end of its session removes it, too)"
    silent = silent if broker in facts.silent else ""
    rule, change = RULE_LAG, "its next fetches, or that time"
    left_ms = _left_ms(facts, remote)
    if left_ms is None or facts.lag_ms is None:
        text, wait_ms = "it leaves the ISR when its time is over, if it does not catch up", None
    elif facts.obstacle:
        rule, change, wait_ms = RULE_ALTER, f"its next fetches, or {facts.obstacle}, when it does again", None
        text = (
            f"it was caught up {_ago(remote)}; its removal from the ISR, due after {_span(facts.lag_ms)}, waits for "
            f"{facts.obstacle}"
        )
    elif (refusal := facts.refusal(facts.leader, ALTER_PARTITION)) is not None:
        change = f"its next fetches, or a {facts.words.news} that the leader accepts"
        rule, wait_ms = RULE_VERDICT, None
        text = (
            f"it was caught up {_ago(remote)}: the controller refused a change of the ISR with {refusal.error}, "
            f"{_span(refusal.ago_ms)} ago"
        )
    elif (remote.caught_up_ago_ms or 0) > 2 * facts.lag_ms:
        rule, change, wait_ms = RULE_ALTER, "its next fetches, or the controller's verdict", None
        text = f"it was caught up {_ago(remote)}: its removal from the ISR is overdue, and not written yet"
    elif left_ms > 0:
        wait_ms = left_ms + facts.lag_ms // 2
        text = (
            f"it was caught up {_ago(remote)}; if it does not catch up it leaves the ISR in {_span(left_ms)} to "
            f"{_span(wait_ms)}"
        )
    else:
        wait_ms = facts.lag_ms // 2
        text = f"it was caught up {_ago(remote)}: its removal from the ISR is due within {_span(wait_ms)}"
    return Sentence("high-watermark", f"{subject}{silent}; {text}.", rule, change, broker, wait_ms)


def _left_ms(facts: Facts, remote: Remote) -> int | None:
    if facts.lag_ms is None or remote.caught_up_ago_ms is None:
        return None if facts.lag_ms is None else 0
    return max(0, facts.lag_ms - remote.caught_up_ago_ms)


# Replicas that are not in the ISR


def _out_of_sync(facts: Facts, led: Led) -> Iterator[Sentence]:
    for broker in facts.replicas:
        if broker in led.isr or broker == facts.leader:
            continue
        text, rule, change = _why_out(facts, led, broker)
        yield Sentence("isr", f"Broker {broker} is not in the ISR {_ids(led.isr)}: {text}.", rule, change, broker)


def _why_out(facts: Facts, led: Led, broker: int) -> tuple[str, str, str]:
    if broker not in facts.live:
        text = f"it is {facts.words.is_none}, so it is dead, paused or partitioned"
        return text, facts.words.rule_death, f"start, resume or heal broker {broker}"
    if broker in facts.offline:
        return (
            "its replica is offline: the log, or its log directory, has failed",
            RULE_FAILED_DIRECTORY,
            "a healthy log directory, and a restart of the broker",
        )
    refusal = facts.refusal(facts.leader, ALTER_PARTITION)
    if broker in led.maximal_isr and refusal is not None:
        ago = _span(refusal.ago_ms)
        text = f"it has caught up, and the controller refused to add it with {refusal.error}, {ago} ago"
        return text, RULE_VERDICT, f"a {facts.words.news} that the leader accepts"
    if broker in led.maximal_isr:
        return "it has caught up and the controller was asked to add it", RULE_ALTER, "the controller's verdict"
    leo = led.remotes[broker].leo if broker in led.remotes else None
    silent = " and does not respond" if broker in facts.silent else ""
    if leo is None:
        return f"it has not fetched from this leader yet{silent}", RULE_JOIN, "its first fetches"
    obstacle = obstacle_to_joining(leo, led.hw, leo if led.epoch_start is None else led.epoch_start)
    if obstacle == "high-watermark":
        return f"it has {leo} of the {led.hw} committed offsets{silent}, {led.hw - leo} to go", RULE_JOIN, "its fetches"
    if obstacle == "epoch-start":
        return (
            f"it has all up to the HW, but not up to {led.epoch_start}, where the leader's epoch begins{silent}",
            RULE_JOIN,
            "its fetches",
        )
    return f"it has all up to the HW{silent} and is proposed with its next fetch", RULE_JOIN, "its next fetch"


def _late(facts: Facts, led: Led) -> Iterator[Sentence]:
    for broker, hw in sorted(facts.own_hws.items()):
        if hw < led.hw and broker != facts.leader:
            yield Sentence(
                "follower",
                f"Broker {broker} still has the HW at {hw}: the leader's {led.hw} has not arrived yet.",
                RULE_LATE,
                "its next fetch",
                broker,
            )


# Visibility to clients


def _clients(facts: Facts, led: Led) -> Iterator[Sentence]:
    if len(led.isr) < facts.effective_min_isr:
        yield Sentence(
            "producers",
            f"Producers with acks=all are refused: {len(led.isr)} in sync, {facts.effective_min_isr} needed.",
            RULE_ACKS,
            "a replica that joins the ISR, or a lower min.insync.replicas",
        )
    if led.hw < led.leo:
        yield Sentence(
            "consumers", f"Consumers do not see the offsets {led.hw} to {led.leo - 1} yet.", RULE_READ, "a higher HW"
        )
    if led.epoch_start is not None and led.hw < led.epoch_start:
        yield Sentence(
            "consumers",
            f"A request for the latest offset is rejected with OFFSET_NOT_AVAILABLE: the HW {led.hw} has "
            f"not reached {led.epoch_start}, where the leader's epoch begins.",
            RULE_OFFSETS,
            "a higher HW",
        )


def _transactions(facts: Facts, led: Led) -> Iterator[Sentence]:
    """Explain the last stable offset, and the transactions that are open."""
    if facts.transactions is None or led.lso is None:
        return
    for one in explain_open_transactions(facts.at, led.hw, led.lso, facts.transactions):
        yield Sentence("transactions", one.text, one.rule, one.change, wait_ms=one.wait_ms)


# Words


def _ids(brokers: Collection[int]) -> str:
    return ",".join(map(str, brokers)) or "(empty)"


def _brokers(brokers: Collection[int]) -> str:
    names = list(map(str, brokers))
    if len(names) == 1:
        return f"broker {names[0]}"
    return f"brokers {', '.join(names[:-1])} and {names[-1]}"


def _are(brokers: Collection[int]) -> str:
    return "is" if len(brokers) == 1 else "are"


def _ago(remote: Remote) -> str:
    return "never in this epoch" if remote.caught_up_ago_ms is None else f"{_span(remote.caught_up_ago_ms)} ago"


def _span(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "an unknown time"
    return f"{milliseconds} ms" if milliseconds < 1_000 else f"{milliseconds / 1000:.1f} s"
