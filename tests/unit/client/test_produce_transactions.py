"""``produce --transactional-id``: which records belong to which transaction, and how each ends."""

from __future__ import annotations

from typing import Any, cast

import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cli.produce import produce
from tidegauge_client.cli.produce_transactions import (
    LastEnds,
    ProduceTransactions,
    TransactionFailed,
    TransactionPlan,
)
from tidegauge_client.producer import Producer


class FakeProducer:
    """Notes the calls; a call whose name has a problem raises it."""

    def __init__(self, **problems: TidegaugeError) -> None:
        self.calls: list[str] = []
        self.problems = problems

    def __getattr__(self, name: str) -> Any:
        async def called() -> None:
            self.calls.append(name.removesuffix("_transactions").removesuffix("_transaction"))
            if name in self.problems:
                raise self.problems[name]

        return called


async def written(
    records: int, producer: FakeProducer, ending: LastEnds = "commit", commit_every: int | None = None
) -> ProduceTransactions:
    transactions = ProduceTransactions(cast("Producer", producer), TransactionPlan("tx", commit_every, ending))
    await transactions.init()
    for _ in range(records):
        await transactions.before_record()
        producer.calls.append("send")
        await transactions.after_record()
    await transactions.finish()
    return transactions


@pytest.mark.parametrize(
    ("ending", "commit_every", "records", "calls", "counts"),
    [
        ("commit", None, 0, "init", (0, 0, False)),
        ("commit", None, 2, "init begin send send commit", (1, 0, False)),
        ("commit", 2, 3, "init begin send send commit begin send commit", (2, 0, False)),
        ("commit", 2, 4, "init begin send send commit begin send send commit", (2, 0, False)),
        ("abort", None, 1, "init begin send flush abort", (0, 1, False)),
        ("abort", 2, 3, "init begin send send commit begin send flush abort", (1, 1, False)),
        ("abort", 2, 2, "init begin send send commit", (1, 0, False)),
        ("open", None, 1, "init begin send flush", (0, 0, True)),
    ],
)
async def test_transactions_begin_with_a_record_and_end_as_asked(
    ending: LastEnds, commit_every: int | None, records: int, calls: str, counts: tuple[int, int, bool]
) -> None:
    producer = FakeProducer()
    done = await written(records, producer, ending, commit_every)
    assert (" ".join(producer.calls), (done.committed, done.aborted, done.is_open)) == (calls, counts)


async def test_a_commit_that_fails_is_an_abort() -> None:
    problem = TidegaugeError(ErrorCode.INVALID_TXN_STATE, "a record has failed")
    producer = FakeProducer(commit_transaction=problem)
    with pytest.raises(TransactionFailed, match=r"The last transaction is aborted: .*a record has failed"):
        await written(1, producer)
    assert producer.calls[-2:] == ["commit", "abort"]


async def test_a_commit_without_a_response_is_neither_repeated_nor_aborted() -> None:
    """The coordinator may have decided it: an abort would then say something untrue."""
    problem = TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "no response")
    producer = FakeProducer(commit_transaction=problem)
    with pytest.raises(TransactionFailed, match="Whether the last transaction is committed is unknown"):
        await written(1, producer)
    assert producer.calls[-1] == "commit"


async def test_a_fenced_producer_says_so() -> None:
    fenced = TidegaugeError(ErrorCode.PRODUCER_FENCED, "fenced")
    with pytest.raises(TransactionFailed, match=r"could not be aborted: .*fenced"):
        await written(1, FakeProducer(commit_transaction=fenced, abort_transaction=fenced))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--commit-every", "2"], "need --transactional-id"),
        (["--abort"], "need --transactional-id"),
        (["--leave-open"], "need --transactional-id"),
        (["--transaction-timeout-ms", "9"], "need --transactional-id"),
        (["--transactional-id", ""], "not empty"),
        (["--transactional-id", "tx", "--acks", "1"], "needs --acks all"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(options: list[str], words: str) -> None:
    result = CliRunner().invoke(produce, ["orders", "--dir", "/nonexistent", *options])
    assert (result.exit_code, words in result.output) == (2, True), result.output
