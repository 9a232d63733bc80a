"""A cluster that writes down each event that a core handles, and below it every resulting effect.

``transcripts/*.txt`` hold the lines. An event begins at the margin. Its effects are indented, in the
order in which the core returned them, which is the order in which they are carried out. Comments begin with ``#``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core_harness import AT, Cluster, Exchange, Pending
from memory_broker import START_MS, Broker

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    NO_LEADER,
    IsrProposal,
    IsrVerdict,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    AppendAsLeader,
    DeleteLog,
    Effect,
    FailReplica,
    FetchersChanged,
    LeadershipChanged,
    LogLine,
    Note,
    ProposeIsr,
    RespondToDeleteRecords,
    RespondToFetch,
    RespondToProduce,
    TruncateFully,
    TruncateLog,
    WriteEpochs,
)
from tidegauge_broker.replica.messages import CoreSettings, EpochRound, FetchResult, TopicRules

WIDTH = 116


class WritingBroker(Broker):
    """A broker that hands each step's effects to the transcript before they are carried out."""

    def __init__(self, cluster: Transcribed, broker_id: int, settings: CoreSettings, rules: Mapping[str, TopicRules]):
        super().__init__(broker_id, settings, rules)
        self._cluster = cluster

    def execute(self, effects: Iterable[Effect]) -> list[Effect]:
        done = list(effects)
        self._cluster.write_effects(self.broker_id, done)
        return super().execute(done)


class Transcribed(Cluster):
    """A cluster that writes down its transcript. ``lines`` is the transcript so far."""

    def __init__(self, title: str, brokers: Sequence[int] = (1, 2, 3), **options: Any) -> None:
        self.lines: list[str] = []
        self._names: dict[object, str] = {}
        self._counts: dict[str, int] = {}
        self._upcoming = ""
        self._is_ticking = False
        self.say(title)
        super().__init__(brokers, **options)

    @property
    def text(self) -> str:
        """The transcript as a file holds it."""
        return "\n".join(self.lines) + "\n"

    def say(self, words: str) -> None:
        """Write a comment."""
        if self.lines:
            self.lines.append("")
        self.lines += [f"# {line}" for line in textwrap.wrap(" ".join(words.split()), WIDTH - 2)]

    def make_broker(self, broker_id: int, settings: CoreSettings, rules: Mapping[str, TopicRules]) -> Broker:
        return WritingBroker(self, broker_id, settings, rules)

    def event(self, words: str) -> None:
        """Write an event, with the time that has passed."""
        at = f"{self.now_ms - START_MS:>6} ms  "
        self.lines += ["", *textwrap.wrap(words, WIDTH, initial_indent=at, subsequent_indent=" " * 15)]

    def write_effects(self, broker_id: int, effects: Sequence[Effect]) -> None:
        """Write what a core wants done."""
        if self._is_ticking:
            if not effects:
                return
            self.event(f"broker {broker_id} ticks")
        for effect in effects:
            self.lines += textwrap.wrap(self._words(effect), WIDTH, initial_indent=" " * 15, subsequent_indent=" " * 19)
        if not effects:
            self.lines.append(" " * 15 + "(no effect)")

    # Events

    def hand_over(self, broker_id: int, message: Any) -> list[PartitionsResponse]:
        match message:
            case UpdateMetadataRequest():
                pass  # fills the metadata cache; no core decides on it
            case LeaderAndIsrRequest():
                states = "; ".join(_state(item.state) for item in message.partitions)
                self.event(f"broker {broker_id} <- LeaderAndIsr: {states}")
            case StopReplicaRequest():
                parts = ", ".join(f"{one.topic_partition}{', delete' * one.delete}" for one in message.partitions)
                self.event(f"broker {broker_id} <- StopReplica: {parts}")
        responses = super().hand_over(broker_id, message)
        for response in responses:
            errors = ", ".join(f"{at} {error.name}" for at, error in sorted(response.partitions.items()))
            self.lines.append(f"{'':15}-> {response.error.name}{': ' * bool(errors)}{errors}")
        return responses

    def produce(self, broker_id: int, *values: str, **options: Any) -> Pending:
        acks = options.get("acks", -1)
        sequence = options.get("sequence")
        of = "" if sequence is None else f", producer {options['producer_id']}, sequence {sequence}"
        to = ", ".join(map(str, options.get("partitions", (AT,))))
        name = self._upcoming = self._next("produce")
        self.event(
            f"broker {broker_id} <- {name}: {' '.join(map(repr, values))} to {to}, "
            f"acks={'all' if acks == -1 else acks}{of}"
        )
        pending = super().produce(broker_id, *values, **options)
        self._names[pending] = name
        return pending

    def consume(self, broker_id: int, *offsets: int, **options: Any) -> Pending:
        name = self._upcoming = self._next("consumer's fetch")
        wait = options.get("wait_ms", 0)
        epoch = f", leader epoch {options['epoch']}" if options.get("epoch") is not None else ""
        self.event(
            f"broker {broker_id} <- {name}: from offset {', '.join(map(str, offsets))}"
            f"{f', max wait {wait} ms' * bool(wait)}{epoch}"
        )
        pending = super().consume(broker_id, *offsets, **options)
        self._names[pending] = name
        return pending

    def arrive(self, exchange: Exchange, wait_ms: int = 500) -> Exchange:
        chosen, follower = exchange.round, exchange.follower.broker_id
        if isinstance(chosen, EpochRound):
            asked = ", ".join(f"{one.topic_partition} epoch {one.leader_epoch}" for one in chosen.partitions)
            self.event(f"broker {chosen.leader} <- broker {follower} asks where epochs end: {asked}")
        else:
            name = self._names[exchange] = f"fetch of broker {follower}"
            wanted = ", ".join(
                f"{one.topic_partition} from {one.fetch_offset}, leader epoch {one.current_leader_epoch}, last fetched "
                f"epoch {'none' if one.last_fetched_epoch is None else one.last_fetched_epoch}"
                for one in chosen.partitions
            )
            self.event(f"broker {chosen.leader} <- {name}: {wanted}")
        arrived = super().arrive(exchange, wait_ms)
        if isinstance(chosen, EpochRound):
            ends = ", ".join(
                f"{one.topic_partition} {one.error.name}, epoch {one.end.epoch} ends at {one.end.end_offset}"
                for one in exchange.box[exchange]
            )
            self.lines.append(f"{'':15}-> {ends}")
        return arrived

    def deliver_response(self, exchange: Exchange) -> list[Effect]:
        self.event(f"broker {exchange.follower.broker_id} <- the response of broker {exchange.round.leader}")
        return super().deliver_response(exchange)

    def lose(self, exchange: Exchange) -> None:
        self.event(f"broker {exchange.follower.broker_id} gives up its round with broker {exchange.round.leader}")
        super().lose(exchange)

    def tell_verdict(self, broker_id: int, proposal: IsrProposal, verdict: IsrVerdict) -> list[Effect]:
        what = verdict.error.name
        if verdict.error is ErrorCode.NONE:
            what = f"ISR {_ids(verdict.isr)}, partition epoch {verdict.partition_epoch}"
        self.event(f"broker {broker_id} <- AlterPartition response for {proposal.topic_partition}: {what}")
        return super().tell_verdict(broker_id, proposal, verdict)

    def advance(self, ms: int) -> None:
        self._is_ticking = True
        super().advance(ms)
        self._is_ticking = False

    def kill(self, *broker_ids: int) -> None:
        self.event(f"broker {_ids(broker_ids)} is killed")
        super().kill(*broker_ids)

    def expire_session(self, *broker_ids: int) -> None:
        self.event(f"the ZooKeeper session of broker {_ids(broker_ids)} expires")
        super().expire_session(*broker_ids)

    def start(self, *broker_ids: int) -> None:
        self.event(f"broker {_ids(broker_ids)} starts")
        super().start(*broker_ids)

    def fail_directory(self, broker_id: int, *partitions: TopicPartition) -> None:
        """The log directory that holds these partitions has failed."""
        broker = self.brokers[broker_id]
        self.event(f"broker {broker_id}: the log directory of {', '.join(map(str, partitions))} has failed")
        broker.execute(broker.core.log_dir_failed(partitions))

    # Effects

    def _next(self, kind: str) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind} {self._counts[kind]}"

    def _name(self, token: object) -> str:
        return self._names.get(token, self._upcoming)

    def _words(self, effect: Effect) -> str:
        match effect:
            case AppendAsLeader(at, _, header):
                return f"append to {at} as leader: {_offsets(header)}, leader epoch {header.leader_epoch}"
            case AppendAsFollower(at, _, headers):
                parts = "; ".join(f"{_offsets(header)}, leader epoch {header.leader_epoch}" for header in headers)
                return f"append to {at} as follower: {parts}"
            case TruncateLog(at, to_offset):
                return f"truncate {at} to offset {to_offset}"
            case TruncateFully(at, start_offset):
                return f"truncate {at} fully, new start offset {start_offset}"
            case AdvanceLogStart(at, to_offset):
                return f"advance the log start offset of {at} to {to_offset}"
            case WriteEpochs(at, entries, sync):
                what = ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in entries) or "none"
                return f"write the leader epochs of {at}{', synced' * sync}: {what}"
            case DeleteLog(at):
                return f"delete the log of {at}"
            case RespondToProduce(token, results):
                parts = "; ".join(
                    f"{one.topic_partition} "
                    + (f"base offset {one.base_offset}" if one.error is ErrorCode.NONE else one.error.name)
                    for one in results
                )
                return f"respond to {self._name(token)}: {parts}"
            case RespondToFetch(token, fetched, _):
                return f"respond to {self._name(token)}: {'; '.join(map(_fetched, fetched))}"
            case RespondToDeleteRecords(token, deleted):
                return f"respond to {self._name(token)}: {'; '.join(map(str, deleted))}"
            case ProposeIsr(proposal):
                return (
                    f"propose for {proposal.topic_partition}: ISR {_ids(proposal.new_isr)}, leader epoch "
                    f"{proposal.leader_epoch}, partition epoch {proposal.partition_epoch}"
                )
            case FetchersChanged(leaders):
                return f"look again what to fetch from broker {_ids(leaders)}"
            case LeadershipChanged(at, leads, leader_epoch):
                return f"notify the coordinators: {at} {'gained' if leads else 'lost'}, leader epoch {leader_epoch}"
            case Note(kind, at, cause, fields):
                what = ", ".join(f"{name} {_value(value)}" for name, value in fields.items())
                return f"event {kind} of {at} by {cause}: {what}"
            case LogLine(level, text):
                return f"log {level}: {text}"
            case FailReplica(at, problem):
                return f"take {at} offline: {problem!r}"


def _state(state: PartitionState) -> str:
    leader = "none" if state.leader == NO_LEADER else state.leader
    return (
        f"{state.topic_partition} leader {leader}, leader epoch {state.leader_epoch}, ISR {_ids(state.isr)}, partition "
        f"epoch {state.partition_epoch}"
    )


def _fetched(result: FetchResult) -> str:
    if result.error is not ErrorCode.NONE:
        return f"{result.topic_partition} {result.error.name}"
    parts = [f"{result.topic_partition} high watermark {result.high_watermark}"]
    if result.diverging is not None:
        parts.append(f"diverging: epoch {result.diverging.epoch} ends at {result.diverging.end_offset}")
    if result.read is not None:
        parts.append(f"records from {result.read.from_offset} to below {result.read.upper_bound}")
    return ", ".join(parts)


def _offsets(header: Any) -> str:
    last = header.next_offset - 1
    return f"offset {last}" if header.base_offset == last else f"offsets {header.base_offset} to {last}"


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _value(value: object) -> str:
    return _ids(value) or "none" if isinstance(value, list | tuple) else str(value)
