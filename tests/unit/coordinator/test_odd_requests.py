"""Any order of requests with odd contents: a coordinator meets no exception that it does not expect.

One that it meets takes its group or transactional id out of service (docs/adr/0023-a-defect-costs-its-group.md), which
the harness takes for a failure. Values are those that Kafka's protocol can carry, after its checks of type and length
alone. In the end every request has had its response, but for those that their members have replaced.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, T0, T1, Harness, subscription
from tests.unit.coordinator.transaction_harness import OFFSETS_0, U0, TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    DeleteGroup,
    DescribeGroup,
    GroupState,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    TxnOffsetCommit,
)
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    ListTransactions,
)

REQUESTS = 150
INT32 = (0, 1, -1, 2, 100, 2**31 - 1, -(2**31))
INT64 = (*INT32, 2**62, 2**63 - 1, -(2**63))
TEXTS = ("", "a", "consumer", "märz", "x" * 300)
METADATA = (b"", b"abc", b"x" * 30, subscription("t"), subscription("t", "t", ""), subscription("u")[:-3])
GROUPS = ("g", "g", "g", "h", "", None)
TIMES_MS = (0, 1, 3_000, 6_000, 60_000, 2_000_000)


class OddGroups:
    """Requests about some groups, two if no others are given."""

    def __init__(self, rng: random.Random, broker: Harness, groups: Sequence[str | None] = GROUPS) -> None:
        self._rng = rng
        self._broker = broker
        self._groups = groups

    def request(self) -> Any:
        one = self._rng.choice
        group = one(self._groups)
        member = self._member(group)
        instance = one((None, None, "i", "j", ""))
        generation = one((self._generation(group), self._generation(group), *INT32))
        partitions = tuple(one((T0, T0, T1, U0)) for _ in range(one((0, 1, 2, 3))))
        offsets = tuple(
            OffsetToCommit(at, one(INT64), one(INT32), one((None, *TEXTS)), one(INT64)) for at in partitions
        )
        match one(("join", "join", "join", "sync", "sync", "leave", "commit", "transaction", "other", "other")):
            case "join":
                names = [one(("range", "range", "rr", "", "x")) for _ in range(one((0, 1, 1, 2, 3)))]
                return JoinGroup(
                    group, member, one((6_000, 10_000, 1_800_000, *INT32)), one((0, 6_000, *INT32)),
                    one(("consumer", "consumer", "consumer", *TEXTS)),
                    tuple(Protocol(name, one(METADATA)) for name in names),
                    instance, one(TEXTS), "/127.0.0.1", one((None, *TEXTS)), one((True, False)), one((True, False)),
                )  # fmt: skip
            case "sync":
                given = tuple((self._member(group), one(METADATA)) for _ in range(one((0, 1, 2, 3))))
                types, names = (None, None, "consumer", "x"), (None, None, "range", "x")
                return SyncGroup(group, generation, member, instance, one(types), one(names), given)
            case "leave":
                return LeaveGroup(
                    group,
                    tuple(
                        LeavingMember(self._member(group), one((None, "i", "j", "")), one((None, "", "x")))
                        for _ in range(one((0, 1, 2, 3)))
                    ),
                )
            case "commit":
                return OffsetCommit(group, offsets, generation, member, instance, one((-1, -1, *INT64)))
            case "transaction":
                producer = (one((7, 7, *INT64)), one((0, 1, -1, 2**15 - 1)))
                return TxnOffsetCommit(one(("tx", "")), group, *producer, offsets, generation, member, instance)
            case _:
                return one(
                    (
                        Heartbeat(group, generation, member, instance),
                        OffsetFetch(group, one((None, partitions)), one((True, False))),
                        OffsetDelete(group, partitions),
                        DescribeGroup(group),
                        DeleteGroup(group or ""),
                    )
                )

    def settle(self) -> None:
        """Bring a group forward as its members would: two static ones join and synchronise, or come again oddly."""
        group, broker, one = self._rng.choice(("g", "h")), self._broker, self._rng.choice
        for _ in range(one((1, 2))):
            view = broker.coordinator.group_view(group)
            is_stable = view is not None and view.state is GroupState.STABLE
            rebalance_ms = one((0, 0, 60_000, *INT32)) if is_stable else 60_000
            for instance in ("i", "j"):
                session_ms = one((6_000, 12_000, 1_800_000))
                broker.join(
                    group=group,
                    group_instance_id=instance,
                    session_timeout_ms=session_ms,
                    rebalance_timeout_ms=rebalance_ms,
                )
            broker.after(0 if is_stable else 2 * INITIAL_DELAY_MS)
            view = broker.coordinator.group_view(group)
            if view is not None and view.state is GroupState.COMPLETING_REBALANCE:
                broker.sync_all([member.member_id for member in view.members], view.generation, group)

    def remove_static(self) -> LeaveGroup:
        """Return the request of an administrator, who names an instance id alone."""
        return LeaveGroup(self._rng.choice(("g", "h")), (LeavingMember("", self._rng.choice(("i", "j"))),))

    def _member(self, group: str | None) -> str:
        view = self._broker.coordinator.group_view(group or "")
        known = () if view is None else (*(member.member_id for member in view.members), *view.pending_members)
        return self._rng.choice((*known, *known, "", "unknown"))

    def _generation(self, group: str | None) -> int:
        view = self._broker.coordinator.group_view(group or "")
        return 0 if view is None else view.generation


@pytest.mark.parametrize("seed", range(15))
def test_a_group_coordinator_takes_any_requests(seed: int) -> None:
    play_groups(seed)


def test_the_groups_that_odd_requests_meet_are_in_every_state() -> None:
    assert set().union(*(play_groups(seed) for seed in range(4))) == set(GroupState) - {GroupState.DEAD}


def play_groups(seed: int) -> set[GroupState]:
    """Play a seed; return the states in which groups were."""
    rng = random.Random(seed)
    settings = {"offsets_retention_ms": 10**6, "group_max_size": rng.choice((2, 2**31 - 1))}
    broker = Harness(**settings)
    seen: set[GroupState] = set()
    odd = OddGroups(rng, broker)
    for _ in range(REQUESTS):
        broker.holds_verifications = rng.random() < 0.2
        broker.send(odd.request() if rng.random() < 0.8 else odd.remove_static())
        if rng.random() < 0.1:
            odd.settle()
        seen |= {view.state for view in broker.coordinator.group_views()}
        if rng.random() < 0.3:
            broker.after(rng.choice(TIMES_MS))
        if broker.verifications and rng.random() < 0.5:
            broker.verify(rng.choice((ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)))
        if rng.random() < 0.1:
            broker.complete_transaction(rng.choice((Outcome.COMMIT, Outcome.ABORT)))
        if rng.random() < 0.03:
            broker = broker.successor(**settings)
            odd = OddGroups(rng, broker)
    while broker.verifications:
        broker.verify()
    broker.resign(1)
    assert broker.coordinator.open_requests == 0
    return seen


@pytest.mark.parametrize("seed", range(15))
def test_a_transaction_coordinator_takes_any_requests(seed: int) -> None:
    rng = random.Random(seed)
    one, broker = rng.choice, TransactionHarness()
    epoch = 0
    for _ in range(REQUESTS):
        broker.send(odd_transaction_request(rng, broker, one(("tx", "tx", "ty", "", None))))
        broker.holds_markers = rng.random() < 0.3
        if broker.markers and rng.random() < 0.5:
            one((broker.write_markers, broker.lose_markers))()
        if rng.random() < 0.3:
            broker.after(one(TIMES_MS))
        if rng.random() < 0.03:
            epoch += 1
            broker = broker.successor(epoch)
    while broker.markers:
        broker.write_markers()
    broker.resign(epoch + 1)
    assert broker.coordinator.open_requests == 0


def odd_transaction_request(rng: random.Random, broker: TransactionHarness, name: str | None) -> Any:
    """Return a request of a transactional id."""
    one = rng.choice
    producer = (one((*range(broker.next_producer_id), *INT64)), one((0, 0, 1, 2, -1, 2**15 - 1, -(2**15))))
    partitions = tuple(one((T0, T0, T1, U0, OFFSETS_0)) for _ in range(one((0, 1, 2, 3))))
    view = broker.coordinator.transaction_view(name or "")
    if view is not None and rng.random() < 0.5:
        producer = (view.producer_id, view.producer_epoch)
    return one(
        (
            InitProducerId(name, one((60_000, 60_000, *INT32)), *one((producer, (-1, -1)))),
            AddPartitionsToTxn(name, *producer, partitions, verify_only=one((True, False))),
            AddOffsetsToTxn(name, *producer, 0),
            EndTxn(name, *producer, one((Outcome.COMMIT, Outcome.ABORT))),
            DescribeTransaction(name or ""),
            ListTransactions(one(((), ("Ongoing", "x"))), one(((), (0, -1))), one(INT64)),
        )
    )
