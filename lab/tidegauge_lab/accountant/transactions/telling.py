"""Says which guarantees a history of transactions breaks: lines for people, and one document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegauge_lab.accountant.transactions.findings import MEANINGS, NOTES, Anomaly
from tidegauge_lab.accountant.transactions.judging import Judgement
from tidegauge_lab.accountant.transactions.model import Fate

SHOWN = 5


def judged_lines(judgement: Judgement) -> Iterator[str]:
    """Return a judgement as lines of text."""
    fates = ", ".join(f"{judgement.fates.get(fate, 0)} {fate.value}" for fate in Fate if fate is not Fate.BOTH)
    yield f"History of {judgement.operations} operations; transactions: {fates}"
    found = judgement.found
    for kind in sorted(found.counts, key=lambda one: (one in NOTES, list(Anomaly).index(one))):
        meaning, count = MEANINGS[kind], found.counts[kind]
        begin = "Note: " if kind in NOTES else f"Broken: {meaning.guarantee}. "
        yield f"{begin}{count} {kind.value}: {meaning.words}"
        for example in found.examples[kind][:SHOWN]:
            yield f"    {example}"
        if count > SHOWN:
            yield f"    and {count - min(SHOWN, len(found.examples[kind]))} more"
    for line in judgement.not_checked:
        yield f"Not checked: {line}"
    if judgement.is_clean:
        yield "The history keeps every guarantee that was checked."
    else:
        guarantees = dict.fromkeys(MEANINGS[kind].guarantee for kind in Anomaly if kind in found.counts)
        yield f"The history breaks: {', '.join(name for name in guarantees if name)}."


def to_json(judgement: Judgement) -> dict[str, Any]:
    """Return a judgement as a document; all keys always."""
    found = judgement.found
    return {
        "clean": judgement.is_clean,
        "operations": judgement.operations,
        "transactions": {fate.value: judgement.fates.get(fate, 0) for fate in Fate},
        "counts": {kind.value: found.counts.get(kind, 0) for kind in Anomaly},
        "findings": [
            {
                "kind": kind.value,
                "guarantee": MEANINGS[kind].guarantee,
                "meaning": MEANINGS[kind].words,
                "violation": kind not in NOTES,
                "count": found.counts[kind],
                "examples": found.examples[kind],
            }
            for kind in Anomaly
            if kind in found.counts
        ],
        "not_checked": judgement.not_checked,
    }
