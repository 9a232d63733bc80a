"""Findings about a history of share groups, and the guarantee that each breaks.

Behaviour that Kafka permits is no finding: a record that is delivered again after its lock ended, after its member's
connection closed, or after its leader died. Nor are two members that have one record at once because of that; any
order; a delivery count that begins again with a new leader.
"""

from __future__ import annotations

from enum import Enum

from tidegauge_lab.accountant.findings import Meaning


class Breach(Enum):
    """Kinds of findings; the value is the name that a user sees."""

    ACCEPTED_AGAIN = "accepted-again"
    REJECTED_AGAIN = "rejected-again"
    PASSED_OVER = "passed-over"
    BEYOND_LIMIT = "beyond-limit"
    START_BACK = "start-back"
    TWO_VALUES = "two-values"
    TWO_ENDS = "two-ends"
    UNKNOWN_VALUE = "unknown-value"


MEANINGS: dict[Breach, Meaning] = {
    Breach.ACCEPTED_AGAIN: Meaning(
        "an accepted record is done", "given by a fetch that began after its acceptance was acknowledged"
    ),
    Breach.REJECTED_AGAIN: Meaning(
        "a rejected record is done", "given by a fetch that began after its rejection was acknowledged"
    ),
    Breach.PASSED_OVER: Meaning(
        "each record is delivered", "written, and before the group's start offset, though no member was given it"
    ),
    Breach.BEYOND_LIMIT: Meaning("the delivery limit", "given with a count above share.delivery.count.limit"),
    Breach.START_BACK: Meaning("the start offset never falls", "a group's start offset was lower than before"),
    Breach.TWO_VALUES: Meaning("one log", "one offset was given with two values"),
    Breach.TWO_ENDS: Meaning(
        "",
        "accepted or rejected twice: Kafka ignores acknowledgements below the start offset without an error",
    ),
    Breach.UNKNOWN_VALUE: Meaning("", "given, and sent by no history that is at hand"),
}
NOTES = frozenset({Breach.TWO_ENDS, Breach.UNKNOWN_VALUE})
"""Findings that break nothing."""
