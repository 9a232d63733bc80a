"""Findings of any history: how they are counted, what a kind of them means, and how both are said. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

MAX_EXAMPLES = 10
SHOWN = 5
"""Examples of a kind that are shown to people; the document has all that are kept."""

Kind = TypeVar("Kind", bound=Enum)


class Meaning(NamedTuple):
    """The meaning of a kind for a reader."""

    guarantee: str
    words: str


class Found(Generic[Kind]):
    """Counts findings, and keeps some examples of each kind."""

    def __init__(self) -> None:
        self.counts: dict[Kind, int] = {}
        self.examples: dict[Kind, list[str]] = {}

    def add(self, kind: Kind, words: str) -> None:
        """Note a finding."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(words)


def found_lines(
    found: Found[Kind],
    meanings: Mapping[Kind, Meaning],
    notes: Collection[Kind],
    not_checked: Sequence[str],
    *,
    is_clean: bool,
) -> Iterator[str]:
    """Yield the findings as lines of text, and at last whether the history keeps its guarantees.

    Args:
        found: the findings.
        meanings: of all kinds, in their order.
        notes: kinds that break nothing; they come last.
        not_checked: the checks that were left out, in words.
        is_clean: whether nothing is broken.
    """
    order = list(meanings)
    for kind in sorted(found.counts, key=lambda one: (one in notes, order.index(one))):
        meaning, count = meanings[kind], found.counts[kind]
        begin = "Note: " if kind in notes else f"Broken: {meaning.guarantee}. "
        yield f"{begin}{count} {kind.value}: {meaning.words}"
        for example in found.examples[kind][:SHOWN]:
            yield f"    {example}"
        if count > SHOWN:
            yield f"    and {count - min(SHOWN, len(found.examples[kind]))} more"
    for line in not_checked:
        yield f"Not checked: {line}"
    if is_clean:
        yield "The history keeps every guarantee that was checked."
    else:
        guarantees = dict.fromkeys(meanings[kind].guarantee for kind in order if kind in found.counts)
        yield f"The history breaks: {', '.join(name for name in guarantees if name)}."


def found_document(found: Found[Kind], meanings: Mapping[Kind, Meaning], notes: Collection[Kind]) -> dict[str, Any]:
    """Return the findings for a document: ``counts`` of all kinds, and ``findings``."""
    return {
        "counts": {kind.value: found.counts.get(kind, 0) for kind in meanings},
        "findings": [
            {
                "kind": kind.value,
                "guarantee": meaning.guarantee,
                "meaning": meaning.words,
                "violation": kind not in notes,
                "count": found.counts[kind],
                "examples": found.examples[kind],
            }
            for kind, meaning in meanings.items()
            if kind in found.counts
        ],
    }
