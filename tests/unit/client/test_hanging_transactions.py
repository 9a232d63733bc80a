"""``describe-producers``, ``find-hanging``, ``abort-transaction``: kafka-transactions.sh's rules without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.admin_transactions import ListedTransaction, ProducerDescription, TransactionDescription
from tidegauge_client.cli.hanging import abort_transaction, find_hanging
from tidegauge_client.cli.open_transactions import gather_open_transactions
from tidegauge_client.hanging_transactions import (
    OpenTransaction,
    candidates,
    coordinated,
    hanging,
    open_transactions_at,
    partitions_in_scope,
)
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def producer(producer_id: int, start: int | None = 5, last_ms: int = 1_000) -> ProducerDescription:
    return ProducerDescription(producer_id, 0, 3, last_ms, 0, start)


def known(producer_id: int, *partitions: TopicPartition, state: str = "Ongoing") -> TransactionDescription:
    return TransactionDescription(f"id-{producer_id}", 1, state, producer_id, 0, 60_000, 900, partitions)


class FakeAdmin:
    """Partitions with producers, and coordinators with transactional ids."""

    def __init__(self, producers: dict[TopicPartition, list[ProducerDescription]], *ids: TransactionDescription):
        self.producers = producers
        self.ids = {one.transactional_id: one for one in ids}
        self.problem: TidegaugeError | None = None
        self.when_asked: Any = None
        self.state_leader = 1
        self.state_isr: tuple[int, ...] = (1, 2)

    async def describe_producers(self, at: TopicPartition, **_: object) -> list[ProducerDescription]:
        return self.producers[at]

    async def list_transactions(self, producer_ids: list[int], **_: object) -> list[ListedTransaction]:
        if self.problem is not None:
            raise self.problem
        if self.when_asked is not None:
            self.when_asked()
        found = [ListedTransaction(name, 1, one.producer_id, one.state) for name, one in self.ids.items()]
        return [one for one in found if one.producer_id in producer_ids]

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        return self.ids[transactional_id]

    async def metadata(self, topics: list[str]) -> ClusterInfo:
        part = PartitionInfo(topics[0], 0, self.state_leader, 0, (1, 2), self.state_isr)
        brokers = {1: BrokerInfo(1, "127.0.0.1", 19093)}
        kafkas = {2: BrokerInfo(2, "127.0.0.1", 9094)}
        return ClusterInfo(
            brokers=brokers, topics={topics[0]: TopicInfo(topics[0], "id", {0: part})}, kafka_brokers=kafkas
        )

    async def metadata_of_all(self, topics: list[str]) -> dict[int, ClusterInfo]:
        return {1: await self.metadata(topics)}

    async def describe_topic_config(self, _: str) -> list[Any]:
        return [SimpleNamespace(name="min.insync.replicas", value="2")]

    async def describe_broker_settings(self, _: int) -> list[Any]:
        return [SimpleNamespace(name="transaction.abort.timed.out.transaction.cleanup.interval.ms", value="500")]

    def as_admin(self) -> Admin:
        return cast("Admin", self)


def test_a_transaction_that_its_coordinator_does_not_have_is_hanging() -> None:
    """FindHangingTransactionsCommand.filterHangingTransactions: no id, or one whose transaction lacks the partition."""
    found = [OpenTransaction(A, producer(1)), OpenTransaction(B, producer(1)), OpenTransaction(B, producer(2))]
    assert hanging(found, {1: known(1, A)}) == found[1:]
    assert hanging(found, {1: known(1, A, B), 2: known(2, B)}) == []
    assert hanging(found, {1: known(1, state="CompleteAbort"), 2: known(2, B)}) == found[:2]


def test_a_candidate_has_been_silent_for_longer_than_the_largest_timeout() -> None:
    """TransactionsCommand.collectCandidateOpenTransactions: by the time of the producer's last batch, exclusive."""
    one = OpenTransaction(A, producer(1, last_ms=1_000))
    assert candidates([one], now_ms=1_900, longer_than_ms=900) == []
    assert candidates([one], now_ms=1_901, longer_than_ms=900) == [one]


async def test_only_open_transactions_are_asked_about() -> None:
    admin = FakeAdmin({A: [producer(1), producer(2, start=None)], B: [producer(3, start=2)]}, known(1, A))
    found = await open_transactions_at(admin.as_admin(), [B, A])
    assert [(one.at, one.producer.producer_id, one.start_offset) for one in found] == [(A, 1, 5), (B, 3, 2)]
    assert await coordinated(admin.as_admin(), {1, 3}) == {1: known(1, A)}
    admin.problem = TidegaugeError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loads")
    assert await coordinated(admin.as_admin(), set()) == {}, "no coordinator is asked about no producer"
    with pytest.raises(TidegaugeError, match="loads"):
        await coordinated(admin.as_admin(), {1})


async def test_the_scope_is_a_topic_a_partition_or_the_replicas_of_a_broker() -> None:
    parts = {n: PartitionInfo("a", n, 1, 0, (n, n + 1), (n,)) for n in range(3)}
    info = ClusterInfo(topics={"a": TopicInfo("a", "", parts)}, brokers={1: BrokerInfo(1, "h", 1, None)})

    async def metadata(_: object) -> ClusterInfo:
        return info

    admin = cast("Admin", SimpleNamespace(metadata=metadata))

    async def scope(*arguments: Any) -> list[int]:
        return [at.partition for at in await partitions_in_scope(admin, *arguments)]

    assert await scope("a", None, None) == [0, 1, 2]
    assert await scope("a", 2, None) == [2]
    assert await scope(None, None, 1) == [0, 1]
    for arguments, words in [(("a", 7, None), "no partition of a-7"), ((None, None, 4), "Broker 4 is not alive")]:
        with pytest.raises(TidegaugeError, match=words):
            await scope(*arguments)


async def test_what_ended_while_its_coordinator_was_asked_is_not_open() -> None:
    """A partition leaves the coordinator's list when its marker is committed: between two looks that is no hanging."""
    admin = FakeAdmin({A: [producer(1), producer(2, start=7)]}, known(1, state="CompleteCommit"), known(2, A))
    admin.when_asked = lambda: admin.producers.update({A: [producer(1, start=None), producer(2, start=7)]})
    found = await gather_open_transactions(admin.as_admin(), A)
    assert [(one.producer.producer_id, one.transaction, one.interval_ms) for one in found.open] == [
        (2, known(2, A), 500)
    ]


async def test_a_coordinator_below_its_min_isr_can_abort_nothing_in_time() -> None:
    admin = FakeAdmin({A: [producer(1)]}, known(1, A))
    [one] = (await gather_open_transactions(admin.as_admin(), A)).open
    assert one.obstacle == ""
    admin.state_isr = (1,)
    [one] = (await gather_open_transactions(admin.as_admin(), A)).open
    assert one.obstacle == "the ISR of __transaction_state-0 is 1, fewer than min.insync.replicas=2"


async def test_coordinators_that_do_not_respond_are_a_problem_and_no_hanging() -> None:
    admin = FakeAdmin({A: [producer(1)]})
    admin.problem = TidegaugeError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody")
    [one] = (await gather_open_transactions(admin.as_admin(), A)).open
    assert (one.transaction, "nobody" in one.problem) == (None, True)


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (find_hanging, [], "needs --topic or --broker-id"),
        (find_hanging, ["--broker-id", "1", "--partition", "0"], "--partition needs --topic"),
        (abort_transaction, ["--topic", "a", "--partition", "0"], "either --start-offset or --producer-id"),
        (
            abort_transaction,
            ["--topic", "a", "--partition", "0", "--start-offset", "1", "--producer-id", "2"],
            "either --start-offset or --producer-id",
        ),
        (abort_transaction, ["--topic", "a", "--partition", "0", "--producer-id", "1"], "--producer-epoch"),
        (
            abort_transaction,
            ["--topic", "a", "--partition", "0", "--start-offset", "1", "--producer-epoch", "0"],
            "need --producer-id",
        ),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_contacted(command: Any, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(command, [*arguments, "--dir", "/nonexistent"])
    assert (result.exit_code, words in result.output) == (2, True), result.output
