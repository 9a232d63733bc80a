"""One broker of the exploration: the simulator's MemoryBroker with the real core, set to a state, given one event.

``handle`` does one thing to a broker and says what came out of it. ``freeze`` tells the state as a value, ``thaw``
makes a broker of it, with a new core whose parts are what they were.

An event is a tuple, its kind first. It is the key by which the memo finds what came of it, and a search of two seconds
looks up 124,000 of them: as frozen dataclasses they would cost a sixth of the search (3.1 us to make and look up one,
against 0.33), and named tuples of two kinds with the same fields would be equal.

| event | what happens |
|---|---|
| leader_and_isr, letter | the controller's request arrives |
| produce, number | a record, acks=1 |
| ask, number | the follower's next request, under this number; None if it has nothing to ask |
| fetch, follower, request, may_join | a request arrives; ``may_join``: the leader takes the follower for live |
| ``answer``, leader, number, response | the response arrives |
| fail, leader, number | the follower waits for it no longer |
| shrink, spared | the lag time is over: who is behind leaves the ISR, but for the spared |
| verdict, proposal, verdict | the controller's response to a proposal |
| checkpoint | the high watermark is written to disk |
| kill / power, keep | the process dies; a power loss takes unflushed records beyond an offset |
| start, ``life`` / register, ``life`` | a new process; a new session of the same one |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import ControlHeader, IsrProposal, IsrVerdict, LeaderAndIsrPartition, LeaderAndIsrRequest
from tidegauge.errors import ErrorCode
from tidegauge.record_batch import BatchHeader
from tidegauge_broker.replica.messages import (
    CoreSettings,
    EpochEnd,
    EpochEndResult,
    EpochEntry,
    EpochLookup,
    EpochRound,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    ProducePartition,
    ProduceRequest,
    TopicRules,
    Wait,
)
from tidegauge_broker.replica.rules import rule_named
from tidegauge_broker.replica.snapshot import (
    Fixed,
    ProposalSnapshot,
    number_next_round,
    proposal_of,
    restore,
    rounds_in_flight,
    snapshot,
    snapshot_of_proposal,
)
from tidegauge_proof.exhaustive.frozen import (
    BrokerState,
    FollowerRequest,
    Letter,
    Response,
    Verdict,
)
from tidegauge_proof.own_rules import OwnRules
from tidegauge_proof.simulator.driven import STEP_MS, TOPIC_ID, EveryoneLives, end_of_epoch, with_liberties
from tidegauge_proof.simulator.memory_broker import AT, MemoryBroker
from tidegauge_proof.simulator.memory_log import START_MS, batch_of, header_of, patched

CONTROLLER_EPOCH = 1


class Setting:
    """Settings that all brokers of an exploration share.

    Attributes:
        replicas: their ids.
        rule: the truncation rule.
        election: an election that is tried after the loss of a leader; None: Kafka's.
        power: whether power losses can come, so that states tell what one would take.
        liberal: the rule with the liberties of the published models, if they are granted (see replay.py).
    """

    def __init__(
        self, replicas: int, rule: str | OwnRules, *, power: bool, min_isr: int, unclean: bool, as_model: bool
    ) -> None:
        self.replicas = tuple(range(1, replicas + 1))
        own = rule if isinstance(rule, OwnRules) else None
        named = "kip-320" if isinstance(rule, OwnRules) else rule
        self.rule = rule_named(named) if own is None or own.truncation is None else own.truncation
        self.election = None if own is None else own.election
        self.power = power
        self.settings = CoreSettings(
            replica_fetch_max_bytes=1, replica_fetch_backoff_ms=1, truncation_rule=named, tried=own
        )
        self.rules = TopicRules(min_insync_replicas=min_isr, unclean_leader_election=unclean)
        self.liberal = with_liberties(self.rule) if as_model else None


class BrokerMachine:
    """A broker that does one event after the other."""

    def __init__(self, broker_id: int, setting: Setting) -> None:
        self.setting = setting
        self.now_ms = START_MS
        self.broker = MemoryBroker(broker_id, setting.settings, setting.rules, metadata=EveryoneLives)

    def handle(self, event: tuple[Any, ...]) -> Any:
        """One event; what it gave.

        Raises:
            AssertionError: the core finds one of its invariants broken.
        """
        self.now_ms += STEP_MS
        out = _EVENTS[event[0]](self, *event[1:])
        self.broker.reported.proposals.clear()
        return out

    # Requests of the controller

    def _leader_and_isr(self, letter: Letter) -> str:
        state = PartitionState(
            AT,
            TOPIC_ID,
            CONTROLLER_EPOCH,
            letter.leader,
            letter.leader_epoch,
            letter.isr,
            letter.partition_epoch,
            self.setting.replicas,
        )
        header = ControlHeader(0, CONTROLLER_EPOCH, letter.incarnation)
        request = LeaderAndIsrRequest(header, [LeaderAndIsrPartition(state, is_new=False)], ())
        response = self.broker.leader_and_isr(request, self.now_ms)
        partition = self.broker.partition
        if partition is not None and self.setting.liberal is not None:
            partition.truncation_rule = self.setting.liberal
        error: ErrorCode = response.partitions.get(AT, response.error)
        return error.name

    def _verdict(self, proposal: ProposalSnapshot, verdict: Verdict) -> None:
        partition = self.broker.partition
        if partition is None or partition.leader_role is None:
            return
        known = partition.leader_role.isr.proposal
        if known is None or snapshot_of_proposal(known) != proposal:
            return  # the change is no longer in flight: the shell has given that request up
        reported = IsrVerdict(
            AT, ErrorCode[verdict.error], verdict.leader, verdict.leader_epoch, verdict.isr, verdict.partition_epoch
        )
        self.broker.execute(self.broker.core.isr_verdict(known, reported, self.now_ms))

    # Clients

    def _produce(self, number: int) -> str:
        broker = self.broker
        request = ProduceRequest(1, 0, [ProducePartition(AT, batch_of(number))])
        broker.execute(broker.core.produce(request, number, self.now_ms))
        ((_, (result,)),) = broker.reported.produced
        broker.reported.produced.clear()
        return result.error.name

    # Followers

    def _ask(self, number: int) -> FollowerRequest | None:
        core, partition = self.broker.core, self.broker.partition
        if partition is None or partition.follower_role is None:
            return None
        number_next_round(core, number)  # numbers are those that are free
        chosen = core.next_round(partition.follower_role.leader, self.now_ms)
        if isinstance(chosen, Wait):
            return None
        assert chosen.request_id == number
        incarnation = core.broker_epoch
        if isinstance(chosen, EpochRound):
            asked = chosen.partitions[0]
            return FollowerRequest(
                "epoch", chosen.leader, number, incarnation, -1, asked.leader_epoch, asked.current_leader_epoch
            )
        wanted = chosen.partitions[0]
        self.broker.replica.reported = max(self.broker.replica.reported, wanted.fetch_offset)
        current, last = wanted.current_leader_epoch, wanted.last_fetched_epoch
        return FollowerRequest("fetch", chosen.leader, number, incarnation, wanted.fetch_offset, last, current)

    def _respond(self, leader: int, number: int, response: Response) -> None:
        broker, error = self.broker, ErrorCode[response.error]
        end = None if response.end is None else EpochEnd(*response.end)
        if response.log_end == _OF_EPOCH:
            assert end is not None
            effects = broker.core.epoch_ends_received(leader, number, [EpochEndResult(AT, error, end)], self.now_ms)
        else:
            records = b"" if response.record is None else batch_at(*response.record)[1]
            reported = FetchedPartition(AT, error, response.high_watermark, 0, response.log_end, end, None, records)
            effects = broker.core.fetch_response_received(leader, number, [reported], self.now_ms)
        broker.execute(effects)

    def _fail(self, leader: int, number: int) -> None:
        self.broker.execute(self.broker.core.round_failed(leader, number, self.now_ms))

    # Leaders

    def _fetch(self, follower: int, request: FollowerRequest, may_join: bool) -> Response:
        broker = self.broker
        if request.kind == "epoch":
            assert request.epoch is not None
            return self._epoch_end(EpochLookup(AT, request.epoch, request.current_epoch))
        wanted = FetchPartition(AT, request.offset, 1, request.current_epoch, request.epoch, 0)
        broker.metadata.eligible = frozenset({follower} if may_join else ())
        broker.execute(
            broker.core.fetch(FetchRequest(follower, 0, 1, 1, [wanted], request.incarnation), request, self.now_ms)
        )
        broker.metadata.eligible = frozenset()
        ((_, (reported,)),) = broker.reported.fetched
        broker.reported.fetched.clear()
        record = None
        if reported.records:
            header = header_of(reported.records)
            record = (header.base_offset, header.leader_epoch, _NUMBERS[header.crc])
        end = None if reported.diverging is None else (reported.diverging.epoch, reported.diverging.end_offset)
        return Response(reported.error.name, reported.high_watermark, reported.log_end_offset, end, record)

    def _epoch_end(self, request: EpochLookup) -> Response:
        response = end_of_epoch(self.broker, request, self.setting.liberal)
        return Response(response.error.name, -1, _OF_EPOCH, (response.end.epoch, response.end.end_offset), None)

    def _shrink(self, spared: tuple[int, ...]) -> None:
        partition = self.broker.partition
        assert partition is not None
        role = partition.leader_role
        assert role is not None
        for broker_id, remote in role.remotes.items():
            remote.last_caught_up_time_ms = self.now_ms if broker_id in spared else 0
        out: list[Any] = []
        role.maybe_shrink(self.now_ms, out)
        self.broker.execute(out)

    # Processes and disks

    def _checkpoint(self) -> None:
        self.broker.write_checkpoint()

    def _kill(self) -> None:
        self.broker.kill()

    def _power(self, keep: int) -> None:
        self.broker.kill()
        self.broker.replica.lose_beyond(keep)

    def _start(self, incarnation: int) -> None:
        self.broker.start(incarnation)

    def _register(self, incarnation: int) -> None:
        self.broker.broker_epoch = incarnation
        self.broker.core.set_broker_epoch(incarnation)

    # States

    def freeze(self) -> BrokerState:
        """Return the broker as it is now."""
        broker = self.broker
        partition = broker.partition
        epochs = _pairs(broker.log.epochs)
        power = self.setting.power
        rounds = () if partition is None else rounds_in_flight(broker.core)
        return BrokerState(
            broker.broker_epoch,
            broker.is_running,
            tuple((record.leader_epoch, _NUMBERS[record.batch_crc]) for record in broker.log.records),
            epochs,
            _pairs(broker.replica.flushed_epochs) if power else epochs,
            broker.replica.checkpoint,
            broker.replica.reported if power else 0,
            broker.replica.flushed if power else 0,
            None if partition is None else snapshot(partition),
            rounds,
        )

    @classmethod
    def thaw(cls, broker_id: int, setting: Setting, state: BrokerState) -> BrokerMachine:
        """Return a broker in this state."""
        machine = cls(broker_id, setting)
        broker = machine.broker
        for offset, (epoch, number) in enumerate(state.records):
            broker.log.append(*batch_at(offset, epoch, number))
        broker.log.epochs = [EpochEntry(*entry) for entry in state.epochs]
        broker.replica.flushed_epochs = [EpochEntry(*entry) for entry in state.safe_epochs]
        broker.replica.checkpoint = state.checkpoint
        broker.replica.reported, broker.replica.flushed = state.reported, state.safe_end
        broker.broker_epoch = state.incarnation
        if state.running:
            broker.start(state.incarnation)
            broker.replica.checkpoint = state.checkpoint
        if state.replica is not None:
            loaded = broker.log.loaded(state.checkpoint)
            fixed = Fixed(AT, TOPIC_ID, setting.replicas)
            broker.control_requests.controller_epoch = CONTROLLER_EPOCH
            partition = restore(broker.core, state.replica, state.rounds, loaded, fixed)
            if setting.liberal is not None:
                partition.truncation_rule = setting.liberal
        return machine


def proposal_from(proposal: ProposalSnapshot, topic_id: str) -> IsrProposal:
    """Return the proposal as brokers and the controller speak of it."""
    return proposal_of(proposal, Fixed(AT, topic_id, ()))


def _pairs(entries: Any) -> tuple[tuple[int, int], ...]:
    return tuple((entry.epoch, entry.start_offset) for entry in entries)


_OF_EPOCH = -2
"""Stands for the log end in the response to an epoch lookup."""
_NUMBERS: dict[int, int] = {header_of(batch_of(number)).crc: number for number in range(1, 65)}
"""The number of a record, by the CRC of its batch."""


@lru_cache(maxsize=4096)
def batch_at(offset: int, epoch: int, number: int) -> tuple[BatchHeader, bytes]:
    """Return a record as a log has it."""
    data = batch_of(number)
    header = header_of(data)._replace(base_offset=offset, leader_epoch=epoch)
    return header, patched(data, header)


_EVENTS: dict[str, Callable[..., Any]] = {
    "leader_and_isr": BrokerMachine._leader_and_isr,  # noqa: SLF001 - the class's own table of events
    "verdict": BrokerMachine._verdict,  # noqa: SLF001 - the class's own table of events
    "produce": BrokerMachine._produce,  # noqa: SLF001 - the class's own table of events
    "ask": BrokerMachine._ask,  # noqa: SLF001 - the class's own table of events
    "answer": BrokerMachine._respond,  # noqa: SLF001 - the class's own table of events
    "fail": BrokerMachine._fail,  # noqa: SLF001 - the class's own table of events
    "fetch": BrokerMachine._fetch,  # noqa: SLF001 - the class's own table of events
    "shrink": BrokerMachine._shrink,  # noqa: SLF001 - the class's own table of events
    "checkpoint": BrokerMachine._checkpoint,  # noqa: SLF001 - the class's own table of events
    "kill": BrokerMachine._kill,  # noqa: SLF001 - the class's own table of events
    "power": BrokerMachine._power,  # noqa: SLF001 - the class's own table of events
    "start": BrokerMachine._start,  # noqa: SLF001 - the class's own table of events
    "register": BrokerMachine._register,  # noqa: SLF001 - the class's own table of events
}
