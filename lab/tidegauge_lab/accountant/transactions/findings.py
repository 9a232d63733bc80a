"""Findings about a history of transactions, and the guarantee that each breaks.

The kinds come from Jepsen's checker for Kafka (jepsen.tests.kafka) and from consumer groups. Behaviour that Kafka does
not exclude is no finding: transactions whose writes interleave in a partition (G0), records of one transaction that
become readable partition by partition, offsets with gaps.
"""

from __future__ import annotations

from enum import Enum

from tidegauge_lab.accountant.findings import Meaning


class Anomaly(Enum):
    """Kinds of findings; the value is the name that a user sees."""

    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    DUPLICATED = "duplicated"
    ABORTED_READ = "aborted-read"
    INTERMEDIATE_READ = "intermediate-read"
    LOST = "lost-write"
    UNSEEN = "unseen"
    TORN = "torn-transaction"
    TWO_OUTCOMES = "two-outcomes"
    SKIPPED = "poll-skip"
    READ_AGAIN = "nonmonotonic-poll"
    REORDERED = "nonmonotonic-send"
    CIRCULAR = "circular-information-flow"
    OFFSETS_OF_ABORTED = "aborted-offsets"
    OFFSETS_LOST = "lost-offsets"
    UNKNOWN_VALUE = "unknown-value"


MEANINGS: dict[Anomaly, Meaning] = {
    Anomaly.INCONSISTENT_OFFSETS: Meaning("one log", "one offset holds two values, depending on who reads it"),
    Anomaly.DUPLICATED: Meaning("exactly once", "a record that was sent once is at two offsets"),
    Anomaly.ABORTED_READ: Meaning(
        "no aborted reads (G1a)",
        "a reader of committed records was given one of a transaction that was aborted, or whose write was refused",
    ),
    Anomaly.INTERMEDIATE_READ: Meaning(
        "no intermediate reads (G1b)",
        "a reader of committed records was given one before its transaction's commit was asked for",
    ),
    Anomaly.LOST: Meaning(
        "durability", "committed, and the final reading, which went further, does not have it: it is lost"
    ),
    Anomaly.UNSEEN: Meaning(
        "liveness", "committed, and the final reading ended before it: it is lost, or readers stand still before it"
    ),
    Anomaly.TORN: Meaning("atomicity", "of one transaction some records are committed and others are not"),
    Anomaly.TWO_OUTCOMES: Meaning("atomicity", "a transaction was acknowledged as committed and as aborted"),
    Anomaly.SKIPPED: Meaning("order", "a consumer went past a committed record that it was not given"),
    Anomaly.READ_AGAIN: Meaning("order", "a consumer was given records again, or backwards, without a new assignment"),
    Anomaly.REORDERED: Meaning(
        "order", "a producer's later record has a lower offset than an earlier one of the same partition"
    ),
    Anomaly.CIRCULAR: Meaning(
        "no circular information flow (G1c)", "transactions have read each other's records, around a circle"
    ),
    Anomaly.OFFSETS_OF_ABORTED: Meaning(
        "offsets and records together", "a group's position is one that only an aborted transaction has committed"
    ),
    Anomaly.OFFSETS_LOST: Meaning(
        "offsets and records together", "a group's position is older than one whose commit was acknowledged before"
    ),
    Anomaly.UNKNOWN_VALUE: Meaning("", "read, and sent by no history that is at hand"),
}
NOTES = frozenset({Anomaly.UNKNOWN_VALUE})
"""Findings that break nothing: another client may have written the record."""
