"""Golden transcripts: a dozen stories of the replication core, each with every event and every effect in a text file.

A change of the core's behaviour shows as a difference of these files. ``make transcripts`` writes them again; the
difference is then reviewed, line by line, as any other change.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from core_harness import AT
from transcript import Transcribed

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import CoreSettings, TopicRules

DIRECTORY = Path(__file__).with_name("transcripts")
REWRITE = "REWRITE_TRANSCRIPTS"
OTHER = TopicPartition(AT.topic, 1)
LAG_MS = 30_000
SETTINGS = CoreSettings(replica_lag_time_max_ms=LAG_MS)


def acks_all() -> Transcribed:
    cluster = Transcribed(
        "A record is committed. The leader appends it, both followers fetch it, and their next requests tell the "
        "leader that they have it: the high watermark moves, and the producer, which asked for acks=all, is answered."
    )
    cluster.produce(1, "m1")
    cluster.fetch(2)
    cluster.fetch(3)
    cluster.say("The followers ask from offset 1: only now does the leader know that they have the record.")
    cluster.fetch(2)
    cluster.fetch(3)
    return cluster


def acks_1_and_a_consumer() -> Transcribed:
    cluster = Transcribed(
        "With acks=1 the leader answers as soon as it has appended. A consumer waits all the same until the record is "
        "below the high watermark: its fetch stays in purgatory.",
        assignment=(1, 2),
    )
    cluster.consume(1, 0, wait_ms=5_000)
    cluster.produce(1, "m1", acks=1)
    cluster.fetch(2)
    cluster.say("The follower's next request moves the high watermark and wakes the consumer's fetch.")
    cluster.fetch(2)
    return cluster


def a_fetch_waits() -> Transcribed:
    cluster = Transcribed(
        "A follower's fetch that finds nothing new waits in purgatory (min bytes 1); an append completes it, or its "
        "wait ends without records.",
        assignment=(1, 2),
    )
    first = cluster.park(2)
    cluster.produce(1, "m1", acks=1)
    cluster.deliver_response(first)
    second = cluster.park(2)
    cluster.advance(500)
    cluster.deliver_response(second)
    return cluster


def isr_shrinks() -> Transcribed:
    cluster = Transcribed(
        "A follower that has not caught up for replica.lag.time.max.ms leaves the ISR. Until the controller has "
        "accepted that, the leader counts the follower still; afterwards the record is committed without it.",
        assignment=(1, 2),
        settings=SETTINGS,
    )
    cluster.produce(1, "m1", timeout_ms=120_000)
    cluster.advance(LAG_MS + 1)
    cluster.alter_partition(1)
    return cluster


def isr_expands() -> Transcribed:
    cluster = isr_shrinks()
    cluster.say(
        "The follower fetches again. It joins once its log end offset has reached the high watermark, and the start of "
        "the leader's epoch (KAFKA-7128). From the proposal on the leader waits for it, accepted or not (KIP-497)."
    )
    cluster.fetch(2)
    cluster.fetch(2)
    cluster.produce(1, "m2")
    cluster.alter_partition(1)
    cluster.fetch(2)
    cluster.fetch(2)
    return cluster


def a_stale_proposal() -> Transcribed:
    cluster = Transcribed(
        "A leader proposes an ISR for a leader epoch that is no longer the controller's: FENCED_LEADER_EPOCH. The "
        "proposal stays pending until the newer state arrives by LeaderAndIsr (KAFKA-12686), and only that ends it.",
        assignment=(1, 2),
        settings=SETTINGS,
    )
    cluster.produce(1, "m1", acks=1)
    cluster.advance(LAG_MS + 1)
    cluster.say("Meanwhile the controller has begun a new leader epoch, of which broker 1 has not heard yet.")
    cluster.impose(1, (1, 2))
    proposal, verdict = cluster.decide_isr(1)
    cluster.tell_verdict(1, proposal, verdict)
    cluster.deliver()
    return cluster


def min_isr() -> Transcribed:
    cluster = Transcribed(
        "min.insync.replicas=2 and an ISR of one: acks=all is refused before anything is appended, acks=1 is not, and "
        "the high watermark stands still (KIP-966).",
        assignment=(1, 2),
        settings=SETTINGS,
        rules=TopicRules(min_insync_replicas=2),
    )
    cluster.produce(1, "m1", acks=1)
    cluster.advance(LAG_MS + 1)
    cluster.alter_partition(1)
    cluster.produce(1, "m2")
    cluster.produce(1, "m3", acks=1)
    return cluster


def a_produce_times_out() -> Transcribed:
    cluster = Transcribed(
        "A record that is not committed in time is answered with REQUEST_TIMED_OUT; it stays in the log, and is "
        "committed later all the same: the error is not definite.",
        assignment=(1, 2),
        settings=SETTINGS,
    )
    cluster.produce(1, "m1", timeout_ms=1_000)
    cluster.advance(1_000)
    cluster.fetch(2)
    cluster.fetch(2)
    return cluster


def idempotence() -> Transcribed:
    cluster = Transcribed(
        "An idempotent producer sends a batch twice: the second is answered with the first one's offset, and not "
        "appended. A gap in the sequence numbers is refused (KIP-98).",
        assignment=(1,),
    )
    for sequence in (0, 0, 5, 1):
        cluster.produce(1, f"m{sequence}", producer_id=7, producer_epoch=0, sequence=sequence)
    return cluster


def a_new_leader() -> Transcribed:
    cluster = Transcribed(
        "The leader dies with a record that nobody else has. Broker 2 leads in a new epoch and writes another record "
        "at the same offset. When broker 1 comes back and fetches, the response names where the logs diverge "
        "(KIP-320): it truncates, and fetches the true record.",
        assignment=(1, 2),
    )
    cluster.produce(1, "m1")
    cluster.settle()
    cluster.say("m2 is on broker 1 alone when that dies; it was not acknowledged.")
    cluster.produce(1, "m2")
    cluster.kill(1)
    cluster.expire_session(1)
    cluster.deliver()
    cluster.produce(2, "m3", acks=1)
    cluster.start(1)
    cluster.deliver()
    cluster.fetch(1)
    cluster.fetch(1)
    cluster.fetch(1)
    cluster.alter_partition(2)
    return cluster


def by_epoch_question() -> Transcribed:
    cluster = Transcribed(
        "The same under replica.truncation.rule=kip-101: before its first fetch the follower asks the leader where its "
        "newest epoch ends, and truncates to that (OffsetsForLeaderEpoch).",
        assignment=(1, 2),
        settings=CoreSettings(truncation_rule="kip-101"),
    )
    cluster.produce(1, "m1")
    cluster.settle()
    cluster.produce(1, "m2")
    cluster.kill(1)
    cluster.expire_session(1)
    cluster.deliver()
    cluster.produce(2, "m3", acks=1)
    cluster.start(1)
    cluster.deliver()
    cluster.fetch(1)
    cluster.fetch(1)
    return cluster


def fenced_epochs() -> Transcribed:
    cluster = Transcribed(
        "A request carries the leader epoch that its sender knows. A smaller one than the leader's is refused with "
        "FENCED_LEADER_EPOCH (the sender must update its metadata), a larger one with UNKNOWN_LEADER_EPOCH (the leader "
        "must). LeaderAndIsr of an epoch that is not newer changes nothing.",
        assignment=(1, 2),
    )
    cluster.produce(1, "m1")
    cluster.settle()
    request = cluster.impose(1, (1, 2))
    cluster.deliver(1)
    cluster.consume(1, 0, epoch=0)
    cluster.consume(1, 0, epoch=2)
    cluster.consume(1, 0, epoch=1)
    cluster.hand_over(1, request)
    return cluster


def a_directory_fails() -> Transcribed:
    cluster = Transcribed(
        "One of two log directories of the leader fails. The produce that waits for both partitions is answered with "
        "an error for the one; the other partition goes on.",
        assignment=(1, 2),
        partitions=2,
    )
    cluster.produce(1, "m1", partitions=(AT, OTHER))
    cluster.fail_directory(1, AT)
    cluster.produce(1, "m2", partitions=(AT, OTHER), acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    return cluster


STORIES: tuple[Callable[[], Transcribed], ...] = (
    acks_all,
    acks_1_and_a_consumer,
    a_fetch_waits,
    isr_shrinks,
    isr_expands,
    a_stale_proposal,
    min_isr,
    a_produce_times_out,
    idempotence,
    a_new_leader,
    by_epoch_question,
    fenced_epochs,
    a_directory_fails,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_core_does_what_the_transcript_says(story: Callable[[], Transcribed]) -> None:
    path = DIRECTORY / f"{story.__name__}.txt"
    text = story().text
    if os.environ.get(REWRITE):
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    difference = "\n".join(
        difflib.unified_diff(expected.splitlines(), text.splitlines(), "transcript", "the core", lineterm="")
    )
    assert not difference, f"{path.name} says otherwise; if the core is right: make transcripts\n{difference}"


def test_every_transcript_has_its_story() -> None:
    assert {path.name for path in DIRECTORY.iterdir()} == {f"{story.__name__}.txt" for story in STORIES}
