"""Conditions on a transactional id, for tests and scenarios; the actual state, in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.transactions import TransactionState
from tidegauge_client.admin import Admin
from tidegauge_client.admin_transactions import TransactionDescription

SHOWN_STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
"""The states that a coordinator shows."""


@dataclass(frozen=True, slots=True)
class TransactionCondition:
    """A condition on a transactional id; None: anything.

    Attributes:
        state: such as Ongoing or CompleteCommit.
        epoch: producer epoch: this one or a later one.
        partitions: of the open transaction; of a decided one, those whose marker is not written yet.
        is_exact: the epoch is this one.
    """

    state: str | None = None
    epoch: int | None = None
    partitions: Collection[TopicPartition] | None = None
    is_exact: bool = False

    def __post_init__(self) -> None:
        known = [one.value for one in SHOWN_STATES]
        if self.state is not None and self.state not in known:
            raise ValueError(f"{self.state!r} is no state of a transactional id; there are {', '.join(known)}")

    def problem(self, found: TransactionDescription) -> str | None:
        """Return the violated part of the condition; None if it holds."""
        return next(self._problems(found), None)

    def _problems(self, found: TransactionDescription) -> Iterator[str]:
        name = f"transactional id {found.transactional_id}"
        if self.state is not None and found.state != self.state:
            yield f"{name} is {found.state}"
        if self.epoch is not None and (
            found.producer_epoch < self.epoch or (self.is_exact and found.producer_epoch != self.epoch)
        ):
            yield f"{name} is in epoch {found.producer_epoch}"
        if self.partitions is not None and set(found.partitions) != set(self.partitions):
            yield f"{name} has {', '.join(map(str, found.partitions)) or 'no partition'} in its transaction"

    @property
    def text(self) -> str:
        """Return the condition in words."""
        parts = {
            "state": self.state,
            "epoch": self.epoch,
            "partitions": None if self.partitions is None else "+".join(map(str, self.partitions)) or "-",
        }
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


async def look_at_transaction(
    admin: Admin, transactional_id: str, condition: TransactionCondition, timeout_ms: float
) -> TransactionDescription | str:
    """Return the transactional id if the condition holds, else the actual state.

    Raises:
        TidegaugeError: the coordinator does not respond.
    """
    try:
        found = await admin.describe_transaction(transactional_id, timeout_ms=timeout_ms)
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return f"transactional id {transactional_id} is not known"
    return condition.problem(found) or found
