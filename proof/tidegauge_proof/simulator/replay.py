"""Replay: the real core and the controller's real judgement, driven through a trace one message at a time.

controller: the partition's state becomes leader, epoch, ISR; nothing is delivered yet. Refused where a controller
    without unclean elections could not do it.
leader_and_isr: a replica handles what the controller decided in that epoch, perhaps late; under the older rules with
    the epoch lookup, its response and the truncation.
append: one record, acks=1, at a replica that believes that it leads.
fetch: a whole round with one record at most, divergences and truncations included; then the next request, whose
    response is lost: only by a request does a leader learn a log end offset.
evaluate_hw: everybody who follows sends such a request; then the leader looks at its high watermark.
leader_isr: the same requests; then the leader proposes this ISR. The driver decides who lags, all else is the core's
    and the controller's. Not ``accepted``: the proposal never arrives and stays pending.
truncate: the follower asks until nothing is left to truncate; no records come.
power_loss: the process dies, the log keeps what lay below ``keep_leo``, the controller takes the replica out of the
    ISR (but for the last member) in a new epoch, a new process starts.

The driver controls the clock (more than the lag time passes between two steps, so no follower counts as
caught up for having been it lately), and whom a leader takes for live (so that it proposes ISR changes only where the
trace does). It never touches the join conditions, the rule of one change in flight, or the controller's checks.

``as_model`` grants what the published models allow and Kafka does not: a truncation at every new epoch, although the
leader is the same broker; and an epoch lookup served by a broker that does not lead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tidegauge.cluster_metadata import Assignment, Leadership
from tidegauge.control import (
    NO_LEADER,
    ControlHeader,
    IsrVerdict,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.messages import (
    CoreSettings,
    EpochRound,
    FetchedPartition,
    FetchRequest,
    FetchRound,
    ProducePartition,
    ProduceRequest,
    TopicRules,
    Wait,
)
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.rules import rule_named
from tidegauge_controller.rules.alter_partition import check_proposal
from tidegauge_controller.rules.election import elect_offline, remove_from_isr
from tidegauge_proof.simulator.controllers.known_cluster import KnownCluster
from tidegauge_proof.simulator.driven import STEP_MS, TOPIC_ID, EveryoneLives, end_of_epoch, with_liberties
from tidegauge_proof.simulator.memory_broker import AT, MemoryBroker
from tidegauge_proof.simulator.memory_log import START_MS, batch_of
from tidegauge_proof.simulator.model_invariants import ClusterImage, Record, ReplicaImage
from tidegauge_proof.simulator.trace import Trace

_MAX_ROUNDS = 100
_SETTINGS = CoreSettings(replica_fetch_max_bytes=1, replica_fetch_backoff_ms=1)
"""A batch is one record, and the first batch of a response may exceed the maximum: so each response has one at most."""


_INVARIANT = re.compile(r"I\d+|Progress|WholeBatches")
"""How the core's assertions of its invariants begin, and the driver's own."""


class Refused(Exception):
    """The step does nothing (more), for the reason given."""


@dataclass(slots=True)
class Outcome:
    """The result of a trace. Steps count from 1; an invariant is named at the first step at which it does not hold."""

    rule: str
    violations: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    lost_by_power: list[dict[str, Any]] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether every invariant held after every step."""
        return not self.violations


@dataclass(frozen=True, slots=True)
class _Decided:
    """A controller's decision in one epoch: the state, and the incarnation of each replica to which it was sent."""

    leadership: Leadership
    lives: Mapping[int, int]


class Replay:
    """One trace under one rule.

    Attributes:
        brokers: the replicas, by id.
        decided: what the controller decided, by leader epoch.
        appended: how many records were appended.
    """

    def __init__(self, trace: Trace, rule: str, *, as_model: bool = False) -> None:
        self.trace = trace
        self.rule = rule_named(rule)
        self.liberal = with_liberties(self.rule) if as_model else None
        self.outcome = Outcome(rule)
        self._metadata = EveryoneLives()
        self._now_ms = START_MS
        settings = replace(_SETTINGS, truncation_rule=rule)
        ids = tuple(range(1, len(trace.replicas) + 1))
        self.brokers = {
            broker_id: MemoryBroker(broker_id, settings, TopicRules(), metadata=lambda: self._metadata)
            for broker_id in ids
        }
        for broker in self.brokers.values():
            broker.start(1)
        self._context = KnownCluster(1, {AT.topic: TOPIC_ID}, ids)
        self._context.assignments[AT] = Assignment(ids)
        self._context.leadership[AT] = Leadership(
            NO_LEADER, -1, ids, recovering=False, partition_epoch=0, controller_epoch=1
        )
        self.decided: dict[int, _Decided] = {}
        self._reconciled: dict[int, int] = {}
        self._lost: set[Record] = set()
        self._broken: set[str] = set()
        self.appended = 0

    def run(self) -> Outcome:
        """All steps; the invariants are looked at after each."""
        for number, step in enumerate(self.trace.steps, 1):
            if not self.do(number, step):
                break
        return self.outcome

    def do(self, number: int, step: Mapping[str, Any]) -> bool:
        """One step, and a look at the invariants; says whether there can be another."""
        self._now_ms += STEP_MS
        try:
            _STEPS[step["do"]](self, number, step)
        except Refused as why:
            self.outcome.refused.append({"step": number, "why": str(why)})
        except AssertionError as problem:
            if (name := _INVARIANT.match(str(problem))) is None:
                raise
            # The core's own invariant: it did not do the step to its end, so there is no next one.
            self.outcome.violations.append({"step": number, "invariant": name[0]})
            return False
        for invariant in self.image().broken():
            if invariant not in self._broken:
                self._broken.add(invariant)
                self.outcome.violations.append({"step": number, "invariant": invariant})
        return True

    # Visible state

    def image(self) -> ClusterImage:
        """Return the cluster as it is now."""
        current = self.current
        leader = None if current.leader == NO_LEADER else current.leader
        replicas = {broker_id: self._image_of(broker) for broker_id, broker in self.brokers.items()}
        return ClusterImage(replicas, leader, current.isr, self._lost)

    def _image_of(self, broker: MemoryBroker) -> ReplicaImage:
        records = _records(broker)
        partition = broker.partition
        if partition is None:
            return ReplicaImage(broker.broker_id, records, min(broker.replica.checkpoint, len(records)))
        return ReplicaImage(
            broker.broker_id,
            records,
            partition.high_watermark,
            partition.leader_epoch,
            None if partition.leader_role is None else partition.leader_role.isr.isr,
            None if partition.follower_role is None else partition.follower_role.leader,
            self._reconciled.get(broker.broker_id) == partition.leader_epoch,
        )

    @property
    def current(self) -> Leadership:
        """The controller's view."""
        return self._context.leadership[AT]

    def _name(self, broker_id: int) -> str:
        return "none" if broker_id == NO_LEADER else self.trace.name(broker_id)

    def _names(self, broker_ids: Iterable[int]) -> str:
        return "{" + ",".join(map(self._name, broker_ids)) + "}"

    def _leader(self, broker_id: int) -> tuple[Partition, Leader]:
        partition = self.brokers[broker_id].partition
        if partition is None or partition.leader_role is None:
            raise Refused(f"{self._name(broker_id)} does not believe that it leads")
        return partition, partition.leader_role

    def _check_follows(self, follower: int, leader: int) -> Partition:
        partition = self.brokers[follower].partition
        if partition is None or partition.follower_role is None:
            raise Refused(f"{self._name(follower)} follows no leader")
        if partition.follower_role.leader != leader:
            raise Refused(
                f"{self._name(follower)} follows {self._name(partition.follower_role.leader)} in epoch "
                f"{partition.leader_epoch}, not {self._name(leader)}"
            )
        return partition

    # The controller

    def _controller(self, number: int, step: Mapping[str, Any]) -> None:
        del number  # every step takes it
        current = self.current
        leader = NO_LEADER if step["leader"] is None else step["leader"]
        isr: tuple[int, ...] = step["isr"]
        if step["epoch"] <= current.leader_epoch:
            raise Refused(f"the leader epoch is {current.leader_epoch} already")
        if not isr or not set(isr) <= set(current.isr):
            raise Refused(f"{self._names(isr)} is no part of the ISR {self._names(current.isr)}")
        if leader not in (*isr, NO_LEADER):
            raise Refused(f"{self._name(leader)} is not in the ISR {self._names(isr)}")
        self._decide(replace(current, leader=leader, leader_epoch=step["epoch"], isr=isr))

    def _decide(self, state: Leadership) -> None:
        """Written; the version in ZooKeeper, which is the partition epoch, rises."""
        written = replace(state, partition_epoch=self.current.partition_epoch + 1)
        self._context.leadership[AT] = written
        lives = {broker_id: broker.broker_epoch for broker_id, broker in self.brokers.items()}
        self.decided[written.leader_epoch] = _Decided(written, lives)

    def _leader_and_isr(self, number: int, step: Mapping[str, Any]) -> None:
        del number
        name = self._name(step["replica"])
        decided = self.decided.get(step["epoch"])
        if decided is None:
            raise Refused(f"the controller decided nothing in epoch {step['epoch']}")
        broker = self.brokers[step["replica"]]
        header = ControlHeader(0, 1, decided.lives[broker.broker_id])
        state = self._context.state_of(AT, decided.leadership)
        item = LeaderAndIsrPartition(state, is_new=False)
        response = broker.leader_and_isr(LeaderAndIsrRequest(header, [item], ()), self._now_ms)
        if response.error is not ErrorCode.NONE:
            raise Refused(f"{response.error.name}: this was sent to an earlier incarnation of {name}")
        partition = broker.partition
        assert partition is not None
        if self.liberal is not None:
            partition.truncation_rule = self.liberal
        if response.partitions[AT] is not ErrorCode.NONE:
            raise Refused(f"{response.partitions[AT].name}: {name} is in epoch {partition.leader_epoch} already")
        if partition.leader_epoch != step["epoch"]:
            raise Refused(f"{name} stays as it was: there is no leader in epoch {step['epoch']}")
        if partition.follower_role is not None and partition.leader == partition.follower_role.leader:
            self._settle_epochs(broker, partition)

    # Clients

    def _append(self, number: int, step: Mapping[str, Any]) -> None:
        del number
        broker = self.brokers[step["leader"]]
        self._leader(step["leader"])
        self.appended += 1
        request = ProduceRequest(1, 0, [ProducePartition(AT, batch_of(self.appended))])
        broker.execute(broker.core.produce(request, self.appended, self._now_ms))
        ((_, (result,)),) = broker.reported.produced
        broker.reported.produced.clear()
        if result.error is not ErrorCode.NONE:
            raise Refused(f"{result.error.name}: {result.message}")

    # Followers

    def _next_round(self, broker: MemoryBroker, leader: int) -> FetchRound | EpochRound | None:
        self._now_ms += 2 * _SETTINGS.replica_fetch_backoff_ms
        chosen = broker.core.next_round(leader, self._now_ms)
        return None if isinstance(chosen, Wait) else chosen

    def _ask(self, follower: MemoryBroker, chosen: FetchRound, *, max_bytes: int) -> FetchedPartition:
        """Deliver the request to the leader, which responds at once."""
        leader = self.brokers[chosen.leader]
        request = FetchRequest(follower.broker_id, 0, 1, max_bytes, list(chosen.partitions))
        leader.execute(leader.core.fetch(request, chosen, self._now_ms))
        ((_, (response,)),) = leader.reported.fetched
        leader.reported.fetched.clear()
        return response

    def _settle_epochs(self, broker: MemoryBroker, partition: Partition) -> None:
        """Look up epoch ends before the first fetch, as KIP-101 and KIP-279 ask, and truncate to the responses."""
        role = partition.follower_role
        assert role is not None
        for _ in range(_MAX_ROUNDS):
            if not role.truncating:
                if self.rule.name != "kip-320":
                    self._reconciled[broker.broker_id] = partition.leader_epoch
                return
            chosen = self._next_round(broker, role.leader)
            assert isinstance(chosen, EpochRound)
            response = end_of_epoch(self.brokers[role.leader], chosen.partitions[0], self.liberal)
            effects = broker.core.epoch_ends_received(role.leader, chosen.request_id, [response], self._now_ms)
            broker.execute(effects)
            if response.error is not ErrorCode.NONE:
                raise Refused(
                    f"{response.error.name}: {self._name(role.leader)} rejects the epoch lookup of "
                    f"{self._name(broker.broker_id)}, which asks again later"
                )
        raise AssertionError("Progress: the epoch questions never end")

    def _reconcile(self, follower: int, leader: int, *, max_bytes: int) -> None:
        """Run rounds until a response neither diverges nor is out of range."""
        broker = self.brokers[follower]
        partition = self._check_follows(follower, leader)
        self._settle_epochs(broker, partition)
        for _ in range(_MAX_ROUNDS):
            chosen = self._next_round(broker, leader)
            if chosen is None:
                raise Refused(f"{self._name(follower)} fetches no more in this epoch: a response marked it failed")
            assert isinstance(chosen, FetchRound)
            response = self._ask(broker, chosen, max_bytes=max_bytes)
            before = partition.log_end_offset
            broker.execute(broker.core.fetch_response_received(leader, chosen.request_id, [response], self._now_ms))
            if response.error is ErrorCode.NONE and response.diverging is None:
                self._reconciled[follower] = partition.leader_epoch
                return
            if response.error is not ErrorCode.NONE and partition.log_end_offset == before:
                raise Refused(
                    f"{response.error.name}: {self._name(leader)} refuses the fetch of {self._name(follower)}"
                )
        raise AssertionError("Progress: the divergences never end")

    def _fetch(self, number: int, step: Mapping[str, Any]) -> None:
        del number
        self._reconcile(step["follower"], step["leader"], max_bytes=1)
        self._request_in_vain(step["follower"], step["leader"])

    def _truncate(self, number: int, step: Mapping[str, Any]) -> None:
        del number
        self._reconcile(step["follower"], step["leader"], max_bytes=0)

    def _request_in_vain(self, follower: int, leader: int) -> None:
        """Deliver a request to the leader and lose its response."""
        broker = self.brokers[follower]
        chosen = self._next_round(broker, leader)
        if isinstance(chosen, FetchRound):
            self._ask(broker, chosen, max_bytes=1)
        if chosen is not None:
            broker.execute(broker.core.round_failed(leader, chosen.request_id, self._now_ms))

    def _requests_of_all(self, leader: int) -> None:
        for broker_id, broker in self.brokers.items():
            role = None if broker.partition is None else broker.partition.follower_role
            if role is not None and role.leader == leader:
                self._request_in_vain(broker_id, leader)

    # Leaders

    def _evaluate_hw(self, number: int, step: Mapping[str, Any]) -> None:
        del number
        _, role = self._leader(step["leader"])
        self._requests_of_all(step["leader"])
        out: list[Any] = []
        role.maybe_advance_high_watermark(self._now_ms, (), "Replay", out)
        self.brokers[step["leader"]].execute(out)

    def _leader_isr(self, number: int, step: Mapping[str, Any]) -> None:
        del number
        _, role = self._leader(step["leader"])
        broker = self.brokers[step["leader"]]
        wanted, old = set(step["isr"]), set(role.isr.isr)
        joining = wanted - old
        if role.isr.proposal is not None:
            self._requests_of_all(step["leader"])
            raise Refused(f"{self._name(step['leader'])} waits for the response to an earlier ISR change")
        if len(joining) > 1 or (joining and old - wanted) or joining - set(role.remotes):
            self._requests_of_all(step["leader"])
            raise Refused(
                f"from {self._names(role.isr.isr)} no leader proposes {self._names(step['isr'])} in one step: it adds "
                "one replica that follows it, or drops some"
            )
        self._metadata.eligible = frozenset(joining)
        self._requests_of_all(step["leader"])
        self._metadata.eligible = frozenset()
        if old - wanted:
            with _laggards(role, old - wanted):
                out: list[Any] = []
                role.maybe_shrink(self._now_ms, out)
                broker.execute(out)
        proposals, broker.reported.proposals = broker.reported.proposals, []
        if not proposals:
            raise Refused(f"{self._name(step['leader'])} proposes nothing: {self._why_not(role, joining)}")
        if not step["accepted"]:
            return
        (proposal,) = proposals
        error, state = check_proposal(self._context, broker.broker_id, proposal)
        verdict = IsrVerdict(AT, error)
        if error is ErrorCode.NONE:
            if state is not None:
                self._context.leadership[AT] = replace(state, partition_epoch=state.partition_epoch + 1)
            now = self.current
            verdict = IsrVerdict(AT, error, now.leader, now.leader_epoch, now.isr, now.partition_epoch)
        broker.execute(broker.core.isr_verdict(proposal, verdict, self._now_ms))
        broker.reported.proposals.clear()
        if error is not ErrorCode.NONE:
            raise Refused(f"{error.name}: the controller refuses the ISR {self._names(proposal.new_isr)}")

    def _why_not(self, role: Leader, joining: Iterable[int]) -> str:
        for broker_id in joining:
            end = role.remotes[broker_id].log_end_offset
            if end < 0:
                return f"{self._name(broker_id)} has not fetched in its epoch"
            return (
                f"{self._name(broker_id)} ends at {end}; to join it needs the high watermark "
                f"{role.partition.high_watermark}, and by KIP-320 the epoch's start {role.epoch_start_offset}"
            )
        return "the ISR is that already"

    # Disks

    def _power_loss(self, number: int, step: Mapping[str, Any]) -> None:
        victim: int = step["replica"]
        broker = self.brokers[victim]
        keep = min(step["keep_leo"], broker.log.log_end_offset)
        broker.write_checkpoint()
        broker.kill()
        for offset, record in enumerate(_records(broker)[keep:], keep):
            self._lost.add(record)
            lost = {"step": number, "replica": self._name(victim), "offset": offset, "epoch": record.epoch}
            self.outcome.lost_by_power.append(lost)
        broker.replica.lose_beyond(keep)
        broker.replica.checkpoint = min(broker.replica.checkpoint, keep)
        self._reconciled.pop(victim, None)
        current = self.current
        broker_epoch = self._context.broker_epochs.pop(victim)
        if victim in current.isr:
            elected = elect_offline(self._context, AT, current, unclean=False).leadership
            if current.leader != victim or elected is None:
                elected = remove_from_isr(current, victim, self._context.epoch)
            self._decide(elected)
        self._context.broker_epochs[victim] = broker_epoch + 1
        broker.start(broker_epoch + 1)


_STEPS = {
    "controller": Replay._controller,  # noqa: SLF001 - the class's own table of steps
    "leader_and_isr": Replay._leader_and_isr,  # noqa: SLF001 - the class's own table of steps
    "append": Replay._append,  # noqa: SLF001 - the class's own table of steps
    "fetch": Replay._fetch,  # noqa: SLF001 - the class's own table of steps
    "evaluate_hw": Replay._evaluate_hw,  # noqa: SLF001 - the class's own table of steps
    "leader_isr": Replay._leader_isr,  # noqa: SLF001 - the class's own table of steps
    "truncate": Replay._truncate,  # noqa: SLF001 - the class's own table of steps
    "power_loss": Replay._power_loss,  # noqa: SLF001 - the class's own table of steps
}


def replay(trace: Trace, rule: str, *, as_model: bool = False) -> Outcome:
    """Drive the core through a trace under a truncation rule."""
    return Replay(trace, rule, as_model=as_model).run()


def _records(broker: MemoryBroker) -> list[Record]:
    return [Record(record.leader_epoch, (record.batch_crc, record.place)) for record in broker.log.records]


@contextmanager
def _laggards(role: Leader, laggards: Iterable[int]) -> Iterator[None]:
    """For once exactly these of the followers are behind and have been for long; their true ends come back."""
    true = {b: (remote.log_end_offset, remote.last_caught_up_time_ms) for b, remote in role.remotes.items()}
    for broker_id, remote in role.remotes.items():
        if broker_id in laggards:
            remote.log_end_offset, remote.last_caught_up_time_ms = -1, 0
        else:
            remote.log_end_offset = role.partition.log_end_offset
    yield
    for broker_id, remote in role.remotes.items():
        remote.log_end_offset, remote.last_caught_up_time_ms = true[broker_id]
