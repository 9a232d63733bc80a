"""A step is never half done: an effect that fails takes its replica offline, and its directory, and nothing else.

In Kafka every partition of a request is appended, truncated and read by itself (ReplicaManager.appendToLocalLog and
readFromLog, AbstractFetcherThread.processFetchRequest), so a directory that fails concerns its own partitions
(KIP-112).
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from lone_broker import ME, OTHER, A, B, C, LoneBroker, broker_of, fetch, led, produce, role
from memory_broker import MemoryLog, make_batch

from tidegauge.control import (
    IsrVerdict,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.replica.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    AppendAsLeader,
    Effect,
    TruncateFully,
    TruncateLog,
    WriteEpochs,
)
from tidegauge_broker.replica.follower import Follower
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.messages import (
    ACKS_ALL,
    CONSUMER,
    EpochEnd,
    FetchedPartition,
    FetchRound,
    RecordsToDelete,
)
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.roles import Role


def refuse(broker: LoneBroker, *kinds: type[Effect], at: TopicPartition, problem: Exception | None = None) -> None:
    """Effects of these kinds (none: reads) of one partition fail."""

    def faulty(effect: Effect | None, where: TopicPartition) -> None:
        if where == at and (type(effect) in kinds if kinds else effect is None):
            raise problem or StorageError("the disk is full")

    broker.faulty = faulty


def errors(results: Any) -> list[ErrorCode]:
    return [result.error for result in results]


NONE, STORAGE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR


def test_one_append_of_a_produce_fails_and_the_others_are_appended_and_acknowledged() -> None:
    broker = broker_of(A, B, C)
    role(broker, ME, 0, isr=[ME])
    refuse(broker, AppendAsLeader, at=B)
    token = produce(broker, A, B, C)
    assert errors(broker.produced[token]) == [NONE, STORAGE, NONE]
    assert [log.log_end_offset for log in broker.disk.values()] == [1, 0, 1]
    assert broker.core.partition(B).role is Role.OFFLINE
    assert broker.lost == [B]
    assert [note.kind for note in broker.notes if note.topic_partition == B][-1] == "role", "no note of what never was"
    assert not any("log_end_offset" in note.kind for note in broker.notes if note.topic_partition == B)


def test_the_partitions_of_a_directory_fail_together() -> None:
    broker = broker_of(A, B, C)
    broker.home_of = lambda at: at.partition % 2  # A and C share one
    role(broker, ME, 0, isr=[ME])
    refuse(broker, AppendAsLeader, at=A)
    token = produce(broker, A, B, C)
    assert errors(broker.produced[token]) == [STORAGE, NONE, STORAGE]
    assert [log.log_end_offset for log in broker.disk.values()] == [0, 1, 0]
    assert sorted(broker.lost) == [A, C]


def test_a_batch_that_was_not_appended_is_never_acknowledged_though_it_was_settled_with_the_step() -> None:
    """B's ISR is the leader alone, so its part of the request is settled at once, while A still waits for broker 2."""
    broker = broker_of(A, B)
    role(broker, ME, 0, of=[A])
    role(broker, ME, 0, isr=[ME], of=[B])
    refuse(broker, AppendAsLeader, at=B)
    token = produce(broker, A, B, acks=ACKS_ALL)
    assert token not in broker.produced, "A waits for its follower"
    fetch(broker, {A: 1})
    assert errors(broker.produced[token]) == [NONE, STORAGE]


def test_a_produce_that_waits_hears_of_the_failure_at_once() -> None:
    broker = broker_of(A)
    role(broker, ME, 0)
    refuse(broker, AppendAsLeader, at=A)
    token = produce(broker, A, acks=ACKS_ALL)
    assert errors(broker.produced[token]) == [STORAGE]


def test_a_follower_takes_the_records_of_all_partitions_but_the_one_that_failed() -> None:
    """Else the next fetch would acknowledge records that are not in the log."""
    broker = broker_of(A, B, C)
    role(broker, OTHER, 0)
    refuse(broker, AppendAsFollower, at=A)
    chosen = broker.core.next_round(OTHER, broker.now_ms)
    assert isinstance(chosen, FetchRound)
    responses = [FetchedPartition(at, high_watermark=0, log_start_offset=0, records=led("y")) for at in (A, B, C)]
    broker.execute(broker.core.fetch_response_received(OTHER, chosen.request_id, responses, broker.now_ms))
    assert [log.log_end_offset for log in broker.disk.values()] == [0, 1, 1]
    again = broker.core.next_round(OTHER, broker.now_ms)
    assert isinstance(again, FetchRound)
    assert [(part.topic_partition, part.fetch_offset) for part in again.partitions] == [(B, 1), (C, 1)]


def test_truncations_and_epochs_of_other_directories_are_carried_out() -> None:
    broker = broker_of(A, B, C)
    role(broker, ME, 0, isr=[ME])
    produce(broker, A, B, C)
    role(broker, OTHER, 1)
    chosen = broker.core.next_round(OTHER, broker.now_ms)
    refuse(broker, TruncateLog, at=A)
    responses = [FetchedPartition(at, diverging=EpochEnd(-1, 0)) for at in (A, B, C)]
    broker.execute(broker.core.fetch_response_received(OTHER, chosen.request_id, responses, broker.now_ms))
    assert [log.log_end_offset for log in broker.disk.values()] == [1, 0, 0]
    assert [broker.core.partition(at).role for at in (A, B, C)] == [Role.OFFLINE, Role.FOLLOWER, Role.FOLLOWER]


def test_one_of_many_new_leaders_cannot_write_its_epoch() -> None:
    broker = broker_of(A, B, C)
    refuse(broker, WriteEpochs, at=B)
    role(broker, ME, 0)
    assert [log.epochs for log in broker.disk.values()] == [[(0, 0)], [], [(0, 0)]]
    assert sorted(at for at in broker.partitions if broker.core.partition(at).role is Role.LEADER) == [A, C]


def test_a_proposal_is_sent_though_another_partition_fails() -> None:
    broker = broker_of(A, B)
    role(broker, ME, 0, isr=[ME])
    refuse(broker, at=A)
    token = fetch(broker, {A: 0, B: 0})
    produce(broker, A, B)
    token = fetch(broker, {A: 0, B: 0})
    assert [proposal.topic_partition for proposal in broker.proposals] == [A, B]
    assert errors(broker.fetched[token]) == [STORAGE, NONE]
    broker.proposals.clear()
    (proposal,) = [note for note in broker.notes if note.kind == "isr" and note.topic_partition == B][-1:]
    assert proposal.fields["new"] == [ME, OTHER]


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "no whole batch"), ErrorCode.CORRUPT_MESSAGE),
        (ValueError("a defect"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_read_that_fails_is_an_error_of_its_partition_alone_and_takes_nothing_offline(
    problem: Exception, error: ErrorCode
) -> None:
    """ReplicaManager.readFromLog: any other exception becomes the partition's error."""
    broker = broker_of(A, B, C)
    broker.survives_defects = True
    role(broker, ME, 0, isr=[ME])
    produce(broker, A, B, C)
    refuse(broker, at=B, problem=problem)
    token = fetch(broker, {A: 0, B: 0, C: 0}, CONSUMER)
    assert errors(broker.fetched[token]) == [NONE, error, NONE]
    assert [bool(part.records) for part in broker.fetched[token]] == [True, False, True]
    assert broker.core.partition(B).role is Role.LEADER
    assert broker.lost == []


def test_a_partition_that_cannot_be_read_ends_the_wait_of_a_fetch() -> None:
    """A fetch with an error is completed at once (ReplicaManager.fetchMessages), and what the core decided is carried
    out: broker 2 joins the ISR of the other partition.
    """
    broker = broker_of(A, B)
    role(broker, ME, 0, isr=[ME])
    produce(broker, A)
    damaged = TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "no whole batch")
    refuse(broker, at=A, problem=damaged)
    broker.bytes_between = lambda *_: None
    token = fetch(broker, {A: 0, B: 0}, wait_ms=500)
    assert errors(broker.fetched[token]) == [ErrorCode.CORRUPT_MESSAGE, NONE]
    assert B in {proposal.topic_partition for proposal in broker.proposals}


def test_a_defect_in_a_log_effect_takes_one_replica_offline() -> None:
    broker = broker_of(A, B)
    broker.home_of = lambda _at: "the same"
    broker.survives_defects = True
    role(broker, ME, 0, isr=[ME])
    refuse(broker, AppendAsLeader, at=A, problem=ValueError("a defect"))
    token = produce(broker, A, B)
    assert errors(broker.produced[token]) == [STORAGE, NONE]
    assert broker.lost == [A], "its directory is sound"


def test_effects_that_come_while_others_are_carried_out_wait_for_them() -> None:
    """Rule 6: a directory that is reported in the midst of a step is dealt with behind it."""
    broker = broker_of(A, B, C)
    role(broker, ME, 0, isr=[ME])

    def faulty(effect: Effect | None, at: TopicPartition) -> None:
        if isinstance(effect, AppendAsLeader) and at == A:
            broker.executor.fail([C])

    broker.faulty = faulty
    token = produce(broker, A, B, C)
    assert errors(broker.produced[token]) == [NONE, NONE, STORAGE]
    assert broker.disk[C].log_end_offset == 0
    assert broker.core.partition(C).role is Role.OFFLINE


def test_a_second_failure_among_the_effects_of_the_first_is_dealt_with_as_well() -> None:
    """The failure of A completes a fetch that waits for A and B, and B can't be read."""
    broker = broker_of(A, B, C)
    role(broker, ME, 0, isr=[ME])
    produce(broker, B)
    token = fetch(broker, {A: 0, B: 1, C: 0}, CONSUMER, wait_ms=500)
    produce(broker, B)
    assert token in broker.fetched
    waiting = fetch(broker, {A: 0, C: 0}, CONSUMER, wait_ms=500)
    waiting_for_b = fetch(broker, {A: 0, B: 2}, CONSUMER, wait_ms=500)

    def faulty(effect: Effect | None, at: TopicPartition) -> None:
        if (effect is None and at == B) or (isinstance(effect, AppendAsLeader) and at == A):
            raise StorageError("both disks are gone")

    broker.faulty = faulty
    produce(broker, A, B)
    assert errors(broker.fetched[waiting]) == [STORAGE, NONE]
    assert errors(broker.fetched[waiting_for_b]) == [STORAGE, STORAGE]
    assert sorted(broker.lost) == [A, B]
    assert broker.core.partition(C).role is Role.LEADER


def test_no_response_in_the_step_of_a_failure_has_an_offset_that_rests_on_it() -> None:
    """The high watermark of A moved with the append that failed."""
    broker = broker_of(A, B)
    role(broker, ME, 0, isr=[ME])
    token = fetch(broker, {A: 0, B: 0}, CONSUMER, wait_ms=500)
    refuse(broker, AppendAsLeader, at=A)
    produce(broker, A, B)
    (of_a, of_b) = broker.fetched[token]
    assert (of_a.error, of_a.high_watermark, of_a.records) == (STORAGE, -1, b"")
    assert (of_b.error, of_b.high_watermark) == (NONE, 1)


def test_log_starts_of_other_partitions_move() -> None:
    broker = broker_of(A, B)
    role(broker, ME, 0, isr=[ME])
    produce(broker, A, B)
    refuse(broker, AdvanceLogStart, at=A)
    token = object()
    wanted = [RecordsToDelete(A, 1), RecordsToDelete(B, 1)]
    broker.execute(broker.core.delete_records(wanted, 1000, token, broker.now_ms))
    assert broker.disk[B].log_start_offset == 1
    broker.now_ms += 2000
    broker.execute(broker.core.tick(broker.now_ms))
    assert broker.deleted[token][0].error is STORAGE


# Defects in the core itself


def tick_late(broker: LoneBroker) -> None:
    broker.now_ms += 100_000
    broker.execute(broker.core.tick(broker.now_ms))


def delete_records(broker: LoneBroker) -> None:
    wanted = [RecordsToDelete(A, 1), RecordsToDelete(B, 1)]
    broker.execute(broker.core.delete_records(wanted, 1000, "deletion", broker.now_ms))


def verdicts(broker: LoneBroker) -> None:
    fetch(broker, {A: 1, B: 1})
    for one in list(broker.proposals):
        verdict = IsrVerdict(one.topic_partition, NONE, ME, one.leader_epoch, one.new_isr, one.partition_epoch + 1)
        broker.execute(broker.core.isr_verdict(one, verdict, broker.now_ms))


def respond_to_round(broker: LoneBroker) -> None:
    role(broker, OTHER, 1)
    chosen = broker.core.next_round(OTHER, broker.now_ms)
    responses = [FetchedPartition(at, diverging=EpochEnd(-1, 0)) for at in (A, B)]
    broker.execute(broker.core.fetch_response_received(OTHER, chosen.request_id, responses, broker.now_ms))


DEFECTS = {
    "append": (Leader, lambda broker: produce(broker, A, B)),
    "maybe_advance_high_watermark": (Leader, lambda broker: produce(broker, A, B, acks=ACKS_ALL)),
    "fetch": (Leader, lambda broker: fetch(broker, {A: 0, B: 0})),
    "maybe_shrink": (Leader, tick_late),
    "delete_records": (Leader, delete_records),
    "isr_verdict": (Leader, verdicts),
    "begin_epoch": (Leader, lambda broker: role(broker, ME, 1)),
    "fetch_response_received": (Follower, respond_to_round),
    "advance_log_start": (Partition, lambda broker: broker.execute(broker.core.log_start_advanced(A, 1))),
}


@pytest.mark.parametrize("method", DEFECTS)
def test_a_defect_in_a_decision_takes_its_replica_offline_and_every_request_has_a_response(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Kafka an unexpected exception becomes the error of its partition too (ReplicaManager.appendToLocalLog)."""
    owner, act = DEFECTS[method]
    broker = broker_of(A, B)
    broker.survives_defects = True
    role(broker, ME, 0, isr=[ME])
    produce(broker, A, B)
    sound = getattr(owner, method)

    def unsound(self: Any, *args: Any, **options: Any) -> Any:
        at = self.topic_partition if isinstance(self, Partition) else self.partition.topic_partition
        if at == A:
            raise AssertionError("I2")
        return sound(self, *args, **options)

    with monkeypatch.context() as patching:
        patching.setattr(owner, method, unsound)
        token = act(broker)
    assert broker.lost == [A]
    assert broker.core.partition(A).role is Role.OFFLINE
    assert broker.failures[0][:2] == ("FailReplica", A)
    assert broker.core.partition(B).role is (Role.FOLLOWER if method == "fetch_response_received" else Role.LEADER)
    if method in {"append", "maybe_advance_high_watermark"}:
        assert [error is NONE for error in errors(broker.produced[token])] == [False, True]
        assert broker.disk[B].log_end_offset == 2
    if method == "fetch":
        assert errors(broker.fetched[token]) == [ErrorCode.UNKNOWN_SERVER_ERROR, NONE]
        assert broker.fetched[token][1].records
    if method == "delete_records":
        assert broker.disk[B].log_start_offset == 1
    if method == "begin_epoch":
        assert token == {A: STORAGE, B: NONE}
    if method == "fetch_response_received":
        assert [log.log_end_offset for log in broker.disk.values()] == [1, 0], "B took its answer"
    later = produce(broker, A, B)
    assert errors(broker.produced[later])[0] is STORAGE, "until a restart"


# Random steps beside dumb twins


class Twins:
    """One broker with many partitions and failing disks, and beside it one broker for each partition, without a fault.

    Each twin is given its part of every event. So a partition that has not failed must be what its twin is: as if the
    others did not exist.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.partitions = [TopicPartition("t", number) for number in range(self.dice.randint(2, 5))]
        homes = self.dice.randint(1, 3)
        self.broker = broker_of(*self.partitions)
        self.broker.survives_defects = True
        self.broker.home_of = lambda at: at.partition % homes
        self.broker.faulty = self.faulty
        self.twins = {at: broker_of(at) for at in self.partitions}
        self.epochs = dict.fromkeys(self.partitions, -1)
        self.failing: set[object] = set()
        self.fuse = self.dice.randint(0, 30)
        self.shortened: set[TopicPartition] = set()
        self.tokens: list[tuple[object, dict[TopicPartition, object]]] = []
        self.values = 0

    def faulty(self, effect: Effect | None, at: TopicPartition) -> None:
        """The disk of a directory fails at some operation, and again at each later one; some logs fail alone."""
        home = self.broker.home_of(at)
        if home in self.failing:
            raise StorageError("the directory is offline")
        if self.fuse == 0:
            self.fuse = self.dice.randint(5, 60)
            if effect is not None and self.dice.random() < 0.3:
                raise ValueError("a defect")
            self.failing.add(home)
            raise StorageError("the disk failed")
        self.fuse -= 1
        if isinstance(effect, (TruncateLog, TruncateFully, AdvanceLogStart)):
            self.shortened.add(at)

    @property
    def alive(self) -> list[TopicPartition]:
        return [at for at in self.partitions if at not in self.broker.lost]

    def some(self) -> list[TopicPartition]:
        return self.dice.sample(self.partitions, self.dice.randint(1, len(self.partitions)))

    def step(self) -> None:
        for broker in (self.broker, *self.twins.values()):
            broker.now_ms += 100
        self.dice.choice(
            [
                self.elect,
                self.produce,
                self.produce,
                self.fetch,
                self.fetch,
                self.follow,
                self.follow,
                self.delete,
                self.tick,
            ]
        )()
        self.verdicts()
        self.compare()

    def elect(self) -> None:
        chosen = self.some()
        leader = self.dice.choice([ME, OTHER])
        epoch = max(self.epochs[at] for at in chosen) + 1
        isr = self.dice.choice([[ME, OTHER], [leader]])
        if leader == OTHER and isr == [OTHER]:
            isr = [OTHER]
        for at in chosen:
            self.epochs[at] = epoch
            role(self.twins[at], leader, epoch, isr=isr, of=[at])
        role(self.broker, leader, epoch, isr=isr, of=chosen)

    def produce(self) -> None:
        chosen, acks = self.some(), self.dice.choice([ACKS_ALL, 1])
        self.values += 1
        batch = make_batch(str(self.values))
        parts = {at: produce(self.twins[at], at, acks=acks, batch=batch) for at in chosen}
        self.tokens.append((produce(self.broker, *chosen, acks=acks, batch=batch), dict(parts)))

    def fetch(self) -> None:
        replica, wait_ms = self.dice.choice([OTHER, CONSUMER]), self.dice.choice([0, 300])
        offsets = {
            at: self.dice.randint(0, self.twins[at].disk[at].log_end_offset) for at in self.some() if self.hosted(at)
        }
        for at, offset in offsets.items():
            fetch(self.twins[at], {at: offset}, replica, wait_ms)
        token = fetch(self.broker, offsets, replica, wait_ms)
        for responded in self.broker.fetched.get(token, ()):
            log = self.broker.disk[responded.topic_partition]
            held = log.read(offsets[responded.topic_partition], log.log_end_offset, 1 << 20)
            assert held.startswith(responded.records)

    def hosted(self, at: TopicPartition) -> bool:
        return self.epochs[at] >= 0

    def follow(self) -> None:
        """Broker 2 responds to a round: the next record, or that it is shorter."""
        chosen = self.broker.core.next_round(OTHER, self.broker.now_ms)
        rounds = {at: twin.core.next_round(OTHER, twin.now_ms) for at, twin in self.twins.items()}
        responses = []
        for at, asked in rounds.items():
            if not isinstance(asked, FetchRound):
                continue
            offset = asked.partitions[0].fetch_offset
            if offset and self.dice.random() < 0.2:
                to = EpochEnd(
                    self.twins[at].core.partition(at).epochs.latest_epoch or 0, self.dice.randint(0, offset - 1)
                )
                response = FetchedPartition(at, diverging=to)
            else:
                self.values += 1
                records = led(str(self.values), epoch=self.epochs[at], offset=offset)
                response = FetchedPartition(at, high_watermark=offset, log_start_offset=0, records=records)
            responses.append(response)
            twin = self.twins[at]
            twin.execute(twin.core.fetch_response_received(OTHER, asked.request_id, [response], twin.now_ms))
        if isinstance(chosen, FetchRound):
            self.broker.execute(
                self.broker.core.fetch_response_received(OTHER, chosen.request_id, responses, self.broker.now_ms)
            )

    def delete(self) -> None:
        chosen = [RecordsToDelete(at, None) for at in self.some() if self.hosted(at)]
        for wanted in chosen:
            twin = self.twins[wanted.topic_partition]
            twin.execute(twin.core.delete_records([wanted], 500, object(), twin.now_ms))
        self.broker.execute(self.broker.core.delete_records(chosen, 500, object(), self.broker.now_ms))

    def tick(self) -> None:
        gone_ms = self.dice.choice([0, 500, 40_000])
        for broker in (self.broker, *self.twins.values()):
            broker.now_ms += gone_ms
            broker.execute(broker.core.tick(broker.now_ms))

    def verdicts(self) -> None:
        """The controller takes every proposal."""
        for broker in (self.broker, *self.twins.values()):
            proposals, broker.proposals = broker.proposals, []
            for one in proposals:
                verdict = IsrVerdict(
                    one.topic_partition, NONE, OTHER, one.leader_epoch, one.new_isr, one.partition_epoch + 1
                )
                broker.execute(broker.core.isr_verdict(one, verdict, broker.now_ms))

    def compare(self) -> None:
        for at in self.alive:
            twin = self.twins[at]
            if not self.hosted(at):
                continue
            assert self.broker.disk[at].content() == twin.disk[at].content(), at
            assert self.broker.disk[at].epochs == twin.disk[at].epochs, at
            assert self.broker.view(at, self.broker.now_ms) == twin.view(at, twin.now_ms), at
            mine = [note for note in self.broker.notes if note.topic_partition == at]
            assert mine == [note for note in twin.notes if note.topic_partition == at], at

    def end(self) -> None:
        """All that waits runs out; then every request has one response, and none is a lie."""
        for broker in (self.broker, *self.twins.values()):
            broker.now_ms += 100_000
            broker.execute(broker.core.tick(broker.now_ms))
        for token, parts in self.tokens:
            for result in self.broker.produced[token]:
                at = result.topic_partition
                if at in self.alive:
                    (expected,) = self.twins[at].produced[parts[at]]
                    assert (result.error, result.base_offset) == (expected.error, expected.base_offset)
                elif result.error is NONE:
                    assert at in self.shortened or is_held(self.broker.disk[at], result.base_offset)
        assert not any(self.broker.core.waiting_operations().values())


def is_held(log: MemoryLog, offset: int) -> bool:
    return any(read_header(data).base_offset == offset for _, data in log.batches)


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_every_partition_that_did_not_fail_is_as_if_the_others_did_not_exist(first_seed: int) -> None:
    """Random elections, appends, fetches, truncations, deletions and timeouts over disks and logs that fail."""
    failures = 0
    for seed in range(first_seed, first_seed + 50):
        twins = Twins(seed)
        for _ in range(40):
            twins.step()
        twins.end()
        failures += len(twins.broker.lost)
    assert failures > 50, "the disks did fail"
