"""The high watermark and the ISR against a twin that keeps every fetch and computes all from scratch.

The twin has no clock per replica and no pending state machine: the caught-up time is looked up in the list of all
fetches, and the set that counts is written down as the rule says it.
Sources: Partition.maybeIncrementLeaderHW, maybeExpandIsr and maybeShrinkIsr; Replica.updateFetchStateOrThrow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core_harness import AT
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.effects import Effect, ProposeIsr
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.messages import CoreSettings, FetchPartition, TopicRules
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerState
from tidegauge_broker.replica.roles import Role

LAG_MS = 100
START_MS = 1_000
EPOCH_START = 3
"""Where the log ends when the epoch begins; two of the three records are known to be committed."""
BEGIN_HW = 2
OTHERS = (2, 3, 4)


def under_load(broker: int) -> list[tuple[object, ...]]:
    """It fetches steadily and never reaches the end."""
    return [("append", 1), ("follow", broker), ("wait", 60)] * 4 + [("shrink",)]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.sampled_from(OTHERS), st.integers(0, 3)),
        st.tuples(st.just("follow"), st.sampled_from(OTHERS)),
        st.tuples(st.just("load"), st.sampled_from(OTHERS)),
        st.tuples(st.just("wait"), st.sampled_from([1, 40, LAG_MS, LAG_MS + 1])),
        st.tuples(st.just("shrink")),
        st.tuples(
            st.just("verdict"),
            st.sampled_from([ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_UPDATE_VERSION]),
        ),
        st.tuples(st.just("die"), st.sampled_from(OTHERS)),
        st.tuples(st.just("live"), st.sampled_from(OTHERS)),
    ),
    min_size=10,
    max_size=60,
).map(lambda steps: [one for step in steps for one in (under_load(step[1]) if step[0] == "load" else [step])])


@dataclass
class Fetch:
    at_ms: int
    offset: int
    leader_end: int


@dataclass
class Twin:
    """The rules, each in its plainest form."""

    min_insync_replicas: int
    isr: tuple[int, ...]
    now_ms: int = START_MS
    end: int = EPOCH_START
    high_watermark: int = BEGIN_HW
    alive: set[int] = field(default_factory=lambda: set(OTHERS))
    fetches: dict[int, list[Fetch]] = field(default_factory=lambda: {broker: [] for broker in OTHERS})
    proposed: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        self.isr_at_begin = self.isr

    def end_of(self, broker: int) -> int:
        return self.fetches[broker][-1].offset if self.fetches[broker] else -1

    def caught_up_at_ms(self, broker: int) -> int:
        times = [START_MS if broker in self.isr_at_begin else 0]
        earlier: list[Fetch] = []
        for fetch in self.fetches[broker]:
            if fetch.offset >= fetch.leader_end:
                times.append(fetch.at_ms)
            elif not earlier or fetch.offset >= max(one.leader_end for one in earlier):
                times.append(earlier[-1].at_ms if earlier else 0)
            earlier.append(fetch)
        return max(times)

    def is_caught_up(self, broker: int) -> bool:
        return self.end_of(broker) == self.end or self.now_ms - self.caught_up_at_ms(broker) <= LAG_MS

    @property
    def maximal_isr(self) -> set[int]:
        return set(self.isr) | set(self.proposed or ())

    def raise_high_watermark(self) -> None:
        if len(self.isr) < min(self.min_insync_replicas, len(OTHERS) + 1):
            return
        counted = [
            broker
            for broker in OTHERS
            if broker in self.maximal_isr or (broker in self.alive and self.is_caught_up(broker))
        ]
        self.high_watermark = max(self.high_watermark, min([self.end, *map(self.end_of, counted)]))

    def append(self, count: int) -> None:
        self.end += count
        self.raise_high_watermark()

    def fetch(self, broker: int, offset: int) -> None:
        before = self.end_of(broker)
        self.fetches[broker].append(Fetch(self.now_ms, offset, self.end))
        may_join = offset >= self.high_watermark and offset >= EPOCH_START
        if self.proposed is None and broker not in self.isr and broker in self.alive and may_join:
            self.proposed = (*self.isr, broker)
        if offset != before:
            self.raise_high_watermark()

    def shrink(self) -> None:
        left = tuple(broker for broker in self.isr if broker == 1 or self.is_caught_up(broker))
        if self.proposed is None and left != self.isr:
            self.proposed = left

    def verdict(self, error: ErrorCode) -> None:
        if self.proposed is None:
            return
        if error is ErrorCode.NONE:
            self.isr, self.proposed = self.proposed, None
            self.raise_high_watermark()
        elif error is ErrorCode.INELIGIBLE_REPLICA:
            self.proposed = None


def a_leader(isr: tuple[int, ...], min_insync_replicas: int, out: list[Effect]) -> Leader:
    log = LoadedLog(0, EPOCH_START, BEGIN_HW, [], ProducerState())
    rules = TopicRules(min_insync_replicas=min_insync_replicas)
    partition = Partition(AT, 1, CoreSettings(replica_lag_time_max_ms=LAG_MS), rules, "id", log)
    state = PartitionState(AT, "id", 1, 1, 0, isr, 0, (1, *OTHERS))
    partition.adopt(state)
    partition.role = Role.LEADER
    leader = partition.leader_role = Leader(partition)
    leader.begin_epoch(state, START_MS, was_leader=False, cause="LeaderAndIsr", out=out)
    return leader


def take_verdict(leader: Leader, proposal: IsrProposal, error: ErrorCode, twin: Twin, out: list[Effect]) -> None:
    epoch = leader.partition.partition_epoch + (error is ErrorCode.NONE)
    verdict = IsrVerdict(AT, error, 1, leader.partition.leader_epoch, proposal.new_isr, epoch)
    if leader.isr_verdict(proposal, verdict, out):
        leader.maybe_advance_high_watermark(twin.now_ms, twin.alive, "AlterPartition", out)


@settings(max_examples=examples(200), deadline=None)
@given(
    isr=st.sampled_from([(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]),
    min_insync_replicas=st.sampled_from([1, 1, 2, 3, 5]),
    operations=OPERATIONS,
)
def test_the_leader_does_what_its_twin_does(
    isr: tuple[int, ...], min_insync_replicas: int, operations: list[tuple[str, int, int]]
):
    out: list[Effect] = []
    leader, twin = a_leader(isr, min_insync_replicas, out), Twin(min_insync_replicas, isr)
    partition = leader.partition
    leader.maybe_advance_high_watermark(twin.now_ms, twin.alive, "LeaderAndIsr", out)
    twin.raise_high_watermark()
    proposals: list[IsrProposal] = []
    for name, *arguments in operations:
        out.clear()
        match name, arguments:
            case "append", [count]:
                partition.move_log_end(partition.log_end_offset + count, "Produce", out)
                leader.maybe_advance_high_watermark(twin.now_ms, twin.alive, "Produce", out)
                twin.append(count)
            case "fetch", [broker, behind]:
                offset = max(twin.end - behind, 0)
                leader.fetch(FetchPartition(AT, offset, 1 << 20), broker, twin.now_ms, twin.alive, out)
                twin.fetch(broker, offset)
            case "follow", [broker]:  # it asks for the leader's end as of its last fetch
                offset = twin.fetches[broker][-1].leader_end if twin.fetches[broker] else twin.end
                leader.fetch(FetchPartition(AT, offset, 1 << 20), broker, twin.now_ms, twin.alive, out)
                twin.fetch(broker, offset)
            case "wait", [ms]:
                twin.now_ms += ms
            case "shrink", []:
                leader.maybe_shrink(twin.now_ms, out)
                twin.shrink()
            case "verdict", [error]:
                if proposals:
                    take_verdict(leader, proposals[-1], error, twin, out)
                twin.verdict(error)
            case "die", [broker]:
                twin.alive.discard(broker)
            case "live", [broker]:
                twin.alive.add(broker)
        proposals += [effect.proposal for effect in out if isinstance(effect, ProposeIsr)]
        assert partition.high_watermark == twin.high_watermark, name
        assert (leader.isr.isr, set(leader.isr.maximal_isr)) == (twin.isr, twin.maximal_isr), name
        assert (leader.isr.proposal is not None) is (twin.proposed is not None), name
        if twin.proposed is not None:
            assert proposals[-1].new_isr == twin.proposed
