"""The condition of ``wait_transaction``, and its sentence when that does not come."""

from __future__ import annotations

from typing import Self

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_lab.control.conditions import transaction_condition
from tidegauge_lab.pytest_plugin import conditions
from tidegauge_lab.pytest_plugin.conditions import NotSoError, wait_until_transaction
from tidegauge_lab.transaction_conditions import TransactionCondition

FOUND = TransactionDescription("tx", 0, "Ongoing", 7, 2, 1, 1, (TopicPartition("orders", 0),))


class Admin:
    """A client of a coordinator that first does not respond, and then knows the id."""

    def __init__(self, _bootstrap: object) -> None:
        self.outcomes: list[TransactionDescription | TidegaugeError] = [
            TidegaugeError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is none"),
            TidegaugeError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
            FOUND,
        ]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close nothing."""

    async def describe_transaction(self, transactional_id: str, *, timeout_ms: float) -> TransactionDescription:
        assert (transactional_id, timeout_ms > 0) == ("tx", True)
        found = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(found, TidegaugeError):
            raise found
        return found


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "Admin", Admin)
    monkeypatch.setattr(conditions, "POLL_SECONDS", 0)


async def test_a_wait_goes_on_while_the_coordinator_moves_and_until_the_id_is_known() -> None:
    condition = transaction_condition({"id": "tx", "state": "Ongoing", "epoch": 1})
    assert await wait_until_transaction(["here"], "tx", condition, 60) == FOUND


class Clock:
    """A second goes by with each look at it."""

    seconds = 0

    def monotonic(self) -> float:
        self.seconds += 1
        return self.seconds


@pytest.mark.parametrize(
    ("limit_seconds", "problem"),
    [(0, "there is none"), (10, r"transactional id tx is Ongoing \(waited 10 s for: state CompleteCommit\)")],
)
async def test_a_wait_that_runs_out_says_what_is_true(
    limit_seconds: float, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "time", Clock())
    with pytest.raises(NotSoError, match=problem):
        await wait_until_transaction(["here"], "tx", TransactionCondition("CompleteCommit"), limit_seconds)
