"""Facts about transactions: their coordinator, their partitions and offsets, and what readers see."""

from __future__ import annotations

from typing import Any

from tests.wire_responses.batches import TRANSACTIONAL, batch
from tests.wire_responses.groups import TRANSACTION_KEY, committed, coordinator
from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import LEADER, TOPIC, fetch, fetched, produce, produced

ID = "probe-transaction"
APIS = ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "FindCoordinator")
ADMIN_APIS = ("DescribeTransactions", "ListTransactions")
CONCURRENT_TRANSACTIONS = 51
NOT_YET = (14, 15, 16, CONCURRENT_TRANSACTIONS)
"""Errors of a coordinator that is being elected, or loads."""
READ_COMMITTED = 1


def init(**more: Any) -> Any:
    """Return an InitProducerId request."""
    return message("InitProducerId", **{"transactional_id": ID, "transaction_timeout_ms": 60_000} | more)


class _Steps:
    """Requests of one producer to its coordinator."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.at = coordinator(probe, ID, TRANSACTION_KEY)
        self.producer_id = -1
        self.epoch = -1

    def add(self, epoch: int, partition: int = 0, topic: str = TOPIC, producer_id: int | None = None) -> Any:
        return message(
            "AddPartitionsToTxn",
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id if producer_id is None else producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [partition]}],
        )

    def end(self, epoch: int, *, commit: bool = True) -> Any:
        return message(
            "EndTxn", transactional_id=ID, producer_id=self.producer_id, producer_epoch=epoch, committed=commit
        )

    def write(self, epoch: int, sequence: int, attributes: int = TRANSACTIONAL) -> Any:
        made = batch(producer_id=self.producer_id, epoch=epoch, sequence=sequence, attributes=attributes)
        return produce(made, transactional_id=ID)


def transactions(probe: Probe) -> None:
    """All of it, where the cluster serves transactions."""
    if not probe.serves(*APIS):
        return
    probe.say("transactions")
    steps = _Steps(probe)
    _begins(steps)
    _aborts(steps)
    _commits(steps)


def _begins(steps: _Steps) -> None:
    probe, at = steps.probe, steps.at
    stranger = next(broker for broker in probe.brokers if broker != at)
    probe.again(lambda: probe.ask(at, 4, init()), *NOT_YET)
    probe.case("transaction: InitProducerId at another broker", stranger, 4, init())
    for timeout_ms in (0, -1, 10**8):
        request = init(transaction_timeout_ms=timeout_ms)
        probe.case(f"transaction: InitProducerId with timeout {timeout_ms}", at, 4, request)
    if probe.serves(*ADMIN_APIS):
        unknown = message("DescribeTransactions", transactional_ids=[f"{ID}-unknown"])
        probe.case("DescribeTransactions unknown", at, 0, unknown, lambda found: [
            one.error_code in {16, 105} for one in found.transaction_states
        ])  # fmt: skip
    first = probe.ask(at, 4, init())
    second = probe.ask(at, 4, init())
    probe.note("transaction: InitProducerId twice", (first.error_code, second.error_code))
    probe.note("transaction: the producer id stays", first.producer_id == second.producer_id)
    steps.producer_id = second.producer_id
    epoch = steps.epoch = second.producer_epoch
    probe.note("transaction: the epoch rises", epoch - first.producer_epoch)
    probe.case("EndTxn with nothing", at, 3, steps.end(epoch))
    for version in (3, 1):
        probe.case(f"AddPartitionsToTxn v{version} old epoch", at, version, steps.add(epoch - 1))
    wrong = steps.add(epoch, producer_id=steps.producer_id + 1_000)
    probe.case("AddPartitionsToTxn wrong producer id", at, 3, wrong)
    probe.case("AddPartitionsToTxn unknown partition", at, 3, steps.add(epoch, 99))
    probe.case("transaction: Produce before AddPartitionsToTxn", LEADER, 9, steps.write(epoch, 0), produced)
    probe.case("AddPartitionsToTxn", at, 3, steps.add(epoch))
    probe.case("AddPartitionsToTxn again", at, 3, steps.add(epoch))


def _aborts(steps: _Steps) -> None:
    probe, at, epoch = steps.probe, steps.at, steps.epoch
    probe.case("transaction: Produce", LEADER, 9, steps.write(epoch, 0), _codes)
    probe.case("transaction: Produce without the flag", LEADER, 9, steps.write(epoch, 1, 0), _codes)
    offsets = fetched(probe.ask(LEADER, 12, fetch(isolation_level=READ_COMMITTED)))[2][0][2]
    probe.note("transaction: last stable offset below the high watermark", offsets[1] < offsets[0])
    items = [{"partition_index": 0, "timestamp": -1}]
    latest = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": items}]}
    for level in (0, 1):
        found = probe.ask(LEADER, 7, message("ListOffsets", isolation_level=level, **latest))
        [item] = found.topics[0].partitions
        name = {offsets[0]: "high watermark", offsets[1]: "last stable offset"}.get(item.offset, item.offset)
        probe.note(f"transaction: ListOffsets at level {level}", (item.error_code, name))
    if probe.serves(*ADMIN_APIS):
        probe.case("ListTransactions", at, 1, message("ListTransactions"), lambda found: [
            one.transaction_state for one in found.transaction_states if one.transactional_id == ID
        ])  # fmt: skip
    probe.case("transaction: InitProducerId while it is open", at, 4, init())
    again = probe.again(lambda: probe.ask(at, 4, init()), CONCURRENT_TRANSACTIONS)
    probe.note("transaction: InitProducerId after the abort", (again.error_code, again.producer_epoch - epoch))
    steps.epoch = again.producer_epoch
    for version in (3, 1):
        probe.case(f"EndTxn v{version} old epoch", at, version, steps.end(epoch))
    [partition] = probe.ask(LEADER, 12, fetch(isolation_level=READ_COMMITTED)).responses[0].partitions
    stable = partition.high_watermark == partition.last_stable_offset
    probe.note("transaction: aborted", (len(partition.aborted_transactions), stable))


def _codes(found: Any) -> Any:
    return [(item.error_code, item.error_message) for item in produced(found)]


def _commits(steps: _Steps) -> None:
    probe, at, epoch = steps.probe, steps.at, steps.epoch
    probe.ask(at, 3, steps.add(epoch))
    probe.ask(LEADER, 9, steps.write(epoch, 0))
    probe.case("EndTxn commits", at, 3, steps.end(epoch))
    ended = probe.again(lambda: probe.ask(at, 3, steps.end(epoch)), CONCURRENT_TRANSACTIONS)
    probe.note("EndTxn commits again", ended)
    probe.case("EndTxn aborts what is committed", at, 3, steps.end(epoch, commit=False))
    group = "probe-group-of-transaction"
    keeper = coordinator(probe, group)
    producer = {"transactional_id": ID, "producer_id": steps.producer_id, "producer_epoch": epoch}
    added = message("AddOffsetsToTxn", group_id=group, **producer)
    probe.note("AddOffsetsToTxn", probe.again(lambda: probe.ask(at, 3, added), CONCURRENT_TRANSACTIONS))
    item = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    topics = [{"name": TOPIC, "partitions": [item]}]
    request = message("TxnOffsetCommit", group_id=group, topics=topics, **producer)
    probe.case("TxnOffsetCommit", keeper, 3, request)
    wanted = {TOPIC: [0]}
    probe.case("OffsetFetch of a pending offset", keeper, 8, committed(group, wanted))
    probe.case("OffsetFetch of a pending offset, stable", keeper, 8, committed(group, wanted, require_stable=True))
    probe.case("EndTxn with offsets", at, 3, steps.end(epoch))
    probe.again(lambda: probe.ask(at, 3, steps.end(epoch)), CONCURRENT_TRANSACTIONS)
    stable = committed(group, wanted, require_stable=True)
    probe.wait_for(lambda: probe.ask(keeper, 8, stable).groups[0].topics[0].partitions[0].error_code == 0)
    probe.case("OffsetFetch of the committed offset", keeper, 8, stable)
