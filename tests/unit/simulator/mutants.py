"""Rules of replication, each taken away or turned: what a simulator must notice, or it looks at nothing.

The names M1 to M15 come from the published one-rule-removed variants of KIP-320; the others are our own. Each says
which rule it breaks and, if there was one, the real bug. M10 (unclean elections), M11b (a bounce that loses data and
is not noticed) and M16 (the last in-sync replica loses its disk) are faults, not rules; the last two are power modes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica import effect_executor
from tidegauge_broker.replica import leader as leader_module
from tidegauge_broker.replica import partition as partition_module
from tidegauge_broker.replica.control_requests import ControlRequests
from tidegauge_broker.replica.effect_executor import EffectExecutor
from tidegauge_broker.replica.effects import LeadershipChanged, RespondToFetch, RespondToProduce
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.follower import Follower
from tidegauge_broker.replica.isr import PendingExpand, PendingShrink
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.leaderships import Leaderships
from tidegauge_broker.replica.messages import CONSUMER, EpochEnd, EpochLookup, FetchResult
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.producer_state import ProducerCheck, ProducerState
from tidegauge_broker.replica.remote_replica import RemoteReplica
from tidegauge_broker.replica.rounds import Rounds
from tidegauge_broker.replica.rules.kip_320 import Kip320Rule
from tidegauge_broker.replica.writes import Writes
from tidegauge_controller.rules.election import Election, elect_offline, remove_from_isr
from tidegauge_controller.zookeeper.decisions import alter_partition as alter_module
from tidegauge_controller.zookeeper.decisions import (
    broker_events,
    partition_machine,
    replica_machine,
    responses,
    state_store,
)
from tidegauge_controller.zookeeper.decisions import leaders as leaders_module
from tidegauge_controller.zookeeper.decisions.context import ControllerSettings
from tidegauge_controller.zookeeper.decisions.steps import SetNode
from tidegauge_proof.exhaustive.controllers import zookeeper as explored
from tidegauge_proof.simulator.controllers.zookeeper import sim_controller
from tidegauge_proof.simulator.controllers.zookeeper.sim_controller import SimController
from tidegauge_proof.simulator.world import World

Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule less: the rule, its replacement, and the real bug behind it if there was one."""

    id: str
    rule: str
    patches: tuple[Patch, ...]
    bug: str = ""


class AskingRule(Kip320Rule):
    """KIP-320 as of Kafka 2.1: epochs are compared when a new one begins, by a fenced question, not with each fetch."""

    def epoch_to_look_up(self, epochs: EpochCache) -> int | None:
        return epochs.latest_epoch

    def initial_truncation_offset(self, epochs: EpochCache, high_watermark: int) -> int | None:
        return high_watermark if epochs.latest_epoch is None else None

    def fetch_epochs(self, leader_epoch: int, epochs: EpochCache) -> tuple[int | None, int | None]:
        del epochs
        return leader_epoch, None


class NotesLate(AskingRule):
    """M2: a leader notes its epoch with its first record only, and does not know it before."""

    def note_election(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> bool:
        del epochs, epoch, log_end_offset
        return False


class UnfencedFetches(AskingRule):
    """M5, without the second line of defence: followers that leave out batches above their epoch (KAFKA-18723)."""

    skips_newer_epochs = False

    def fetch_epochs(self, leader_epoch: int, epochs: EpochCache) -> tuple[int | None, int | None]:
        del leader_epoch, epochs
        return None, None


class CutsForAnotherLeader(AskingRule):
    """M12."""

    def restarts_following(self, known_leader: int, leader: int) -> bool:
        return known_leader != leader


def ask_epoch_unfenced(follower: Follower, request_id: int) -> EpochLookup:
    follower.in_flight = request_id
    partition = follower.partition
    epoch = partition.truncation_rule.epoch_to_look_up(partition.epochs)
    assert epoch is not None
    return EpochLookup(partition.topic_partition, epoch)


def ruled_by(rule: Any) -> tuple[Patch, ...]:
    return ((partition_module, "rule_named", lambda _: rule),)


def own_high_watermark(
    rule: Any, leader_end: EpochEnd, epochs: EpochCache, log_end_offset: int, high_watermark: int
) -> tuple[int, bool]:
    return min(high_watermark, log_end_offset), True


def only_high_watermark(rule: Any, log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> bool:
    return log_end_offset >= high_watermark


def only_epoch_start(rule: Any, log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> bool:
    return log_end_offset >= epoch_start_offset


def end_without_largest_epoch(cache: EpochCache, epoch: int, log_end_offset: int) -> EpochEnd:
    """The response of KIP-101: where the next larger epoch begins, as if the asked one ended there."""
    found = TRUE_END(cache, epoch, log_end_offset)
    return found if found.is_undefined else EpochEnd(epoch, found.end_offset)


TRUE_END = EpochCache.end_offset_for
TRUE_FETCH = Leader.fetch
TRUE_BEGIN = Leader.begin_epoch
TRUE_RESET = RemoteReplica.reset
TRUE_ADVANCE = Leader.maybe_advance_high_watermark
TRUE_READ = Leader.read
TRUE_CHECK = alter_module.check_proposal
TRUE_TRUNCATE = Partition.truncate_to


def diverging_unfenced(
    leader: Leader,
    wanted: Any,
    replica_id: int,
    now_ms: int,
    alive: Collection[int],
    out: list[Any],
    *,
    reads_committed: bool = False,
) -> FetchResult:
    asked, own = wanted.current_leader_epoch, leader.partition.leader_epoch
    if asked is None or asked == own:
        return TRUE_FETCH(leader, wanted, replica_id, now_ms, alive, out, reads_committed=reads_committed)
    result = leader.read(wanted, replica_id, reads_committed=reads_committed)
    if result.diverging is None:
        error = ErrorCode.FENCED_LEADER_EPOCH if asked < own else ErrorCode.UNKNOWN_LEADER_EPOCH
        return FetchResult(leader.partition.topic_partition, error)
    return result


def no_epoch_check(partition: Partition, asked: int | None) -> ErrorCode:
    return ErrorCode.NONE


def keeps_offsets(
    remote: RemoteReplica, now_ms: int, *, in_isr: bool, keep_offset: bool, epoch_start_offset: int
) -> None:
    TRUE_RESET(remote, now_ms, in_isr=in_isr, keep_offset=True, epoch_start_offset=epoch_start_offset)


def check_without_epochs(context: Any, broker_id: int, proposal: Any) -> Any:
    """M8: whoever proposes may, and writes over whatever version there is."""
    current = context.leadership.get(proposal.topic_partition)
    if current is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    return ErrorCode.NONE, replace(current, isr=proposal.new_isr)


def check_without_partition_epoch(context: Any, broker_id: int, proposal: Any) -> Any:
    current = context.leadership.get(proposal.topic_partition)
    if current is not None:
        proposal = replace(proposal, partition_epoch=current.partition_epoch)
    return TRUE_CHECK(context, broker_id, proposal)


def check_without_leader_epoch(context: Any, broker_id: int, proposal: Any) -> Any:
    current = context.leadership.get(proposal.topic_partition)
    if current is not None:
        proposal = replace(proposal, leader_epoch=current.leader_epoch, partition_epoch=current.partition_epoch)
    return TRUE_CHECK(context, current.leader if current else broker_id, proposal)


def leads_with_all(leader: Leader, state: Any, now_ms: int, *, was_leader: bool, cause: str, out: list[Any]) -> None:
    TRUE_BEGIN(leader, state, now_ms, was_leader=was_leader, cause=cause, out=out)
    leader.partition.set_high_watermark(leader.partition.log_end_offset, cause, out)


def some_follower(leader: Leader, now_ms: int, alive: Collection[int], cause: str, out: list[Any]) -> bool:
    best = max((remote.log_end_offset for remote in leader.remotes.values()), default=-1)
    partition = leader.partition
    best = min(best, partition.log_end_offset)
    return best > partition.high_watermark and partition.set_high_watermark(best, cause, out)


def majority(leader: Leader, now_ms: int, alive: Collection[int], cause: str, out: list[Any]) -> bool:
    partition = leader.partition
    ends = sorted([partition.log_end_offset, *(remote.log_end_offset for remote in leader.remotes.values())])
    end = min(ends[(len(ends) - 1) // 2], partition.log_end_offset)
    return end > partition.high_watermark and partition.set_high_watermark(end, cause, out)


def leader_alone(leader: Leader, now_ms: int, alive: Collection[int], cause: str, out: list[Any]) -> bool:
    return leader.partition.set_high_watermark(leader.partition.log_end_offset, cause, out)


def below_min_isr(leader: Leader, now_ms: int, alive: Collection[int], cause: str, out: list[Any]) -> bool:
    rules = leader.partition.rules
    leader.partition.rules = replace(rules, min_insync_replicas=1)
    moved = TRUE_ADVANCE(leader, now_ms, alive, cause, out)
    leader.partition.rules = rules
    return moved


def takes_any_response(follower: Follower, request_id: int, response: Any, now_ms: int, out: list[Any]) -> bool:
    follower.in_flight = request_id
    return TRUE_FETCH_RESPONSE_RECEIVED(follower, request_id, response, now_ms, out)


TRUE_FETCH_RESPONSE_RECEIVED = Follower.fetch_response_received


def takes_back_any(rounds: Rounds, leader: int, request_id: int, named: Any = None) -> list[Follower]:
    del named
    rounds._in_flight.pop(request_id, None)
    return [at.follower_role for at in rounds.followed(leader).values() if at.follower_role is not None]


def reads_all(leader: Leader, wanted: Any, replica_id: int, *, reads_committed: bool = False) -> FetchResult:
    return TRUE_READ(leader, wanted, -2 if replica_id == CONSUMER else replica_id, reads_committed=reads_committed)


TRUE_LEADERSHIPS_CHECK = Leaderships.check


def reports_takeovers_only(leaderships: Leaderships, partition: Partition, *, is_hosted: bool, out: list[Any]) -> None:
    TRUE_LEADERSHIPS_CHECK(leaderships, partition, is_hosted=is_hosted, out=out)
    out[:] = [effect for effect in out if not isinstance(effect, LeadershipChanged) or effect.leads]


def committed_anywhere(writes: Writes, topic_partition: Any, offset: int) -> tuple[ErrorCode, str] | None:
    partition = writes._hosted.by_name.get(topic_partition)
    assert partition is not None
    return None if partition.high_watermark < offset else (ErrorCode.NONE, "")


def committed_at_once(writes: Writes, topic_partition: Any, offset: int) -> tuple[ErrorCode, str] | None:
    return ErrorCode.NONE, ""


def forgets_the_cache(partition: Partition, offset: int, cause: str, out: list[Any]) -> None:
    """KAFKA-10706: a truncation at or above the end returned before it had trimmed the epochs."""
    if offset < partition.log_end_offset:
        TRUE_TRUNCATE(partition, offset, cause, out)


def assigns_blindly(cache: EpochCache, epoch: int, start_offset: int) -> bool:
    """Conflicting entries stay; only newer ones are added."""
    return cache.assign_newer(epoch, start_offset)


def ends_at_high_watermark(partition_end: Callable[..., EpochEnd]) -> Callable[..., FetchResult]:
    """The end of the latest epoch as the high watermark instead of the log's end."""

    def read(leader: Leader, wanted: Any, replica_id: int, *, reads_committed: bool = False) -> FetchResult:
        partition = leader.partition
        end, partition.log_end_offset = partition.log_end_offset, max(partition.high_watermark, 0)
        try:
            return TRUE_READ(leader, wanted, replica_id, reads_committed=reads_committed)
        finally:
            partition.log_end_offset = end

    del partition_end
    return read


def elects_anybody(context: Any, at: Any, old: Any, *, unclean: bool) -> Election:
    """M10: also with unclean elections off."""
    assigned = context.assignment(at).replicas
    live = tuple(replica for replica in assigned if context.is_online(replica, at))
    if not live:
        return Election(None, live)
    state = elect_offline(context, at, replace(old, isr=live), unclean=False).leadership
    return Election(state, live)


def is_online(context: Any, at: Any, state: Any, broker_id: int) -> bool:
    del state
    return context.is_online(broker_id, at)


def prefers_anybody(context: Any, at: Any, old: Any) -> Election:
    assigned = context.assignment(at).replicas
    if not assigned or not context.is_online(assigned[0], at):
        return Election(None, assigned)
    isr = old.isr if assigned[0] in old.isr else (*old.isr, assigned[0])
    return Election(replace(old, leader=assigned[0], leader_epoch=old.leader_epoch + 1, isr=isr), assigned)


def same_epoch(context: Any, at: Any, old: Any, *, unclean: bool) -> Election:
    election = elect_offline(context, at, old, unclean=unclean)
    if election.leadership is None:
        return election
    return Election(replace(election.leadership, leader_epoch=old.leader_epoch), election.recipients)


def removes_the_last(old: Any, broker_id: int, controller_epoch: int) -> Any:
    return replace(remove_from_isr(old, broker_id, controller_epoch), isr=tuple(b for b in old.isr if b != broker_id))


def removes_quietly(old: Any, broker_id: int, controller_epoch: int) -> Any:
    return replace(remove_from_isr(old, broker_id, controller_epoch), leader_epoch=old.leader_epoch)


def write_any_version(path: str, data: bytes, version: int) -> SetNode:
    del version
    return SetNode(path, data)


def takes_responses_of_the_dead(context: Any, broker_id: int, request: Any, response: Any) -> Any:
    """The response of a previous registration counts for the present one."""
    if broker_id in context.live:
        header = replace(request.header, broker_epoch=context.live[broker_id].epoch)
        yield from responses.process_response(context, broker_id, replace(request, header=header), response)


def no_broker_epoch(control: ControlRequests, header: Any) -> ErrorCode:
    if header.controller_epoch < control.controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    control.controller_epoch = header.controller_epoch
    return ErrorCode.NONE


TRUE_FETCHED = RemoteReplica.fetched


def never_lower(remote: RemoteReplica, fetch_offset: int, log_start_offset: int, leader_end: int, now_ms: int) -> None:
    TRUE_FETCHED(remote, max(fetch_offset, remote.log_end_offset), log_start_offset, leader_end, now_ms)


def reconciles_before_cut(follower: Follower, response: Any, out: list[Any]) -> None:
    """The follower takes the response's place for its own, whatever its epochs: to the leader's offset, once."""
    partition = follower.partition
    partition.truncate_to(min(response.diverging.end_offset, partition.log_end_offset), "FetchResponse", out)


def reported_when_asked(
    remote: RemoteReplica, fetch_offset: int, log_start_offset: int, leader_end: int, now_ms: int
) -> None:
    """A follower counts as having what it is about to be sent."""
    TRUE_FETCHED(remote, leader_end, log_start_offset, leader_end, now_ms)


FENCE_OFF: Patch = (SimController, "_is_elected", lambda _: True)
_EVERY_ERROR = frozenset(ErrorCode) - {ErrorCode.NONE}

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "M1",
        "cut where epochs part, not at the own high watermark",
        ((Kip320Rule, "truncation_offset", own_high_watermark),),
        "KAFKA-1211",
    ),
    Mutant("M2", "a leader notes its epoch at election", ruled_by(NotesLate()), "KAFKA-7415"),
    Mutant(
        "M2b",
        "the answer names the largest epoch that is not above",
        ((EpochCache, "end_offset_for", end_without_largest_epoch),),
        "KAFKA-6361",
    ),
    Mutant(
        "M3",
        "the place to cut is fenced by the leader epoch",
        (*ruled_by(AskingRule()), (Follower, "ask_epoch", ask_epoch_unfenced)),
        "KIP-320",
    ),
    Mutant(
        "M4",
        "joining needs the start of the leader's epoch",
        ((Kip320Rule, "may_join", only_high_watermark),),
        "KAFKA-7128",
    ),
    Mutant("M5", "fetches are fenced by epoch", ruled_by(UnfencedFetches()), "KAFKA-6880"),
    Mutant("M6", "only fetches of this epoch count", ((RemoteReplica, "reset", keeps_offsets),), "KIP-320"),
    Mutant("M7", "joining needs the high watermark", ((Kip320Rule, "may_join", only_epoch_start),)),
    Mutant(
        "M8",
        "only the leader's proposal of this epoch is taken",
        tuple((module, "check_proposal", check_without_epochs) for module in (alter_module, explored)),
    ),
    Mutant(
        "M9-expand",
        "who is being added counts already",
        ((PendingExpand, "maximal_isr", property(lambda state: state.isr)),),
    ),
    Mutant(
        "M9-shrink",
        "who is being dropped counts still",
        ((PendingShrink, "maximal_isr", property(lambda state: state.proposal.new_isr)),),
    ),
    Mutant("M10", "elections are clean", ((partition_machine, "elect_offline", elects_anybody),)),
    Mutant("M12", "a new epoch of the same leader begins anew", ruled_by(CutsForAnotherLeader()), "KAFKA-7164"),
    Mutant("M13", "divergences are cut", ((Kip320Rule, "fetch_epochs", AskingRule.fetch_epochs),)),
    Mutant("M14", "a new leader commits nothing by itself", ((Leader, "begin_epoch", leads_with_all),)),
    Mutant(
        "M15", "the whole ISR commits, not some follower", ((Leader, "maybe_advance_high_watermark", some_follower),)
    ),
    Mutant(
        "commit-majority",
        "the whole ISR commits, not a majority",
        ((Leader, "maybe_advance_high_watermark", majority),),
    ),
    Mutant(
        "commit-alone",
        "the whole ISR commits, not the leader alone",
        ((Leader, "maybe_advance_high_watermark", leader_alone),),
    ),
    Mutant(
        "commit-below-min-isr",
        "the high watermark stands still below min.insync.replicas",
        ((Leader, "maybe_advance_high_watermark", below_min_isr),),
        "KIP-966",
    ),
    Mutant(
        "commit-on-sending",
        "an end counts when it is asked from, not when it is sent",
        ((RemoteReplica, "fetched", reported_when_asked),),
    ),
    Mutant(
        "rollback",
        "a pending change is rolled back on two errors only",
        ((leader_module, "_ROLL_BACK", _EVERY_ERROR),),
        "KAFKA-12686",
    ),
    Mutant(
        "late-responses",
        "an answer is taken by the request that waits for it",
        ((Follower, "fetch_response_received", takes_any_response), (Rounds, "_take_back", takes_back_any)),
    ),
    Mutant(
        "epochs-unchecked",
        "a fetch carries the right leader epoch",
        ((Partition, "check_leader_epoch", no_epoch_check), (Kip320Rule, "skips_newer_epochs", False)),
        "KAFKA-7395",
    ),
    Mutant(
        "truncated-once", "the own epochs decide how far to cut", ((Follower, "_reconcile", reconciles_before_cut),)
    ),
    Mutant("join-anybody", "joining needs a condition", ((Kip320Rule, "may_join", lambda *_: True),)),
    Mutant(
        "isr-leader-epoch",
        "a proposal is for this leader epoch",
        (
            (alter_module, "check_proposal", check_without_leader_epoch),
            (explored, "check_proposal", check_without_leader_epoch),
        ),
    ),
    Mutant(
        "prefers-anybody",
        "the preferred leader is in the ISR",
        ((partition_machine, "elect_preferred", prefers_anybody), (leaders_module, "can_lead", is_online)),
    ),
    Mutant("same-epoch", "each election has a new leader epoch", ((partition_machine, "elect_offline", same_epoch),)),
    Mutant(
        "removes-the-last",
        "the last member stays in the ISR",
        ((replica_machine, "remove_from_isr", removes_the_last),),
    ),
    Mutant(
        "removes-quietly",
        "who leaves the ISR leaves with a new epoch",
        ((replica_machine, "remove_from_isr", removes_quietly),),
    ),
    Mutant(
        "broker-epoch",
        "a control request is for this registration, and its response, too",
        (
            (ControlRequests, "check_controller_epoch", no_broker_epoch),
            (sim_controller, "process_response", takes_responses_of_the_dead),
        ),
        "KIP-380",
    ),
    Mutant("consumers-see-all", "consumers read below the high watermark", ((Leader, "read", reads_all),)),
    Mutant("acked-at-once", "acks=all waits for the high watermark", ((Writes, "_commit_outcome", committed_at_once),)),
    Mutant("acked-by-anybody", "only a leader acknowledges", ((Writes, "_commit_outcome", committed_anywhere),)),
    Mutant(
        "silent-resignation",
        "a leader that becomes a follower notifies the coordinators",
        ((Leaderships, "check", reports_takeovers_only),),
    ),
    Mutant(
        "cache-beyond-the-end",
        "a cut trims the epochs even where it cuts nothing",
        ((Partition, "truncate_to", forgets_the_cache),),
        "KAFKA-10706",
    ),
    Mutant("cache-keeps", "a cut trims the epochs", ((EpochCache, "truncate_from_end", lambda *_: False),)),
    Mutant("cache-conflicts", "entries that contradict a newcomer go", ((EpochCache, "assign", assigns_blindly),)),
    Mutant(
        "end-by-high-watermark", "an epoch ends at the log's end", ((Leader, "read", ends_at_high_watermark(TRUE_END)),)
    ),
    Mutant(
        "diverging-unfenced",
        "where logs part is told to this epoch only",
        ((Partition, "check_leader_epoch", no_epoch_check), (Leader, "fetch", diverging_unfenced)),
        "KIP-320",
    ),
    Mutant(
        "unseen-restart",
        "a new controller gives a leader that restarted unseen a new epoch (Kafka's rule is to overlook it)",
        (
            (
                sim_controller,
                "SETTINGS",
                ControllerSettings(leader_imbalance_percentage=0, trusts_restarted_brokers=True),
            ),
        ),
        "KAFKA-7235",
    ),
    Mutant(
        "sequences",
        "an idempotent producer's batch is written once",
        ((ProducerState, "check", lambda *_, **__: ProducerCheck()),),
        "KIP-98",
    ),
    Mutant(
        "zombie-overwrites",
        "a controller's writes are fenced by its epoch and by the state's version",
        (FENCE_OFF, (state_store, "SetNode", write_any_version)),
        "KAFKA-6082",
    ),
)

CONTROLS: tuple[Mutant, ...] = (
    Mutant(
        "isr-partition-epoch",
        "none that is not held twice: one change in flight, and a controller's queue in order",
        ((alter_module, "check_proposal", check_without_partition_epoch),),
    ),
    Mutant("none", "none is missing", ()),
    Mutant("asks-first", "none is missing: KIP-320 as of 2.1 asks before it fetches, fenced", ruled_by(AskingRule())),
    Mutant(
        "zombie-writes",
        "none that is not held twice: a term reads in its own session only, and writes over the version it has read",
        (FENCE_OFF,),
    ),
    Mutant(
        "broker-epoch-at-the-broker",
        "none that is not held twice: no response of a previous registration is taken",
        ((ControlRequests, "check_controller_epoch", no_broker_epoch),),
    ),
    Mutant(
        "own-version",
        "none that is not held twice: the fence alone holds",
        ((state_store, "SetNode", write_any_version),),
    ),
)
"""Mutants that must break nothing, so that a mutant's end is not the simulator's own."""


# Several log directories


def _drops_the_rest(executor: EffectExecutor, effects: Sequence[Any]) -> None:
    """The step ends at the first effect that fails; whoever waits hears of an error, whichever partition it was."""
    for place, effect in enumerate(effects):
        try:
            effect_executor._EXECUTORS[type(effect)](executor, effect)
        except Exception as problem:  # noqa: BLE001 - as the shell once did
            executor._effect_failed(effect, problem)
            for rest in effects[place:]:
                if isinstance(rest, RespondToProduce):
                    failed = [replace(one, error=ErrorCode.KAFKA_STORAGE_ERROR) for one in rest.results]
                    executor._host.respond_to_produce(rest.token, failed)
                elif isinstance(rest, RespondToFetch):
                    unread = [FetchResult(one.topic_partition, ErrorCode.KAFKA_STORAGE_ERROR) for one in rest.results]
                    executor._host.respond_to_fetch(rest.token, [(one, b"") for one in unread])
            return


def _raises_what_a_read_raises(
    executor: EffectExecutor, effect: RespondToFetch, result: FetchResult, left_bytes: int, *, at_least_one_batch: bool
) -> tuple[FetchResult, bytes]:
    wanted = result.read
    assert wanted is not None
    bound, size = wanted.upper_bound, min(wanted.max_bytes, left_bytes)
    at = result.topic_partition
    records = executor._logs.read(at, wanted.from_offset, bound, size, at_least_one_batch=at_least_one_batch)
    return result, records


def _takes_all_offline(executor: EffectExecutor, topic_partitions: Collection[Any]) -> None:
    TRUE_LOSE(executor, list(executor._logs.replicas) if topic_partitions else [])


def _keeps_it_to_itself(executor: EffectExecutor) -> None:
    """The core never hears of the failure, and goes on from an end that its log does not have."""
    executor._unreported.clear()


def _drops_losses_too(executor: EffectExecutor, effect: LeadershipChanged) -> None:
    """A failed replica has nothing to report any more, whatever it was."""
    if effect.topic_partition not in executor.failed:
        executor._host.leadership_changed(effect)


def _ignores_failed_replicas(context: Any, broker_id: int, response: Any) -> Any:
    working = dict.fromkeys(response.partitions, ErrorCode.NONE)
    return (yield from TRUE_RESPONSE(context, broker_id, replace(response, partitions=working)))


TRUE_LOSE = EffectExecutor._lose
TRUE_RESPONSE = broker_events.process_leader_and_isr_response

DISK_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "drops-the-rest",
        "an effect that fails takes no effect of another partition with it",
        ((EffectExecutor, "_carry_out", _drops_the_rest),),
    ),
    Mutant(
        "read-ends-the-step",
        "a read that fails answers for its partition, and the step goes on",
        ((EffectExecutor, "_read", _raises_what_a_read_raises), (EffectExecutor, "_carry_out", _drops_the_rest)),
    ),
    Mutant(
        "read-leaves-no-response",
        "a read that fails is answered at all",
        ((EffectExecutor, "_read", _raises_what_a_read_raises),),
    ),
    Mutant(
        "one-for-all",
        "a directory that fails takes its own replicas offline, and no others",
        ((EffectExecutor, "_lose", _takes_all_offline),),
    ),
    Mutant(
        "core-in-the-dark",
        "the core hears that a replica has failed",
        ((EffectExecutor, "_tell_core", _keeps_it_to_itself),),
    ),
    Mutant(
        "acknowledged-all-the-same",
        "what a failed replica did not write is not acknowledged",
        ((EffectExecutor, "_produced", lambda _, result: result),),
    ),
    Mutant(
        "coordinators-in-the-dark",
        "a coordinator whose partition went offline is notified that it has lost it",
        ((effect_executor, "_EXECUTORS", {**effect_executor._EXECUTORS, LeadershipChanged: _drops_losses_too}),),
    ),
    Mutant(
        "controller-in-the-dark",
        "the controller takes offline replicas out of the ISR",
        ((responses, "process_leader_and_isr_response", _ignores_failed_replicas),),
    ),
    Mutant(
        "unreported",
        "a broker reports that replicas have gone offline",
        ((World, "report_failures", lambda *_: None),),
    ),
)
"""Mutants for failing log directories, damaged batches and defects of a log."""
