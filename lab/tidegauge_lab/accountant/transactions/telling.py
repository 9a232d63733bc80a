"""Says which guarantees a history of transactions breaks: lines for people, and one document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegauge_lab.accountant.findings import found_document, found_lines
from tidegauge_lab.accountant.transactions.findings import MEANINGS, NOTES
from tidegauge_lab.accountant.transactions.judging import Judgement
from tidegauge_lab.accountant.transactions.model import Fate


def judged_lines(judgement: Judgement) -> Iterator[str]:
    """Return a judgement as lines of text."""
    fates = ", ".join(f"{judgement.fates.get(fate, 0)} {fate.value}" for fate in Fate if fate is not Fate.BOTH)
    yield f"History of {judgement.operations} operations; transactions: {fates}"
    yield from found_lines(judgement.found, MEANINGS, NOTES, judgement.not_checked, is_clean=judgement.is_clean)


def to_json(judgement: Judgement) -> dict[str, Any]:
    """Return a judgement as a document; all keys always."""
    return {
        "clean": judgement.is_clean,
        "operations": judgement.operations,
        "transactions": {fate.value: judgement.fates.get(fate, 0) for fate in Fate},
        **found_document(judgement.found, MEANINGS, NOTES),
        "not_checked": judgement.not_checked,
    }
