"""A defect in one decision costs its group or transactional id, and leaves no half step behind.

docs/adr/0023-a-defect-costs-its-group.md is the rule. The defects are put in: a rule of the coordinator raises after it
has changed something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, T0, T1, Harness
from tests.unit.coordinator.transaction_harness import TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    DeleteGroup,
    DescribeGroup,
    GroupState,
    JoinGroupResult,
    ListGroups,
    OffsetFetch,
    SyncGroupResult,
    TxnOffsetCommitResult,
)
from tidegauge.transactions import InitProducerIdResult, ListTransactions, TransactionState
from tidegauge_broker.coordinator import coordinator as group_coordinator
from tidegauge_broker.coordinator.committing import Committing
from tidegauge_broker.coordinator.events import PartitionsDeleted
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.membership import Membership
from tidegauge_broker.coordinator.group.phases import Phases
from tidegauge_broker.coordinator.offsets import Offsets
from tidegauge_broker.coordinator.transaction.markers import Markers
from tidegauge_broker.coordinator.transaction.transaction import Transaction
from tidegauge_broker.coordinator.transactional_commits import TransactionalCommits

E = ErrorCode


def fails_after(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, is_meant: Callable[..., bool]) -> None:
    """Have a method raise behind what it does, for some of its calls."""
    method = getattr(owner, name)

    def broken(*arguments: Any, **named: Any) -> Any:
        result = method(*arguments, **named)
        if is_meant(*arguments):
            raise RuntimeError(f"a defect in {name}")
        return result

    monkeypatch.setattr(owner, name, broken)


def is_g(_self: object, group: Group, *_: object) -> bool:
    return group.group_id == "g"


def broker_with_defects() -> Harness:
    """Two Stable groups of two members each, and an offset of each."""
    broker = Harness()
    broker.has_defects = True
    for group in ("g", "h"):
        broker.stable_group(2, group)
        broker.commit(5, group=group, member_id=broker.group(group).members[0].member_id, generation=1)
    return broker


def ids_of(broker: Harness, group: str = "g") -> list[str]:
    return [member.member_id for member in broker.group(group).members]


def assert_out_of_service(broker: Harness) -> None:
    """Assert that all requests about g fail, and that h, its members, offsets and timers are as they were."""
    assert [str(problem).startswith("a defect in") for problem in broker.defects] == [True]
    assert broker.coordinator.group_view("g") is None
    assert broker.heartbeat("m") is E.UNKNOWN_SERVER_ERROR
    assert broker.joined(broker.join()).error is E.UNKNOWN_SERVER_ERROR
    assert broker.committed(broker.commit()) is E.UNKNOWN_SERVER_ERROR
    assert broker.ask(OffsetFetch("g", (T0,))).error is E.UNKNOWN_SERVER_ERROR
    assert broker.ask(DescribeGroup("g")).error is E.UNKNOWN_SERVER_ERROR
    listed = {one.group_id: one.state for one in broker.ask(ListGroups()).groups}
    assert listed["g"] == "Unknown"
    (line,) = [line.text for line in broker.lines if "out of service" in line.text]
    assert line.startswith("Group 'g' (__consumer_offsets-0) is out of service: ")
    assert "a defect in" in line
    assert broker.coordinator.open_requests == 0 == broker.coordinator.appends_in_flight


def assert_h_is_served(broker: Harness) -> None:
    members = ids_of(broker, "h")
    assert len(members) == 2
    assert [broker.heartbeat(one, group="h") for one in members] == [E.NONE, E.NONE]
    assert broker.offset(group="h").offset == 5
    broker.after(2 * SESSION_MS)
    assert broker.group("h").state is GroupState.EMPTY, "its sessions end"
    assert broker.coordinator.next_deadline_ms() > broker.now_ms + 2 * SESSION_MS, "no timer but the periodic one"


def test_a_defect_in_a_request_costs_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JoinGroup opens a join phase and fails: parked requests get responses, no timer of the group is left."""
    broker = broker_with_defects()
    first, second = ids_of(broker)
    parked = broker.join(first)
    fails_after(monkeypatch, Phases, "try_complete_join", is_g)
    broken = broker.join(second)
    for token in (parked, broken):
        assert broker.response_to(token) == JoinGroupResult(
            E.UNKNOWN_SERVER_ERROR, member_id=first if token == parked else second
        ), "what the failed decision has responded is not sent"
    assert_out_of_service(broker)
    assert_h_is_served(broker)


def test_a_defect_in_a_timer_costs_its_group_and_the_other_timers_of_the_turn_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = broker_with_defects()
    fails_after(monkeypatch, Phases, "remove", is_g)
    (leaves,) = [one for one in ids_of(broker, "h") if one == broker.group("h").leader]
    broker.after(SESSION_MS - 1)
    broker.heartbeat(leaves, group="h")
    broker.after(1)
    assert ids_of(broker, "h") == [leaves], "the session of h's other member ends in the same turn"
    assert_out_of_service(broker)


def test_a_defect_when_an_append_is_committed_costs_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assignment is in the log, as after any failure; parked SyncGroups get an error, the commit of h counts."""
    broker = broker_with_defects()
    first, second = ids_of(broker)
    joins = [broker.join(one) for one in (first, second)]
    assert [broker.joined(token).generation for token in joins] == [2, 2]
    broker.holds = True
    token = broker.commit(6, group="h", member_id=ids_of(broker, "h")[0], generation=1)
    syncs = broker.sync_all([first, second], 2)
    fails_after(monkeypatch, Phases, "assign", is_g)
    broker.release(index=1)
    assert [broker.response_to(sync) for sync in syncs] == [SyncGroupResult(E.UNKNOWN_SERVER_ERROR)] * 2
    broker.release()
    assert broker.committed(token) is E.NONE
    broker.holds = False
    assert_out_of_service(broker)


def test_pending_appends_of_the_group_are_dropped_and_their_requests_get_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = broker_with_defects()
    broker.holds = True
    pending = broker.commit(6, member_id=ids_of(broker)[0], generation=1)
    fails_after(monkeypatch, Membership, "heartbeat", is_g)
    assert broker.heartbeat(ids_of(broker)[0]) is E.UNKNOWN_SERVER_ERROR
    assert broker.committed(pending) is E.UNKNOWN_SERVER_ERROR
    broker.release()
    assert broker.committed(pending) is E.UNKNOWN_SERVER_ERROR, "one response, although the batch is committed"
    broker.holds = False
    assert_out_of_service(broker)
    assert broker.successor().offset().offset == 6, "the next coordinator has what is in the log"


def test_nothing_of_a_decision_that_failed_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_with_defects()
    end_offset = broker.end_offset
    fails_after(monkeypatch, Committing, "commit", is_g)
    assert broker.committed(broker.commit(7, member_id=ids_of(broker)[0], generation=1)) is E.UNKNOWN_SERVER_ERROR
    assert broker.end_offset == end_offset
    assert_out_of_service(broker)


def test_a_verification_in_flight_is_dropped_with_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_with_defects()
    broker.holds_verifications = True
    token = broker.commit_transactional()
    fails_after(monkeypatch, Membership, "heartbeat", is_g)
    broker.heartbeat(ids_of(broker)[0])
    failed = TxnOffsetCommitResult({T0: E.UNKNOWN_SERVER_ERROR})
    assert broker.response_to(token) == failed
    broker.verify()
    assert broker.response_to(token) == failed
    assert_out_of_service(broker)


def test_a_defect_behind_a_verification_costs_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_with_defects()
    fails_after(monkeypatch, TransactionalCommits, "_store", lambda _self, _shard, group, *_: group.group_id == "g")
    assert broker.committed(broker.commit_transactional()) is E.UNKNOWN_SERVER_ERROR
    assert_out_of_service(broker)


@pytest.mark.parametrize("method", ["complete_transaction", "remove", "expire"])
def test_a_defect_in_what_happens_to_all_groups_costs_one(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """A marker, deleted partitions, and the retention run meet one group after the other."""
    broker = Harness(offsets_retention_ms=1_000)
    broker.has_defects = True
    for group in ("g", "h"):
        broker.commit_transactional(3, T1, group=group)
        broker.commit(1, T0, group=group)
    offsets = broker.coordinator._shards[0].groups["g"].offsets
    fails_after(monkeypatch, Offsets, method, lambda one, *_: one is offsets)
    broker.complete_transaction()
    broker.event(PartitionsDeleted([T1]))
    broker.after(600_000)
    assert broker.coordinator.group_view("h") is None, "its offsets are deleted, or have expired"
    assert len(broker.defects) == 1
    assert broker.ask(DescribeGroup("g")).error is E.UNKNOWN_SERVER_ERROR
    assert broker.ask(DescribeGroup("h")).error is E.NONE


def test_a_group_whose_load_fails_is_out_of_service_and_the_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    before = broker_with_defects()
    broker = Harness(elected=False, log=before.log, now_ms=before.now_ms)
    broker.has_defects = True
    fails_after(monkeypatch, Phases, "resume", is_g)
    broker.elect(1)
    assert_out_of_service(broker)
    assert_h_is_served(broker)


def test_the_next_load_brings_the_group_back_as_the_log_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_with_defects()
    members = ids_of(broker)
    with monkeypatch.context() as patched:
        fails_after(patched, Membership, "heartbeat", is_g)
        broker.heartbeat(members[0])
    broker.reload()
    assert (broker.group().state, ids_of(broker)) == (GroupState.STABLE, members)
    assert broker.heartbeat(members[0]) is E.NONE
    assert broker.offset().offset == 5


def test_deleting_a_group_that_is_out_of_service_frees_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_with_defects()
    with monkeypatch.context() as patched:
        fails_after(patched, Membership, "heartbeat", is_g)
        broker.heartbeat(ids_of(broker)[0])
    assert broker.ask(DeleteGroup("g")).error is E.NONE
    assert broker.ask(DeleteGroup("g")).error is E.GROUP_ID_NOT_FOUND
    assert broker.offset().offset == -1
    token = broker.join()
    broker.after(INITIAL_DELAY_MS)
    assert broker.joined(token).generation == 1
    after = broker.successor()
    assert after.coordinator.group_view("g") is None, "its records have tombstones"
    assert after.offset(group="h").offset == 5


def test_a_resignation_ends_what_is_out_of_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in the unloading of one group keeps none of the others."""
    broker = broker_with_defects()
    parked = [broker.join(group=group) for group in ("g", "h")]
    fails_after(monkeypatch, Phases, "unload", is_g)
    broker.resign(1)
    assert [broker.joined(token).error for token in parked] == [E.UNKNOWN_SERVER_ERROR, E.NOT_COORDINATOR]
    assert broker.heartbeat("m") is E.NOT_COORDINATOR
    assert broker.coordinator.open_requests == 0


def test_a_read_that_fails_costs_its_own_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has changed nothing (``reading.py``), so the group is served on."""
    broker = broker_with_defects()

    def broken(*_: object) -> None:
        raise RuntimeError("a defect in a read")

    with monkeypatch.context() as patched:
        for name in ("fetch_offsets", "described", "listed"):
            patched.setattr(group_coordinator, name, broken)
        for request in (OffsetFetch("g", (T0,)), DescribeGroup("g"), ListGroups()):
            assert broker.ask(request).error is E.UNKNOWN_SERVER_ERROR
    assert broker.heartbeat(ids_of(broker)[0]) is E.NONE
    assert len(broker.defects) == 3


# Transactions


def transactions_with_defects() -> TransactionHarness:
    """Two open transactions, of ``tx`` and ``ty``."""
    broker = TransactionHarness()
    broker.has_defects = True
    for producer_id, name in enumerate(("tx", "ty")):
        broker.init(name=name)
        broker.add(T0, producer_id=producer_id, name=name)
    return broker


def is_tx(transaction: Transaction, *_: object) -> bool:
    return transaction.transactional_id == "tx"


def assert_id_out_of_service(broker: TransactionHarness) -> None:
    """Assert that requests of tx fail, and that ty is served."""
    assert len(broker.defects) == 1
    assert broker.coordinator.transaction_view("tx") is None
    assert broker.error(broker.send_init(name="tx")) is E.UNKNOWN_SERVER_ERROR
    assert broker.error(broker.send_end(name="tx")) is E.UNKNOWN_SERVER_ERROR
    (line,) = [line.text for line in broker.lines if "out of service" in line.text]
    assert line.startswith("Transactional id 'tx' (__transaction_state-0) is out of service: ")
    assert broker.error(broker.send_end(producer_id=1, name="ty")) is E.NONE
    assert broker.state("ty") is TransactionState.COMPLETE_COMMIT
    assert broker.coordinator.open_requests == 0 == broker.coordinator.appends_in_flight


@pytest.mark.parametrize("method", ["prepare_end", "complete"])
def test_a_defect_in_a_request_or_its_append_costs_its_transactional_id(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    broker = transactions_with_defects()
    fails_after(monkeypatch, Transaction, method, is_tx)
    assert broker.error(broker.send_end(name="tx")) is E.UNKNOWN_SERVER_ERROR
    assert_id_out_of_service(broker)


def test_a_defect_behind_the_allocation_of_a_producer_id_costs_its_transactional_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = TransactionHarness()
    broker.has_defects = True
    broker.holds_allocations = True
    tokens = [broker.send_init(name=name) for name in ("tx", "tz")]
    fails_after(monkeypatch, Transaction, "prepare_next_epoch", is_tx)
    broker.allocate()
    broker.allocate()
    assert broker.response_to(tokens[0]) == InitProducerIdResult(E.UNKNOWN_SERVER_ERROR)
    assert broker.error(tokens[1]) is E.NONE


def test_a_defect_in_markers_costs_its_transactional_id_and_the_others_of_the_request_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = transactions_with_defects()
    broker.holds_markers = True
    broker.send_end(name="tx")
    broker.send_end(producer_id=1, name="ty")
    fails_after(
        monkeypatch, Markers, "_take_results", lambda _self, completion, *_: completion.transactional_id == "tx"
    )
    while broker.markers:
        broker.write_markers()
    assert broker.state("ty") is TransactionState.COMPLETE_COMMIT
    assert broker.coordinator.transaction_view("tx") is None
    assert broker.error(broker.send_init(name="tx")) is E.UNKNOWN_SERVER_ERROR
    assert len(broker.defects) == 1


@pytest.mark.parametrize("method", ["fence", "prepare_expiration"])
def test_a_defect_in_a_periodic_run_costs_one_transactional_id(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Transactions that have timed out are aborted, unused ids expire, one after the other."""
    broker = transactions_with_defects()
    if method == "prepare_expiration":
        for producer_id, name in enumerate(("tx", "ty")):
            broker.send_end(producer_id=producer_id, name=name)
    fails_after(monkeypatch, Transaction, method, is_tx)
    broker.after(120_000 if method == "fence" else 8 * 24 * 3_600_000)
    assert broker.coordinator.transaction_view("tx") is None
    assert broker.error(broker.send_init(name="tx")) is E.UNKNOWN_SERVER_ERROR
    assert len(broker.defects) == 1
    if method == "fence":
        assert broker.state("ty") is TransactionState.COMPLETE_ABORT
    else:
        assert broker.coordinator.transaction_view("ty") is None, "it has expired"


def test_a_decided_transaction_whose_load_fails_costs_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = transactions_with_defects()
    before.holds_markers = True
    before.send_end(name="tx")
    before.send_end(producer_id=1, name="ty")
    broker = TransactionHarness(elected=False, log=before.log, now_ms=before.now_ms)
    broker.has_defects = True
    fails_after(monkeypatch, Transaction, "prepare_completion", is_tx)
    broker.elect(1)
    assert broker.state("ty") is TransactionState.COMPLETE_COMMIT
    assert broker.error(broker.send_init(name="tx")) is E.UNKNOWN_SERVER_ERROR
    assert broker.ask(ListTransactions()).error is E.NONE
