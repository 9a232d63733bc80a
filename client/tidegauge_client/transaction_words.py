"""Parts of sentences about transactions: Kafka's rules, times, and when a coordinator ends a transaction. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from tidegauge_client.admin_transactions import TransactionDescription

ABORT_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
DEFAULT_ABORT_INTERVAL_MS = 10_000

RULE_LAST_STABLE_OFFSET = (
    "read_committed readers read below the last stable offset: the first offset of the earliest transaction that is "
    "open, or whose marker is not below the HW, and at most the HW (UnifiedLog.lastStableOffset, KIP-98)"
)
RULE_TIMEOUT = (
    "a coordinator aborts a transaction when transaction.timeout.ms have passed since its first partition was added, "
    f"whatever it wrote meanwhile; it looks every {ABORT_INTERVAL} (TransactionCoordinator.abortTimedOutTransactions)"
)
RULE_MARKERS = (
    "once the end of a transaction is decided, its coordinator sends a marker to the leader of each partition, again "
    "and again until it is committed there (TransactionMarkerChannelManager)"
)
RULE_HANGING = (
    "a transaction that is open at a partition and that its coordinator does not have is hanging: neither a client nor "
    "a timeout ends it (KIP-664)"
)
_PREPARED = {"PrepareCommit": "commit", "PrepareAbort": "abort"}


def decision_of(transaction: TransactionDescription) -> str:
    """Return ``commit`` or ``abort`` while markers of a decision are missing; else empty."""
    return _PREPARED.get(transaction.state, "")


def producer_words(producer_id: int, producer_epoch: int, transactional_id: str | None) -> str:
    """Name a producer."""
    whose = "" if transactional_id is None else f", transactional id {transactional_id}"
    return f"producer {producer_id}, epoch {producer_epoch}{whose}"


def clock(time_ms: int) -> str:
    """Return a time of day in UTC, to the millisecond."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=' ', timespec='milliseconds')[11:23]} UTC"


def span(duration_ms: int) -> str:
    """Return a duration in words."""
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    return f"{duration_ms / 1000:.1f} s" if duration_ms < 600_000 else f"{duration_ms / 60_000:.0f} min"


def ago(time_ms: int, now_ms: int) -> str:
    """Return a time and how long ago it was."""
    return f"{clock(time_ms)}, {span(max(0, now_ms - time_ms))} ago"


def timeout_words(
    transaction: TransactionDescription, now_ms: int, interval_ms: int, obstacle: str = ""
) -> tuple[str, int | None]:
    """Say when an open transaction is aborted unless its producer ends it.

    Args:
        transaction: that is Ongoing.
        now_ms: in ms since 1970.
        interval_ms: between two looks of the coordinator.
        obstacle: why the coordinator can write no abort now; empty if nothing is known to hinder it.

    Returns:
        The sentence, and the upper bound in ms from now; None: there is none, for the obstacle.
    """
    due_ms = transaction.start_time_ms + transaction.timeout_ms
    latest_ms = max(0, due_ms - now_ms) + interval_ms
    when = "is over" if due_ms < now_ms else f"ends at {clock(due_ms)}, in {span(due_ms - now_ms)}"
    ends = f"Its timeout of {span(transaction.timeout_ms)} {when}"
    begun = f"{ends}; the coordinator, broker {transaction.coordinator}, then"
    if obstacle:
        return f"{begun} aborts it with the first look at which it can, and now it can't: {obstacle}.", None
    return f"{begun} aborts it with its next look, within {span(latest_ms)} from now.", latest_ms
