"""The transactions of one ``produce``: which records belong together, and how each transaction ends.

Rules:
    1. The transactional id is taken over once, before the first record: producers that had it before are fenced.
    2. A transaction begins with a record, so that none is empty. It is committed after ``commit_every`` records, and
       the last one as ``ending`` says.
    3. A record that fails, a malformed line, Ctrl-C and SIGTERM end the open transaction with an abort.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import click

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.operation_history import TransactionHistory
from tidegauge_client.producer import Producer

LastEnds = Literal["commit", "abort", "open"]
"""How the last transaction ends; open: it does not, until its timeout."""
TRANSACTION_TIMEOUT_MS = 60_000


def transaction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about transactions; ``plan_of`` reads them."""
    decorators = [
        click.option(
            "--transactional-id",
            metavar="ID",
            help="Write in transactions of this id; earlier producers of it are fenced.",
        ),
        click.option(
            "--commit-every",
            type=click.IntRange(min=1),
            metavar="N",
            help="Commit after every N records; default: at the end.",
        ),
        click.option(
            "--abort", "ending", flag_value="abort", help="Abort the last transaction instead of committing it."
        ),
        click.option(
            "--leave-open",
            "ending",
            flag_value="open",
            help="Do not end the last transaction: it is open until its timeout, and read_committed waits.",
        ),
        click.option(
            "--transaction-timeout-ms",
            type=click.IntRange(min=1),
            metavar="N",
            help=f"Time after which the coordinator aborts a transaction.  [default: {TRANSACTION_TIMEOUT_MS}]",
        ),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


class TransactionFailed(Exception):
    """The transaction can't go on; nothing more is read."""


@dataclass(frozen=True)
class TransactionPlan:
    """The options of the command line about transactions.

    Attributes:
        transactional_id: of the producer.
        commit_every: number of records after which a transaction is committed; None: one for all.
        ending: how the last one ends.
        timeout_ms: after which the coordinator aborts a transaction (transaction.timeout.ms).
    """

    transactional_id: str
    commit_every: int | None = None
    ending: LastEnds = "commit"
    timeout_ms: int = TRANSACTION_TIMEOUT_MS


def plan_of(
    transactional_id: str | None, commit_every: int | None, ending: LastEnds | None, timeout_ms: int | None
) -> TransactionPlan | None:
    """Return the options of transactions; raise a usage error without transactional id."""
    if transactional_id is None:
        if commit_every is not None or ending is not None or timeout_ms is not None:
            raise click.UsageError(
                "Options --commit-every, --abort, --leave-open and --transaction-timeout-ms need --transactional-id"
            )
        return None
    if not transactional_id:
        raise click.UsageError("Option --transactional-id needs an id that is not empty")
    return TransactionPlan(transactional_id, commit_every, ending or "commit", timeout_ms or TRANSACTION_TIMEOUT_MS)


class ProduceTransactions:
    """Ends and begins transactions between records, and counts them.

    Args:
        producer: started, with the transactional id of the plan.
        plan: what the command line says.
        history: takes a line for each begin and end, if there is one.

    Attributes:
        committed: number of transactions that were committed.
        aborted: number of those that were aborted.
        is_open: whether one is open.
    """

    def __init__(self, producer: Producer, plan: TransactionPlan, history: TransactionHistory | None = None) -> None:
        self._producer = producer
        self._plan = plan
        self._history = history
        self._records = 0
        self.committed = 0
        self.aborted = 0
        self.is_open = False

    async def init(self) -> None:
        """Take over the transactional id (rule 1).

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, INVALID_TRANSACTION_TIMEOUT, ...
        """
        await self._producer.init_transactions()

    async def before_record(self) -> None:
        """Begin a transaction unless one is open (rule 2)."""
        if not self.is_open:
            await self._producer.begin_transaction()
            if self._history is not None:
                self._history.begun()
            self.is_open = True
            self._records = 0

    async def after_record(self) -> None:
        """Commit the transaction if it has all its records (rule 2).

        Raises:
            TransactionFailed: it could not be committed, and is aborted.
        """
        self._records += 1
        if self._records == self._plan.commit_every:
            await self._commit()

    async def finish(self) -> None:
        """End the last transaction as the plan says; all its records are acknowledged, or have failed, before.

        Raises:
            TransactionFailed: it could not be committed, and is aborted.
        """
        if not self.is_open:
            return
        if self._plan.ending == "commit":
            await self._commit()
            return
        await self._producer.flush()
        if self._plan.ending == "abort":
            await self.give_up()

    async def give_up(self) -> None:
        """Abort the open transaction, if there is one and its producer is not fenced (rule 3)."""
        if not self.is_open:
            return
        self.is_open = False
        try:
            await self._noted(self._producer.abort_transaction(), is_commit=False)
        except TidegaugeError as problem:
            raise TransactionFailed(f"The transaction could not be aborted: {problem}") from None
        self.aborted += 1

    async def _commit(self) -> None:
        try:
            await self._noted(self._producer.commit_transaction(), is_commit=True)
        except TidegaugeError as problem:
            if problem.code is ErrorCode.REQUEST_TIMED_OUT:
                raise TransactionFailed(f"Whether the last transaction is committed is unknown: {problem}") from None
            await self.give_up()
            raise TransactionFailed(f"The last transaction is aborted: {problem}") from None
        self.is_open = False
        self.committed += 1

    async def _noted(self, ending: Awaitable[None], *, is_commit: bool) -> None:
        """Commit or abort, with a line in the history before and after it."""
        history = self._history
        if history is None:
            await ending
            return
        number = history.ending(is_commit=is_commit)
        try:
            await ending
        except TidegaugeError as problem:
            history.ended(number, problem)
            raise
        history.ended(number)
