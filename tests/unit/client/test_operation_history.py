"""``produce --transactional-id --history`` and ``consume --history`` write what docs/histories.md describes.

Their files are read by the reader of ``verify --transactions``: it refuses every line that is not as that page says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cli.produce_transactions import (
    LastEnds,
    ProduceTransactions,
    TransactionFailed,
    TransactionPlan,
)
from tidegauge_client.operation_history import PollHistory, TransactionHistory, value_text
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.producer import Producer
from tidegauge_client.subscription import ConsumerRecord
from tidegauge_lab.accountant.reading.client_history import read_client_histories
from tidegauge_lab.accountant.transactions.judging import Judgement, judge
from tidegauge_lab.accountant.transactions.model import Outcome, Place


class OneByOne:
    """A producer whose calls succeed, but for those that have a problem."""

    def __init__(self, **problems: TidegaugeError) -> None:
        self._problems = problems

    def __getattr__(self, name: str) -> Any:
        async def called() -> None:
            if name in self._problems:
                raise self._problems[name]

        return called


async def written(
    path: Path, values: list[bytes], ending: LastEnds = "commit", begin: int = 10, **problems: TidegaugeError
) -> None:
    """Send values in transactions of two, to partition 1 from an offset on."""
    with TransactionHistory(path, "t") as history:
        plan = TransactionPlan("tx", 2, ending)
        transactions = ProduceTransactions(cast("Producer", OneByOne(**problems)), plan, history)
        for number, value in enumerate(values):
            await transactions.before_record()
            history.invoked(number, None, value, None, 0)
            history.acknowledged(number, RecordMetadata("t", 1, begin + number, 0))
            await transactions.after_record()
        await transactions.finish()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def judged(*paths: Path) -> tuple[Judgement, dict[str, int]]:
    judgement = judge(read_client_histories(paths))
    return judgement, {fate.value: count for fate, count in judgement.fates.items()}


async def test_each_transaction_has_its_records_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "h"
    await written(path, [b"a", b"b", b"c"], "abort")
    history = read_client_histories([path])
    names = list(dict.fromkeys(send.transaction for send in history.sends))
    assert [(send.value, names.index(send.transaction)) for send in history.sends] == [("a", 0), ("b", 0), ("c", 1)]
    assert [(send.place, send.offset) for send in history.sends] == [(Place("t", 1), 10 + n) for n in range(3)]
    assert [(end.transaction, end.is_commit) for end in history.ends] == [(names[0], True), (names[1], False)]
    assert judged(path)[1] == {"committed": 1, "aborted": 1}


async def test_the_invocation_of_an_end_is_written_before_it_begins(tmp_path: Path) -> None:
    """Rule 1: a client that dies in a commit leaves a commit of unknown outcome, and no abort."""
    path = tmp_path / "h"
    with TransactionHistory(path, "t") as history:
        history.begun()
        history.invoked(0, None, b"a", None, 0)
        history.ending(is_commit=True)
        assert [line["op"] for line in lines_of(path)] == ["send", "commit"]
    assert judged(path)[1] == {"unknown": 1}


@pytest.mark.parametrize(
    ("code", "fate"), [(ErrorCode.REQUEST_TIMED_OUT, "unknown"), (ErrorCode.INVALID_TXN_STATE, "aborted")]
)
async def test_a_commit_that_failed_is_of_unknown_outcome_until_its_abort_succeeds(
    code: ErrorCode, fate: str, tmp_path: Path
) -> None:
    """Rule 2: an earlier attempt of the same call may have had an effect."""
    path = tmp_path / "h"
    with pytest.raises(TransactionFailed):
        await written(path, [b"a"], commit_transaction=TidegaugeError(code))
    first = read_client_histories([path]).ends[0]
    assert (first.is_commit, first.outcome) == (True, Outcome.INFO)
    assert judged(path)[1] == {fate: 1}


async def test_two_runs_share_a_file_and_no_transaction(tmp_path: Path) -> None:
    path = tmp_path / "h"
    await written(path, [b"a"])
    await written(path, [b"b"])
    assert judged(path)[1] == {"committed": 2}


def record(offset: int, value: bytes | None) -> ConsumerRecord:
    return ConsumerRecord("t", 1, offset, 0, 0, None, value, (), 0)


async def test_what_was_read_is_judged_with_what_was_sent(tmp_path: Path) -> None:
    path, reads = tmp_path / "h", tmp_path / "r"
    await written(path, [b"a", b"b"], "abort")
    await written(path, [b"c"], "abort", 13)
    with PollHistory(reads, "read_committed") as history:
        history.on_partitions_assigned()
        history.polled(history.now_us(), [])
        history.polled(history.now_us(), [record(10, b"a"), record(11, b"b")])
    assert [line.get("op") for line in lines_of(reads)] == ["assign", None, "poll", None], "empty polls are left out"
    assert judged(path, reads)[0].found.counts == {}
    with PollHistory(reads, "read_committed") as history:
        history.polled(history.now_us(), [record(13, b"c")])
    assert {kind.value for kind in judged(path, reads)[0].found.counts} == {"aborted-read"}


def test_a_value_is_text_whatever_its_bytes_are() -> None:
    assert [value_text(value) for value in (b"a", "Ü".encode(), b"\xff", None)] == ["a", "Ü", "\\xff", ""]
