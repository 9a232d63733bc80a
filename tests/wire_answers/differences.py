"""What Tidegauge answers otherwise than Apache Kafka 3.9.1, each with its reason, and the comparison."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.wire_answers.probe import Facts

RECORDING = Path(__file__).with_name("kafka-3.9.1.json")


class Known(NamedTuple):
    """A difference that stays.

    Attributes:
        facts: a regular expression that a fact's whole name matches.
        why: the reason.
        theirs: what Kafka's answer matches as a whole; "" for a fact that is not there.
        ours: what ours matches as a whole; "" for a fact that is not there.
    """

    facts: str
    why: str
    theirs: str = r"[\s\S]*"
    ours: str = r"[\s\S]*"


KNOWN: tuple[Known, ...] = ()


@dataclass
class Verdict:
    """The result of a comparison.

    Attributes:
        compared: number of facts.
        differences: those without a reason, as text.
        known: how many differences each reason covers.
        idle: reasons that no difference needs any more.
    """

    compared: int
    differences: list[str] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    idle: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the verdict as lines."""
        lines = [*self.differences, ""]
        lines += [f"{count} answers differ: {why}" for why, count in sorted(self.known.items())]
        lines += [f"no answer differs any more: {why}" for why in self.idle]
        lines.append(f"{self.compared} answers compared, {len(self.differences)} differences without a reason")
        return "\n".join(lines)


def compare(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Verdict:
    """Compare Kafka's answers with ours."""
    every = [*theirs, *(name for name in ours if name not in theirs)]
    verdict = Verdict(len(every))
    for name in every:
        one, other = theirs.get(name), ours.get(name)
        if one == other:
            continue
        rule = next((rule for rule in KNOWN if _fits(rule, name, one or "", other or "")), None)
        if rule is None:
            verdict.differences.append(f"{name}\n    Kafka:     {_shown(one)}\n    Tidegauge: {_shown(other)}")
        else:
            verdict.known[rule.why] += 1
    verdict.idle = [rule.why for rule in KNOWN if rule.why not in verdict.known]
    return verdict


def _fits(rule: Known, name: str, theirs: str, ours: str) -> bool:
    pairs = ((rule.facts, name), (rule.theirs, theirs), (rule.ours, ours))
    return all(re.fullmatch(pattern, text) for pattern, text in pairs)


def _shown(answer: str | None) -> str:
    return "not there" if answer is None else answer


def recorded() -> Facts:
    """Return what Apache Kafka 3.9.1 answered when it was recorded."""
    facts: Facts = json.loads(RECORDING.read_text(encoding="utf-8"))
    return facts


def record(facts: Facts) -> None:
    """Keep Kafka's answers."""
    RECORDING.write_text(json.dumps(facts, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
